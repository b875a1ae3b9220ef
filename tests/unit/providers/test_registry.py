"""The resolution of a model to its provider, and the names of models at a provider."""

import contextlib
import importlib.metadata
from pathlib import Path

import pytest

from cllm.core.errors import ModelNotFoundError
from cllm.providers.registry import (
    BUILTIN_PROVIDERS,
    KNOWN_PREFIXES,
    LOCAL,
    Catalogue,
    ResolvedModel,
    find_server,
    has_model,
    is_model_file,
    map_model_name,
    model_not_found_error,
    resolve_model,
)
from cllm.wire.reasoning import AS_SENT, NEEDS_REASONING_CONTENT, TAKES_NONE, TAKES_REASONING

CONFIGURED = {
    "my-vllm": ["llama-3.1-8b", "org/big", "listed.gguf"],
    "other": ["llama-3.1-8b", "gpt-4o"],
}


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
        ("x.gguf", "local", "x.gguf"),
        ("mistral-7b.gguf", "local", "mistral-7b.gguf"),
        ("./x.gguf", "local", "./x.gguf"),
        ("../models/x.gguf", "local", "../models/x.gguf"),
        ("/models/x.gguf", "local", "/models/x.gguf"),
        ("~/x.gguf", "local", "~/x.gguf"),
        ("my-vllm/x.gguf", "my-vllm", "x.gguf"),
        ("listed.gguf", "my-vllm", "listed.gguf"),
    ],
)
def test_a_model_is_resolved_by_prefix_then_configured_list_then_known_name(model, provider, name):
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
def test_a_remote_provider_needs_a_key_and_https(row):
    is_local = row.base_url.startswith("http://127.0.0.1:")

    assert is_local or (row.base_url.startswith("https://") and row.key is not None)
    assert not row.base_url.endswith("/")


def test_a_service_that_only_litellm_calls_goes_to_it_if_it_is_installed():
    resolved = resolve_model("gemini/pro", configured={}, has_litellm=lambda: True)

    assert (resolved.provider, resolved.name) == ("litellm", "gemini/pro")
    with pytest.raises(ModelNotFoundError, match="extra 'litellm'"):
        resolve_model("gemini/pro", configured={}, has_litellm=lambda: False)


@pytest.mark.parametrize(
    ("model", "texts"),
    [
        ("nobody/pro", ["'nobody'", "-m", "extra 'litellm'", "litellm/nobody/pro"]),
        ("antropic/claude", ["did you mean anthropic/claude?"]),
        ("my-vlm/other", ["did you mean my-vllm/other?"]),
        ("/claude", ["provider/model"]),
        ("litellm/", ["litellm/NAME"]),
        ("my-vllm/", ["my-vllm"]),
        ("strange", ["provider/model", "openai/gpt-4o"]),
        ("", ["provider/model"]),
        ("my-vlm/llama-3.1-8b", ["did you mean my-vllm/llama-3.1-8b"]),
        ("llama-3.1-8", ["did you mean my-vllm/llama-3.1-8b or other/llama-3.1-8b?"]),
        ("org/bigg", ["did you mean my-vllm/org/big?"]),
        ("llamas", ["use provider/model"]),
        ("big", ["use provider/model"]),
        ("models/x.gguf", ["for a model file, use ./models/x.gguf"]),
        ("./x", ["provider/model"]),
    ],
)
def test_an_unknown_model_is_an_error_with_advice(model, texts):
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(model, configured=CONFIGURED)
    assert caught.value.model == model
    assert f"'{model}'" in str(caught.value)
    for text in texts:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    "model", ["antropic/claude", "openia/gpt-4o", "strange", "/x", "./x", "~/x", "models/x.gguf"]
)
def test_litellm_is_not_advised_for_a_typing_error(model):
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(model, configured={}, is_third_party=lambda _: False)
    assert "litellm" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(BUILTIN_PROVIDERS))
def test_the_reference_lists_every_provider(name):
    path = Path(__file__).parents[3] / "docs/reference/providers.md"
    lines = path.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| `{name}`"))
    row = BUILTIN_PROVIDERS[name]

    assert row.base_url.partition("//")[2].split("/")[0] in line
    assert (row.key or "") in line
    assert line.endswith(f"| `{row.kind}` |")


