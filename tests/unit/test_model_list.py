"""The models that `cllm models list` shows."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider, closed_port

from cllm.core.errors import UsageError
from cllm.model_list import UNKNOWN, ModelListing, ModelRow, format_rows
from cllm.providers.local.models import CachePaths
from cllm.providers.registry import BUILTIN_PROVIDERS, ProviderRow
from cllm.settings.load import CommandLine, Environment, load_settings

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def provider():
    with FakeProvider() as running:
        yield running


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def rows(tmp_path: Path, problems: list[str]):
    (tmp_path / ".cllm").mkdir()

    def run(text: str = "", environ: dict[str, str] | None = None, **options) -> list[ModelRow]:
        (tmp_path / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")
        environment = {"OLLAMA_HOST": "127.0.0.1:9", **(environ or {})}
        env = Environment(home=tmp_path, directory=tmp_path / "work", environment=environment)
        settings = load_settings(env, CommandLine())
        paths = CachePaths(root=tmp_path / "cache")
        listing = ModelListing(settings, paths, now=NOW, report=problems.append)
        return listing.list_rows(**options)

    return run


def test_without_a_key_only_local_models_are_listed(rows, tmp_path):
    assert {row.provider for row in rows()} == {"local"}
    assert not (tmp_path / "cache").exists()


def test_the_price_table_names_the_models_of_a_provider_that_was_not_called(rows, problems):
    listed = {row.model: row for row in rows(provider="openai")}

    assert {row.provider for row in listed.values()} == {"openai"}
    model = listed["openai/gpt-4o"]
    assert (model.context, model.input_price, model.output_price) == (128000, 2.5, 10.0)
    assert listed["openai/whisper-1"].input_price is None
    assert problems == []


def test_the_models_of_a_provider_are_its_own_with_known_prices(rows, provider, monkeypatch):
    provider.serve_models("gpt-4o", {"id": "gpt-new", "context_length": 5})
    openai = ProviderRow(base_url=provider.url, key="OPENAI_API_KEY")
    monkeypatch.setitem(BUILTIN_PROVIDERS, "openai", openai)

    listed = rows(environ={"OPENAI_API_KEY": "sk-x"})

    found = [row.to_columns()[:4] for row in listed if row.provider == "openai"]
    assert found == [
        ("openai/gpt-4o", "128,000", "2.5", "10"),
        ("openai/gpt-new", "5", UNKNOWN, UNKNOWN),
    ]


def test_the_price_table_replaces_the_list_of_an_unreachable_provider(rows, problems, monkeypatch):
    base_url = f"http://127.0.0.1:{closed_port()}/v1"
    openai = ProviderRow(base_url=base_url, key="OPENAI_API_KEY")
    monkeypatch.setitem(BUILTIN_PROVIDERS, "openai", openai)

    names = [row.model for row in rows(environ={"OPENAI_API_KEY": "sk-x"})]

    assert "openai/gpt-4o" in names
    assert len(problems) == 1
    assert problems[0].startswith("Cannot reach provider 'openai'")
    assert problems[0].endswith(" The names in the price table are listed instead.")


def test_configured_models_are_listed_once_with_configured_prices(rows, provider):
    provider.serve_models("a", "b")
    prices = "prices: {c: {input: 1, output: 2}}"
    vllm = f"my-vllm: {{api_base: '{provider.url}', models: [c, b], {prices}}}"
    text = f"providers: {{{vllm}, openai: {{models: [gpt-4o]}}}}"

    listed = {row.model: row for row in rows(text)}

    names = [name for name in listed if name.startswith("my-vllm/")]
    assert names == ["my-vllm/c", "my-vllm/b", "my-vllm/a"]
    assert (listed["my-vllm/c"].input_price, listed["my-vllm/c"].output_price) == (1, 2)
    assert listed["openai/gpt-4o"].context == 128000


def test_another_address_of_a_provider_has_other_models_and_no_known_prices(rows, provider):
    provider.serve_models("gpt-4o")
    text = f"providers: {{openai: {{api_base: '{provider.url}', models: [x]}}}}"

    listed = rows(text, provider="openai")

    assert [row.model for row in listed] == ["openai/x", "openai/gpt-4o"]
    assert [row.input_price for row in listed] == [None, None]


def test_an_address_at_the_top_level_is_used(rows, provider):
    provider.serve_models("a")
    text = f"model: openai/a\napi_base: {provider.url}\napi_key: sk-top\n"

    assert "openai/a" in [row.model for row in rows(text)]
    assert provider.requests[0].headers["authorization"] == "Bearer sk-top"


def test_a_missing_ollama_server_is_a_problem_only_if_it_is_named(rows, problems):
    assert rows()
    assert problems == []

    assert rows(provider="ollama") == []
    assert problems == [
        "No Ollama server with chat models responds at http://127.0.0.1:9; start it."
    ]


def test_all_providers_can_be_listed(rows):
    providers = {row.provider for row in rows(is_complete=True)}

    assert {"anthropic", "bedrock", "groq", "local", "openrouter", "xai"} <= providers
    assert providers <= {"local", *BUILTIN_PROVIDERS}


def test_an_unknown_provider_is_an_error(rows):
    with pytest.raises(UsageError, match="no provider 'nonsense'; use one of"):
        rows(provider="nonsense")


def test_unknown_values_are_a_dash():
    row = ModelRow(model="a/b", provider="a")

    assert [line.split() for line in format_rows([row])] == [
        ["MODEL", "CONTEXT", "INPUT", "$/M", "OUTPUT", "$/M"],
        ["a/b", UNKNOWN, UNKNOWN, UNKNOWN],
    ]


def test_a_narrow_terminal_has_shorter_columns():
    facts: dict[str, Any] = {
        "provider": "local",
        "input_price": 0,
        "output_price": 0,
        "context": 262144,
    }
    rows = [
        ModelRow(model="local/qwen3-4b-2507", size=2_497_000_000, is_downloaded=False, **facts),
        ModelRow(model="local/here", size=98_000_000, is_downloaded=True, **facts),
    ]

    wide, narrow = format_rows(rows, columns=100), format_rows(rows, columns=60)

    assert wide == format_rows(rows)
    assert "2,497 MB, not downloaded" in wide[1]
    assert [line.split() for line in narrow[1:]] == [
        ["local/qwen3-4b-2507", "262k", "0", "0", "2.5", "GB"],
        ["local/here", "262k", "0", "0", "0.1", "GB,", "downloaded"],
    ]
    assert max(map(len, narrow)) <= 60


def test_a_long_name_does_not_push_the_columns_of_other_models_off_the_terminal():
    rows = [ModelRow(model=f"a/{'b' * 90}", provider="a"), ModelRow(model="a/c", provider="a")]

    _, name, values, short = format_rows(rows, columns=80)

    assert name == f"a/{'b' * 90}"
    assert values.split() == [UNKNOWN] * 3
    assert short.startswith("a/c ")
    assert max(map(len, (values, short))) <= 80


def test_without_models_only_the_headings_are_printed():
    assert len(format_rows([], columns=60)) == 1
