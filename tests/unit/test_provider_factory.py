"""Providers built from settings."""

from pathlib import Path
from typing import Any

import pytest

from cllm.core.errors import MissingKeyError, SettingsError
from cllm.provider_factory import KINDS, ProviderFactory
from cllm.providers import third_party
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.litellm import LitellmProvider
from cllm.providers.openai import OpenAIProvider
from cllm.settings.load import CommandLine, Environment, load_settings
from cllm.wire.media import COMPATIBLE, IMAGES_ONLY, OPENAI_CHAT, TEXT_ONLY
from cllm.wire.reasoning import AS_SENT, TAKES_NONE, TAKES_REASONING


@pytest.fixture
def open_model(tmp_path: Path):
    """Open the provider of a model, with these settings in the user's Cllmfile."""

    def open_model(model: str, text: str = "", **environment: str) -> Any:
        (tmp_path / ".cllm").mkdir(exist_ok=True)
        (tmp_path / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")
        place = Environment(home=tmp_path, directory=tmp_path / "work", environment=environment)
        settings = load_settings(place, CommandLine())
        factory = ProviderFactory(settings, model=lambda: model, report=None, single_turn=True)
        return factory.open(factory.resolve(model))

    return open_model


class TestLitellm:
    def test_it_needs_no_settings(self, open_model):
        provider = open_model("litellm/gemini/gemini-pro")

        assert isinstance(provider, LitellmProvider)
        assert (provider.name, provider._api_base, provider._api_key) == ("litellm", None, None)

    def test_its_settings_are_passed_on(self, open_model):
        provider = open_model(
            "litellm/azure/x",
            "providers: {litellm: {api_base: 'http://h', api_key: sk-a, api_version: v2,"
            " prices: {}, extra_headers: {X-A: '1'}, timeout: 5}}",
        )

        assert (provider._api_base, provider._api_key) == ("http://h", "sk-a")
        assert provider._options == {"api_version": "v2"}
        assert provider._headers == {"X-A": "1"}
        assert provider._timeouts.idle == 5

    def test_top_level_settings_apply_to_the_provider_of_the_model(self, open_model):
        text = "{model: litellm/openai/x, api_base: 'http://h', api_key: sk-top}"

        assert open_model("litellm/openai/x", text)._api_key == "sk-top"

    def test_a_custom_provider_can_have_the_type_litellm(self, open_model):
        provider = open_model("mine/gemini/x", "providers: {mine: {type: litellm}}")

        assert isinstance(provider, LitellmProvider)
        assert provider.name == "mine"

    def test_an_address_without_a_scheme_is_a_settings_error(self, open_model):
        with pytest.raises(SettingsError, match="http://"):
            open_model("litellm/x/y", "providers: {litellm: {api_base: 'localhost:1'}}")

    def test_an_unset_variable_is_a_missing_key(self, open_model):
        with pytest.raises(MissingKeyError, match="MY_KEY"):
            open_model("litellm/x/y", "providers: {litellm: {api_key: '${MY_KEY}'}}")

    def test_secret_environment_variables_are_redacted(self, open_model):
        environment = {"GEMINI_API_KEY": "gm-12345678", "LANG": "C.UTF-8-and-more", "A_KEY": "x"}

        provider = open_model("litellm/gemini/x", **environment)

        assert "gm-12345678" in provider._secrets
        assert not {"C.UTF-8-and-more", "x"} & set(provider._secrets)


class TestOptions:
    def test_the_options_of_a_server_are_passed_on(self, open_model):
        text = "providers: {mine: {api_base: 'http://h', api: responses, profile: strict}}"

        provider = open_model("mine/x", text)

        assert isinstance(provider, OpenAIProvider)
        assert (provider._api, provider._profile) == ("responses", "strict")

    @pytest.mark.parametrize(
        ("name", "text", "rule"),
        [
            ("openai", "providers: {openai: {api_key: sk-o}}", TAKES_NONE),
            ("openai", "providers: {openai: {api_base: 'http://h'}}", AS_SENT),
            ("mine", "providers: {mine: {api_base: 'http://h'}}", AS_SENT),
            ("groq", "providers: {groq: {api_key: gsk}}", TAKES_REASONING),
            ("groq", "providers: {groq: {api_key: gsk, reasoning_field: none}}", TAKES_NONE),
            (
                "mine",
                "providers: {mine: {api_base: 'http://h', reasoning_field: reasoning}}",
                TAKES_REASONING,
            ),
        ],
    )
    def test_reasoning_field_overrides_the_reasoning_rule(self, open_model, name, text, rule):
        provider = open_model(f"{name}/x", text)

        assert isinstance(provider, OpenAIProvider)
        assert provider._reasoning == rule

    @pytest.mark.parametrize(
        ("name", "text", "rule"),
        [
            ("openai", "providers: {openai: {api_key: k}}", OPENAI_CHAT),
            ("openai", "providers: {openai: {api_base: 'http://h', api_key: k}}", COMPATIBLE),
            ("ollama", "", IMAGES_ONLY),
            ("mine", "providers: {mine: {api_base: 'http://h'}}", COMPATIBLE),
            ("mine", "providers: {mine: {api_base: 'http://h', attachments: none}}", TEXT_ONLY),
        ],
    )
    def test_the_server_and_the_settings_choose_the_attachments(self, open_model, name, text, rule):
        provider = open_model(f"{name}/m", text)

        assert isinstance(provider, OpenAIProvider)
        assert provider._media == rule

    def test_beta_flags_are_passed_on(self, open_model):
        text = "providers: {anthropic: {api_key: sk-a, betas: [output-128k-2025-02-19]}}"

        provider = open_model("anthropic/x", text)

        assert isinstance(provider, AnthropicProvider)
        assert "output-128k-2025-02-19" in provider._betas

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            *(("api", "soap"), ("api", 3), ("profile", "[x]"), ("profile", 1)),
            ("attachments", "pdf"),
            *(("reasoning_field", "thoughts"), ("reasoning_field", "[reasoning]")),
        ],
    )
    def test_an_option_of_the_wrong_type_is_a_settings_error(self, open_model, option, value):
        text = f"providers: {{mine: {{api_base: 'http://h', {option}: {value}}}}}"

        with pytest.raises(SettingsError, match=f"`{option}` of providers.mine"):
            open_model("mine/x", text)


class TestKinds:
    @pytest.mark.parametrize("kind", ["gopher", "local", "groq", "[x]", "{a: 1}", "3", "true"])
    def test_an_unknown_type_is_an_error_that_lists_the_types(self, open_model, kind):
        text = f"providers: {{mine: {{type: {kind}, api_base: 'http://h'}}}}"

        with pytest.raises(SettingsError, match=", ".join(KINDS)):
            open_model("mine/x", text)

    @pytest.mark.parametrize("text", ["", "providers: {openai: {api_base: 'http://h'}}"])
    def test_entry_points_are_not_read_for_a_built_in_provider(self, open_model, monkeypatch, text):
        monkeypatch.setattr(third_party, "_find_entry_points", None)

        assert isinstance(open_model("openai/x", text, OPENAI_API_KEY="sk-a"), OpenAIProvider)

    def test_a_provider_with_an_address_uses_openais_protocol(self, open_model, monkeypatch):
        monkeypatch.setattr(third_party, "_find_entry_points", None)

        text = "providers: {acme: {api_base: 'http://h'}}"
        assert isinstance(open_model("acme/x", text), OpenAIProvider)
