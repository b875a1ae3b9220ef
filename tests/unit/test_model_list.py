"""The models that `cllm models list` shows."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.errors import UsageError
from cllm.model_list import ModelRow, format_rows, list_rows
from cllm.providers.local.models import CachePaths
from cllm.providers.registry import BUILTIN_PROVIDERS
from cllm.settings.load import CommandLine, Environment, load_settings

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def rows(tmp_path: Path):
    (tmp_path / ".cllm").mkdir()

    def run(text: str = "", environ: dict[str, str] | None = None, **options) -> list[ModelRow]:
        (tmp_path / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")
        environment = {"OLLAMA_HOST": "127.0.0.1:9", **(environ or {})}
        env = Environment(home=tmp_path, directory=tmp_path / "work", environment=environment)
        settings = load_settings(env, CommandLine())
        return list_rows(settings, CachePaths(root=tmp_path / "cache"), now=NOW, **options)

    return run


def test_without_a_key_only_local_models_are_listed(rows, tmp_path):
    assert {row.provider for row in rows()} == {"local"}
    assert not (tmp_path / "cache").exists()


def test_a_key_adds_the_models_of_its_provider_with_prices_and_windows(rows):
    listed = {row.model: row for row in rows(environ={"OPENAI_API_KEY": "sk-x"})}

    assert {row.provider for row in listed.values()} == {"local", "openai"}
    model = listed["openai/gpt-4o"]
    assert (model.context, model.input_price, model.output_price) == (128000, 2.5, 10.0)
    assert listed["openai/whisper-1"].input_price is None


def test_configured_models_are_listed_once(rows):
    vllm = "my-vllm: {api_base: 'http://gpu/v1', models: [a, b]}"
    text = f"providers: {{{vllm}, openai: {{models: [gpt-4o]}}}}"

    names = [row.model for row in rows(text)]

    assert [name for name in names if name.startswith("my-vllm/")] == ["my-vllm/a", "my-vllm/b"]
    assert names.count("openai/gpt-4o") == 1


def test_another_address_of_a_provider_has_other_models(rows):
    text = "providers: {openai: {api_base: 'http://gpu/v1', models: [x]}}"

    assert [row.model for row in rows(text, provider="openai")] == ["openai/x"]


def test_all_providers_can_be_listed(rows):
    providers = {row.provider for row in rows(is_complete=True)}

    assert {"anthropic", "bedrock", "groq", "local", "openrouter", "xai"} <= providers
    assert providers <= {"local", *BUILTIN_PROVIDERS}


def test_an_unknown_provider_is_an_error(rows):
    with pytest.raises(UsageError, match="no provider 'nonsense'; use one of"):
        rows(provider="nonsense")


def test_unknown_values_are_empty():
    row = ModelRow(model="a/b", provider="a")

    assert format_rows([row])[1] == ("a/b", "", "", "", "")
