"""Which provider serves a model."""

import pytest

from cllm.core.errors import ModelNotFoundError
from cllm.providers.registry import KNOWN_PREFIXES, LOCAL, ROWS, ServedModel, find_server

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
    ],
)
def test_prefix_then_configured_lists_then_known_names(model, provider, name):
    assert find_server(model, configured=CONFIGURED) == ServedModel(provider=provider, name=name)


@pytest.mark.parametrize("provider", [LOCAL, *ROWS])
def test_every_provider_is_found_by_its_prefix(provider):
    assert find_server(f"{provider}/x", configured={}).provider == provider


def test_every_known_name_belongs_to_a_provider_that_exists():
    assert set(KNOWN_PREFIXES.values()) <= {LOCAL, *ROWS}


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if row.kind != "bedrock"], ids=lambda row: row.base_url
)
def test_a_provider_that_is_not_on_this_machine_wants_a_key_over_https(row):
    is_local = row.base_url.startswith("http://127.0.0.1:")

    assert is_local or (row.base_url.startswith("https://") and row.key is not None)
    assert not row.base_url.endswith("/")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gemini/pro", ["'gemini'", "openai", "my-vllm", "local"]),
        ("my-vllm/", ["my-vllm"]),
        ("strange", ["provider/model", "openai/gpt-4o"]),
        ("", ["provider/model"]),
        ("my-vlm/llama-3.1-8b", ["did you mean my-vllm/llama-3.1-8b"]),
        ("llama-3.1-8", ["did you mean"]),
    ],
)
def test_a_model_that_nobody_serves_is_an_error_that_helps(model, words):
    with pytest.raises(ModelNotFoundError) as caught:
        find_server(model, configured=CONFIGURED)
    assert caught.value.model == model
    assert f"'{model}'" in str(caught.value)
    for word in words:
        assert word in str(caught.value)
