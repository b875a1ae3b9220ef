"""The choice of a model without a configured one."""

import json
from pathlib import Path

import pytest

from cllm.default_model import SMALL_MODELS, ModelChoice, choose_model, take_hint
from cllm.prices.book import table_entry
from cllm.prices.table import look_up
from cllm.providers.registry import BUILTIN_PROVIDERS
from cllm.settings.load import CommandLine, Environment, load_settings

NO_OLLAMA = {"OLLAMA_HOST": "127.0.0.1:9"}


@pytest.fixture
def choose(tmp_path: Path):
    (tmp_path / ".cllm").mkdir()

    def run(text: str = "", saved: str | None = None, **environ: str) -> ModelChoice:
        (tmp_path / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")
        if saved is not None:
            (tmp_path / ".cllm/keys.json").write_text(saved, encoding="utf-8")
        env = Environment(
            home=tmp_path, directory=tmp_path / "work", environment={**NO_OLLAMA, **environ}
        )
        return choose_model(load_settings(env, CommandLine()))

    return run


@pytest.mark.parametrize(("provider", "model"), SMALL_MODELS.items(), ids=SMALL_MODELS)
def test_the_price_of_each_small_model_is_known(provider: str, model: str):
    entry = table_entry(provider, model)

    assert BUILTIN_PROVIDERS[provider].key is not None
    assert entry is not None
    assert look_up(entry).dated_rates


def test_without_a_key_and_without_ollama_the_local_model_is_chosen(choose):
    choice = choose()

    assert choice.model == "local/smollm2-135m"
    assert "cllm models pull qwen3-0.6b, 639 MB" in choice.hint


def test_the_first_provider_with_a_key_is_chosen(choose):
    choice = choose(GROQ_API_KEY="x", ANTHROPIC_API_KEY="x", OPENAI_API_KEY=" ")

    assert choice.model == f"anthropic/{SMALL_MODELS['anthropic']}"
    assert choice.reason == "ANTHROPIC_API_KEY is set"


@pytest.mark.parametrize("entry", [{"key": "secret"}, {}], ids=["file", "keyring"])
def test_a_saved_key_counts_wherever_it_is(choose, entry):
    choice = choose(saved=json.dumps({"mistral": entry}))

    assert choice.model == "mistral/mistral-small-latest"
    assert "secret" not in choice.hint


def test_a_configured_key_counts_unless_its_variable_is_unset(choose):
    text = "providers: {openai: {api_key: '${KEY}'}}"

    assert choose(text).model == "local/smollm2-135m"
    assert choose(text, KEY="sk-x").model.startswith("openai/")


def test_a_damaged_file_of_keys_is_no_key(choose):
    assert choose(saved="{").model == "local/smollm2-135m"


def test_the_hint_is_shown_once_for_each_model(tmp_path: Path):
    first, second = (ModelChoice(model=name, reason="r") for name in ("a/b", "a/c"))
    folder = tmp_path / "cache"

    hints = [take_hint(choice, folder) for choice in (first, first, second, second)]

    assert hints == [first.hint, None, second.hint, None]
    assert "a/b" in first.hint
    assert "because" not in first.hint


def test_a_cache_folder_that_is_not_writable_does_not_hide_the_hint(tmp_path: Path):
    (tmp_path / "file").touch()

    assert take_hint(ModelChoice(model="a/b", reason="r"), tmp_path / "file") is not None
