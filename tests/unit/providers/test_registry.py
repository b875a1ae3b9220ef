"""Which provider serves a model."""

import contextlib
import importlib.metadata
from pathlib import Path

import pytest

from cllm.core.errors import ModelNotFoundError
from cllm.providers.registry import (
    BUILTIN_PROVIDERS,
    KNOWN_PREFIXES,
    LOCAL,
    ResolvedModel,
    find_reasoning_rule,
    resolve_model,
)
from cllm.wire.reasoning import AS_SENT, NEEDS_REASONING_CONTENT, TAKES_NONE, TAKES_REASONING

CONFIGURED = {"my-vllm": ["llama-3.1-8b", "org/big"], "other": ["llama-3.1-8b", "gpt-4o"]}


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("openai/claude", "openai", "claude"),
        ("openrouter/meta/llama-3", "openrouter", "meta/llama-3"),
        ("local/smollm2-135m", "local", "smollm2-135m"),
        ("local//models/x.gguf", "local", "/models/x.gguf"),
        ("my-vllm/anything", "my-vllm", "anything"),
        ("org/big", "my-vllm", "org/big"),
        ("llama-3.1-8b", "my-vllm", "llama-3.1-8b"),
        ("gpt-4o", "other", "gpt-4o"),
        ("gpt-5", "openai", "gpt-5"),
        ("o3-mini", "openai", "o3-mini"),
        ("smollm2-135m", "local", "smollm2-135m"),
        ("grok-4", "xai", "grok-4"),
        ("litellm/gemini/gemini-pro", "litellm", "gemini/gemini-pro"),
    ],
)
def test_prefix_then_configured_lists_then_known_names(model, provider, name):
    assert resolve_model(model, configured=CONFIGURED) == ResolvedModel(
        provider=provider, name=name
    )


@pytest.mark.parametrize("provider", [LOCAL, *BUILTIN_PROVIDERS])
def test_every_provider_is_found_by_its_prefix(provider):
    assert resolve_model(f"{provider}/x", configured={}).provider == provider


def test_every_known_name_belongs_to_a_provider_that_exists():
    assert set(KNOWN_PREFIXES.values()) <= {LOCAL, *BUILTIN_PROVIDERS}


@pytest.mark.parametrize(
    "row",
    [row for row in BUILTIN_PROVIDERS.values() if row.kind not in ("bedrock", "litellm")],
    ids=lambda row: row.base_url,
)
def test_a_provider_that_is_not_on_this_machine_wants_a_key_over_https(row):
    is_local = row.base_url.startswith("http://127.0.0.1:")

    assert is_local or (row.base_url.startswith("https://") and row.key is not None)
    assert not row.base_url.endswith("/")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gemini/pro", ["'gemini'", "pip install 'cllm[litellm]'", "litellm/gemini/pro"]),
        ("antropic/claude", ["did you mean anthropic/claude?"]),
        ("my-vlm/other", ["did you mean my-vllm/other?"]),
        ("/claude", ["provider/model"]),
        ("litellm/", ["litellm/NAME"]),
        ("my-vllm/", ["my-vllm"]),
        ("strange", ["provider/model", "openai/gpt-4o"]),
        ("", ["provider/model"]),
        ("my-vlm/llama-3.1-8b", ["did you mean my-vllm/llama-3.1-8b"]),
        ("llama-3.1-8", ["did you mean"]),
    ],
)
def test_a_model_that_nobody_serves_is_an_error_that_helps(model, words):
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(model, configured=CONFIGURED)
    assert caught.value.model == model
    assert f"'{model}'" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("model", ["antropic/claude", "openia/gpt-4o", "strange", "/x"])
def test_litellm_is_not_advised_for_a_slip_of_the_pen(model):
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(model, configured={}, is_third_party=lambda _: False)
    assert "litellm" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(BUILTIN_PROVIDERS))
def test_every_provider_has_its_row_in_the_reference(name):
    path = Path(__file__).parents[3] / "docs/reference/providers.md"
    lines = path.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| `{name}`"))
    row = BUILTIN_PROVIDERS[name]

    assert row.base_url.partition("//")[2].split("/")[0] in line
    assert (row.key or "") in line
    assert line.endswith(f"| `{row.kind}` |")


class TestOtherPackages:
    def test_one_that_offers_the_prefix_serves_the_model(self):
        found = resolve_model(
            "acme/a/b", configured=CONFIGURED, is_third_party=lambda name: name == "acme"
        )

        assert found == ResolvedModel(provider="acme", name="a/b")

    def test_one_that_offers_the_prefix_wants_a_model_all_the_same(self):
        with pytest.raises(ModelNotFoundError, match="acme/NAME"):
            resolve_model("acme/", configured={}, is_third_party=lambda _: True)

    @pytest.mark.parametrize(
        "model",
        [
            *(f"{name}/x" for name in (LOCAL, *BUILTIN_PROVIDERS, *CONFIGURED)),
            "org/big",
            "gpt-5",
            "",
        ],
    )
    def test_none_is_asked_about_a_name_that_is_known(self, model):
        asked: list[str] = []

        def is_third_party(name: str) -> bool:
            asked.append(name)
            return True

        with contextlib.suppress(ModelNotFoundError):
            resolve_model(model, configured=CONFIGURED, is_third_party=is_third_party)
        assert asked == []

    def test_installed_packages_are_asked_unless_told_otherwise(self, monkeypatch):
        asked: list[dict[str, str]] = []

        def entry_points(**given: str) -> list[object]:
            asked.append(given)
            return []

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

        resolve_model("openai/x", configured={})
        with pytest.raises(ModelNotFoundError):
            resolve_model("never-looked-up-before/x", configured={})

        assert asked == [{"group": "cllm.providers", "name": "never-looked-up-before"}]


@pytest.mark.parametrize(
    ("provider", "base_url", "rule"),
    [
        ("openai", "https://api.openai.com/v1", TAKES_NONE),
        ("mine", "https://API.openai.com/v1/", TAKES_NONE),
        ("openai", "http://127.0.0.1:9000/v1", AS_SENT),
        ("openai", "https://api.groq.com/openai/v1", TAKES_REASONING),
        ("groq", "https://proxy.example/groq", TAKES_REASONING),
        ("deepseek", "http://127.0.0.1:9000", NEEDS_REASONING_CONTENT),
        ("mine", "https://api.deepseek.com", NEEDS_REASONING_CONTENT),
        ("mine", "http://127.0.0.1:11434/v1", AS_SENT),
        ("mine", "https://api.z.ai/api/paas/v4", AS_SENT),
    ],
)
def test_what_a_server_takes_of_past_reasoning_is_known_by_address_then_name(
    provider, base_url, rule
):
    assert find_reasoning_rule(provider, base_url) == rule


def test_every_row_of_an_openai_compatible_server_says_what_it_takes_of_past_reasoning():
    """A new row has to say it: without, a server gets whatever a client sends."""
    rows = [row for row in BUILTIN_PROVIDERS.values() if row.kind == "openai"]

    assert all(row.reasoning != AS_SENT for row in rows)
