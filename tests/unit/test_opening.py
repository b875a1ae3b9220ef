"""The settings of a provider become the provider."""

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
from cllm.wire.reasoning import AS_SENT, TAKES_NONE, TAKES_REASONING


@pytest.fixture
def open_model(tmp_path: Path):
    """Opens the provider of a model, with these settings in the person's own file."""

    def open_model(model: str, text: str = "", **environment: str) -> Any:
        (tmp_path / ".cllm").mkdir(exist_ok=True)
        (tmp_path / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")
        place = Environment(home=tmp_path, directory=tmp_path / "work", environment=environment)
        settings = load_settings(place, CommandLine())
        opener = ProviderFactory(settings, model=model, report=None, single_turn=True)
        return opener.open(opener.resolve(model))

    return open_model


class TestLitellm:
    def test_it_needs_no_settings(self, open_model):
        provider = open_model("litellm/gemini/gemini-pro")

        assert isinstance(provider, LitellmProvider)
        assert (provider.name, provider._api_base, provider._api_key) == ("litellm", None, None)

    def test_its_settings_are_given_on(self, open_model):
        provider = open_model(
            "litellm/azure/x",
            "providers: {litellm: {api_base: 'http://h', api_key: sk-a, api_version: v2,"
            " prices: {}, extra_headers: {X-A: '1'}, timeout: 5}}",
        )

        assert (provider._api_base, provider._api_key) == ("http://h", "sk-a")
        assert provider._options == {"api_version": "v2"}
        assert provider._headers == {"X-A": "1"}
        assert provider._timeouts.idle == 5

    def test_the_settings_at_the_top_are_for_the_model_that_they_stand_by(self, open_model):
        text = "{model: litellm/openai/x, api_base: 'http://h', api_key: sk-top}"

        assert open_model("litellm/openai/x", text)._api_key == "sk-top"

    def test_a_provider_of_one_s_own_can_be_of_its_type(self, open_model):
        provider = open_model("mine/gemini/x", "providers: {mine: {type: litellm}}")

        assert isinstance(provider, LitellmProvider)
        assert provider.name == "mine"

    def test_an_address_without_a_scheme_is_an_error_of_the_settings(self, open_model):
        with pytest.raises(SettingsError, match="http://"):
            open_model("litellm/x/y", "providers: {litellm: {api_base: 'localhost:1'}}")

    def test_a_key_that_is_an_unset_variable_is_missing(self, open_model):
        with pytest.raises(MissingKeyError, match="MY_KEY"):
            open_model("litellm/x/y", "providers: {litellm: {api_key: '${MY_KEY}'}}")

    def test_keys_of_the_environment_are_secrets(self, open_model):
        environment = {"GEMINI_API_KEY": "gm-12345678", "LANG": "C.UTF-8-and-more", "A_KEY": "x"}

        provider = open_model("litellm/gemini/x", **environment)

        assert "gm-12345678" in provider._secrets
        assert not {"C.UTF-8-and-more", "x"} & set(provider._secrets)


class TestOptions:
    def test_what_a_server_wants_to_be_asked_with_is_given_on(self, open_model):
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
    def test_a_server_has_a_rule_for_past_reasoning_that_the_settings_can_change(
        self, open_model, name, text, rule
    ):
        provider = open_model(f"{name}/x", text)

        assert isinstance(provider, OpenAIProvider)
        assert provider._reasoning == rule

    def test_beta_flags_are_given_on(self, open_model):
        text = "providers: {anthropic: {api_key: sk-a, betas: [output-128k-2025-02-19]}}"

        provider = open_model("anthropic/x", text)

        assert isinstance(provider, AnthropicProvider)
        assert "output-128k-2025-02-19" in provider._betas

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            *(("api", "soap"), ("api", 3), ("profile", "[x]"), ("profile", 1)),
            *(("reasoning_field", "thoughts"), ("reasoning_field", "[reasoning]")),
        ],
    )
    def test_one_of_the_wrong_kind_is_an_error_of_the_settings(self, open_model, option, value):
        text = f"providers: {{mine: {{api_base: 'http://h', {option}: {value}}}}}"

        with pytest.raises(SettingsError, match=f"`{option}` of providers.mine"):
            open_model("mine/x", text)


class TestKinds:
    @pytest.mark.parametrize("kind", ["gopher", "local", "groq", "[x]", "{a: 1}", "3", "true"])
    def test_an_unknown_type_is_an_error_that_names_the_known(self, open_model, kind):
        text = f"providers: {{mine: {{type: {kind}, api_base: 'http://h'}}}}"

        with pytest.raises(SettingsError, match=", ".join(KINDS)):
            open_model("mine/x", text)

    @pytest.mark.parametrize("text", ["", "providers: {openai: {api_base: 'http://h'}}"])
    def test_no_package_is_looked_for_where_none_is_wanted(self, open_model, monkeypatch, text):
        monkeypatch.setattr(third_party, "_offers", None)

        assert isinstance(open_model("openai/x", text, OPENAI_API_KEY="sk-a"), OpenAIProvider)

    def test_an_address_of_one_s_own_is_openai_s_protocol_whatever_is_installed(
        self, open_model, monkeypatch
    ):
        monkeypatch.setattr(third_party, "_offers", None)

        text = "providers: {acme: {api_base: 'http://h'}}"
        assert isinstance(open_model("acme/x", text), OpenAIProvider)

    def test_what_a_package_is_given_shows_no_secret(self):
        access = third_party.ProviderAccess(options={"a": "sk-1"}, environment={"B": "sk-2"})

        assert "sk-" not in repr(access) + str(access)
        assert access.timeouts.connect == 10