class TestThirdPartyPackages:
    def test_a_package_with_the_prefix_serves_the_model(self):
        resolved = resolve_model(
            "acme/a/b", configured=CONFIGURED, is_third_party=lambda name: name == "acme"
        )

        assert resolved == ResolvedModel(provider="acme", name="a/b")

    def test_a_prefix_of_a_package_needs_a_model_name(self):
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
    def test_entry_points_are_not_read_for_a_known_name(self, model):
        names: list[str] = []

        def is_third_party(name: str) -> bool:
            names.append(name)
            return True

        with contextlib.suppress(ModelNotFoundError):
            resolve_model(model, configured=CONFIGURED, is_third_party=is_third_party)
        assert names == []

    def test_entry_points_are_read_by_default(self, monkeypatch):
        queries: list[dict[str, str]] = []

        def entry_points(**query: str) -> list[object]:
            queries.append(query)
            return []

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

        resolve_model("openai/x", configured={})
        with pytest.raises(ModelNotFoundError):
            resolve_model("never-looked-up-before/x", configured={})

        assert queries == [{"group": "cllm.providers", "name": "never-looked-up-before"}]


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
def test_the_reasoning_rule_is_found_by_host_then_by_name(provider, base_url, rule):
    assert find_server(provider, base_url).reasoning == rule


def test_every_openai_compatible_row_has_a_reasoning_rule():
    """A server without a rule would get whatever a client sends."""
    rows = [row for row in BUILTIN_PROVIDERS.values() if row.kind == "openai"]

    assert all(row.reasoning != AS_SENT for row in rows)


SONNET = "claude-3-7-sonnet-20250219"
ON_BEDROCK = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"
ANTHROPIC = Catalogue(provider="anthropic", kind="anthropic")
BEDROCK = Catalogue(provider="bedrock", kind="bedrock")
OPENAI = Catalogue(provider="openai", kind="openai")


def test_a_configured_name_wins():
    mapped = Catalogue(provider="openai", kind="openai", names={SONNET: "gpt-5.5"})

    assert map_model_name(SONNET, mapped) == "gpt-5.5"
    assert has_model(SONNET, mapped)


@pytest.mark.parametrize("geography", ["us.", "eu.", "global.", ""])
def test_a_bedrock_id_maps_to_anthropics_name_at_anthropic(geography: str):
    name = f"{geography}anthropic.claude-3-7-sonnet-20250219-v1:0"

    assert map_model_name(name, ANTHROPIC) == SONNET
    assert has_model(name, ANTHROPIC)


def test_an_unknown_name_stays_unchanged():
    assert map_model_name("us.anthropic.claude-none-9", ANTHROPIC) == "us.anthropic.claude-none-9"
    assert map_model_name(SONNET, BEDROCK) == SONNET


@pytest.mark.parametrize("name", [SONNET, ON_BEDROCK, "claude-sonnet-4-5", "amazon.nova-pro-v1:0"])
def test_bedrock_has_known_models_and_its_own_ids(name: str):
    assert has_model(name, BEDROCK) is True


def test_bedrock_has_no_models_of_other_vendors():
    assert has_model("gpt-5.5", BEDROCK) is False


def test_openai_has_no_claude_but_a_custom_address_may():
    custom = Catalogue(provider="openai", kind="openai", has_custom_address=True)

    assert has_model(SONNET, OPENAI) is False
    assert has_model(SONNET, custom) is None
    assert has_model("gpt-5.5", OPENAI) is True


def test_a_custom_server_has_its_listed_models_and_perhaps_more():
    vllm = Catalogue(provider="my-vllm", kind="openai", models=("llama-3.1-8b",))

    assert has_model("llama-3.1-8b", vllm) is True
    assert has_model("qwen-3", vllm) is None


def test_the_error_for_a_missing_model_lists_the_models():
    mapped = Catalogue(provider="openai", kind="openai", models=("a",), names={"b": "c"})

    assert "openai/a, openai/b" in str(model_not_found_error(SONNET, mapped))
    assert "providers.openai.names" in str(model_not_found_error(SONNET, OPENAI))
    assert f"bedrock/{SONNET}" not in str(model_not_found_error("gpt-5.5", OPENAI))
    assert "bedrock/claude-sonnet-5-5" in str(model_not_found_error("gpt-5.5", BEDROCK))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("local//models/x.gguf", True),
        ("local/./x", True),
        ("x.gguf", True),
        ("local/smollm2-135m", False),
        ("openai/gpt-4o", False),
    ],
)
def test_a_path_or_a_gguf_name_is_a_model_file(model, expected):
    assert is_model_file(model) is expected
