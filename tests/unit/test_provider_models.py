"""The model lists of providers and their cache."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider, Head, Send, Silence, closed_port, response_steps

from cllm.provider_factory import ProviderFactory
from cllm.provider_models import (
    MAX_MODELS,
    MAX_RESPONSE_BYTES,
    ModelListReader,
    ProviderModels,
)
from cllm.providers.cached_models import FOLDER, MAX_FILE_BYTES, MAX_FILES
from cllm.settings.load import CommandLine, Environment, load_settings

NOW = datetime(2026, 11, 1, tzinfo=UTC)
KEY = "sk-secret-0123456789"


@pytest.fixture
def provider():
    with FakeProvider() as running:
        yield running


@pytest.fixture
def read(tmp_path: Path, provider: FakeProvider):
    def read(rows: dict[str, Any] | None = None, *names: str, now=NOW, **options) -> ProviderModels:
        rows = rows or {"mine": {"api_base": provider.url, "api_key": KEY}}
        folder = tmp_path / ".cllm"
        folder.mkdir(exist_ok=True)
        (folder / "Cllmfile.yml").write_text(json.dumps({"providers": rows}), encoding="utf-8")
        env = Environment(home=tmp_path, directory=tmp_path / "work", environment={})
        factory = ProviderFactory(
            load_settings(env, CommandLine()),
            model=lambda: "mine/a",
            report=None,
            single_turn=True,
        )
        reader = ModelListReader(factory, tmp_path / "cache", now=now, **options)
        lists = reader.read(names or rows)
        return next(iter(lists.values()))

    return read


def names(listed: ProviderModels) -> list[str] | None:
    return None if listed.models is None else [model.name for model in listed.models]


def test_the_list_is_requested_with_the_key_and_the_headers(read, provider):
    provider.serve_models("b", {"id": "a", "context_length": 100})
    row = {"api_base": f"{provider.url}/", "api_key": KEY, "extra_headers": {"X-Team": "cats"}}

    listed = read({"mine": row})

    request = provider.requests[0]
    assert (request.method, request.path, request.body) == ("GET", "/v1/models", b"")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "cats"
    assert listed.models is not None
    assert [(model.name, model.context) for model in listed.models] == [("a", 100), ("b", None)]


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
def test_anthropic_is_requested_with_its_headers(read, provider, path):
    provider.serve_models("claude-x")
    row = {"type": "anthropic", "api_base": f"{provider.root}{path}", "api_key": KEY}

    assert names(read({"mine": row})) == ["claude-x"]
    request = provider.requests[0]
    assert request.path == "/v1/models?limit=1000"
    assert (request.headers["x-api-key"], "authorization" in request.headers) == (KEY, False)


def test_a_list_is_cached_for_a_day(read, provider):
    provider.serve_models("a")
    assert names(read()) == ["a"]
    provider.serve_models("b")

    assert names(read(now=NOW + timedelta(hours=23))) == ["a"]
    assert names(read(now=NOW - timedelta(hours=1))) == ["b"], "a time in the future is not valid"
    assert names(read(now=NOW + timedelta(days=1))) == ["b"]
    assert len(provider.requests) == 3


def test_a_refresh_replaces_the_cached_list(read, provider):
    provider.serve_models("a")
    read()
    provider.serve_models("b")

    assert names(read(is_refresh=True)) == ["b"]
    assert names(read()) == ["b"]


def test_a_failed_refresh_leaves_the_cached_list(read, provider):
    provider.serve_models("a")
    read()
    provider.model_list = response_steps(500, b"{}")

    assert "returned HTTP 500" in str(read(is_refresh=True).problem)
    assert names(read()) == ["a"]


def test_each_provider_and_address_has_its_own_cached_list(read, provider):
    provider.serve_models("a")
    rows = {name: {"api_base": provider.url} for name in ("one", "two")}
    read(rows)
    read({"one": {"api_base": f"{provider.root}/other"}})

    assert len(provider.requests) == 3


def test_the_cache_is_private_and_contains_neither_key_nor_address(read, provider, tmp_path):
    provider.serve_models("a")
    address = provider.url.replace("//", "//user:password@")
    read({"mine": {"api_base": address, "api_key": KEY}})
    read()

    files = list((tmp_path / "cache" / FOLDER).iterdir())
    assert len(files) in (1, 2)
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        assert not any(text in file.read_text() for text in (KEY, "password", "127.0.0.1"))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[]", b'{"saved_at": "2026-11-01T00:00:00", "models": [["x"]]}']
)
def test_a_damaged_cache_file_is_ignored(read, provider, tmp_path, data):
    provider.serve_models("a")
    read()
    for file in (tmp_path / "cache" / FOLDER).iterdir():
        file.write_bytes(data)

    assert names(read()) == ["a"]


def test_the_cache_is_bounded(read, provider, tmp_path):
    provider.serve_models("a")
    read({f"p{number}": {"api_base": provider.url} for number in range(MAX_FILES + 5)})
    assert len(list((tmp_path / "cache" / FOLDER).iterdir())) == MAX_FILES

    provider.serve_models(*(f"{number}-{'x' * 200}" for number in range(MAX_FILE_BYTES // 200)))
    read(is_refresh=True)
    sizes = [file.stat().st_size for file in (tmp_path / "cache" / FOLDER).iterdir()]
    assert max(sizes) <= MAX_FILE_BYTES


def test_an_unwritable_cache_is_no_error(read, provider, tmp_path):
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    provider.serve_models("a")

    assert names(read()) == ["a"]


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (response_steps(401, b"{}"), "HTTP 401 instead of its list of models; check its API key."),
        (response_steps(404, b"{}"), "HTTP 404 instead of its list of models; check api_base."),
        (response_steps(200, b"<html>"), "sent no list of models; check api_base."),
        (
            response_steps(302, b"", Location="http://127.0.0.1:9/elsewhere"),
            "HTTP 302 instead of its list",
        ),
        ((Head(headers={"Content-Length": "10"}), Send(b"{"), Silence()), "in 0.2 s."),
        ((Silence(),), "in 0.2 s."),
        (response_steps(200, bytes(MAX_RESPONSE_BYTES + 1)), "more than 4194304 bytes"),
        (
            response_steps(
                200,
                gzip.compress(bytes(4 * MAX_RESPONSE_BYTES)),
                **{"Content-Encoding": "gzip"},
            ),
            "more than 4194304 bytes",
        ),
        ((Send(b"not HTTP\r\n\r\n"),), "did not send valid HTTP"),
    ],
)
def test_a_failure_is_a_problem_without_the_key(read, provider, steps, problem):
    provider.model_list = steps
    seconds = 0.2 if "0.2" in problem else 30

    listed = read(seconds=seconds)

    assert listed.models is None
    assert problem in str(listed.problem)
    assert KEY not in str(listed.problem)
    assert len(provider.requests) == 1


def test_many_models_are_cut_with_a_problem(read, provider):
    provider.serve_models(*(f"m{number:05}" for number in range(10_000)))

    listed = read()

    assert listed.models is not None
    assert len(listed.models) == MAX_MODELS
    assert listed.problem == "Provider 'mine' has 10,000 models; 2,000 are listed."


def test_an_empty_list_is_a_problem_and_not_cached(read, provider):
    provider.serve_models()
    empty = read()
    provider.serve_models("a")

    assert empty == ProviderModels(models=(), problem="Provider 'mine' lists no models.")
    assert names(read()) == ["a"]


def test_an_unreachable_provider_is_a_problem(read):
    port = closed_port()

    listed = read({"mine": {"api_base": f"http://127.0.0.1:{port}/v1"}})

    assert "Cannot reach provider 'mine'" in str(listed.problem)


@pytest.mark.parametrize("name", ["openai", "bedrock", "litellm"])
def test_a_provider_without_a_key_or_a_list_is_not_called(read, name):
    assert read({name: {"timeout": 5}}) == ProviderModels()


def test_wrong_settings_are_a_problem(read):
    assert "must start with http" in str(read({"mine": {"api_base": "gpu:8000"}}).problem)
