"""`cllm models list` with the models that the providers list themselves."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import Head, Hold, Send, Silence, closed_port, response_steps

KEY = "sk-secret-0123456789"


@pytest.fixture
def rows(provider, settings):
    """Settings with two providers, whose server is the fake one."""
    settings(
        api_base=...,
        api_key=...,
        providers={
            "openai": {"api_base": provider.url, "api_key": KEY},
            "claude": {"type": "anthropic", "api_base": provider.root, "api_key": KEY},
        },
    )


def list_models(cllm, *arguments: str) -> list[dict[str, Any]]:
    result = cllm("models", "list", "--json", *arguments).succeeded()
    assert result.err == ""
    return [row for row in json.loads(result.out) if row["provider"] != "local"]


def find_cache_files(home) -> list[Path]:
    return sorted((home.cache / "cllm/model-lists").iterdir())


@pytest.mark.usefixtures("rows")
def test_the_models_of_all_providers_are_read_once_a_day(home, provider, cllm, mode):
    provider.serve_models("gpt-new", {"id": "gpt-wide", "context_window": 9000})

    first = list_models(cllm)
    provider.serve_models("gpt-later")
    second = list_models(cllm)
    refreshed = list_models(cllm, "--refresh")

    names = ["claude/gpt-new", "claude/gpt-wide", "openai/gpt-new", "openai/gpt-wide"]
    assert [row["model"] for row in first] == names
    assert [row["context"] for row in first] == [None, 9000] * 2
    assert second == first
    assert [row["model"] for row in refreshed] == ["claude/gpt-later", "openai/gpt-later"]
    assert [request.method for request in provider.requests] == ["GET"] * 4
    assert [mode(file) for file in find_cache_files(home)] == [0o600] * 2
    assert mode(find_cache_files(home)[0].parent) == 0o700
    assert not any(KEY in file.read_text() for file in find_cache_files(home))


@pytest.mark.usefixtures("rows")
def test_the_requests_run_in_parallel(provider, cllm):
    gate = provider.gate()
    provider.model_list = (Hold(gate), *response_steps(200, b'[{"id": "a"}]'))
    running = cllm.start("models", "list")

    provider.wait_for(2)
    gate.open()

    assert "openai/a" in running.finish().succeeded().out


def test_an_unreachable_provider_is_one_notice_and_no_error(provider, settings, cllm):
    gone = {"api_base": f"http://127.0.0.1:{closed_port()}/v1", "models": ["mine"]}
    settings(providers={"gone": gone})
    provider.serve_models("gpt-a")

    result = cllm("models", "list").succeeded()

    assert result.err.startswith("Cannot reach provider 'gone' at http://127.0.0.1:")
    assert result.err.count("\n") == 1
    models = [line.split()[0] for line in result.out.splitlines()]
    assert models[-2:] == ["gone/mine", "openai/gpt-a"]


@pytest.mark.usefixtures("rows")
def test_one_provider_can_be_listed(provider, cllm):
    provider.serve_models("a")

    assert [row["model"] for row in list_models(cllm, "--provider", "claude")] == ["claude/a"]
    assert len(provider.requests) == 1


@pytest.mark.usefixtures("rows")
def test_the_old_flag_and_the_list_use_the_same_cache(provider, cllm):
    provider.serve_models("a")

    assert cllm("--list-models").succeeded().out == cllm("models", "list").succeeded().out
    assert len(provider.requests) == 2


HOSTILE = {
    "control characters": response_steps(
        200, json.dumps({"data": [{"id": "\x1b]0;x\x07"}, {"id": "ok"}]}).encode()
    ),
    "wrong types": response_steps(200, b'{"data": [1, null, "x", {"id": 5}, {"id": "ok"}]}'),
    "not JSON": response_steps(200, b"\x00\xff" * 1000),
    "too large": response_steps(200, b'[{"id": "' + b"x" * 5_000_000 + b'"}]'),
    "endless": (Head(chunked=True), Send(b"[" * 1000), Silence()),
    "redirect": response_steps(307, b"", Location="http://127.0.0.1:9/v1/models"),
    "deep": response_steps(200, b"[" * 500_000),
    "many": response_steps(200, json.dumps([{"id": f"m{n}"} for n in range(10_000)]).encode()),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_list_is_at_most_one_notice(provider, settings, cllm, kind):
    settings(providers={})
    provider.model_list = HOSTILE[kind]

    result = cllm("models", "list", "--provider", "openai").succeeded()

    assert result.err.count("\n") <= 1
    assert "\x1b" not in result.out + result.err
    is_usable = kind in ("control characters", "wrong types", "many")
    assert (result.err == "") == (is_usable and kind != "many")
    assert ("openai/" in result.out) == is_usable
    assert len(provider.requests) == 1


def test_a_key_in_the_environment_is_sent_only_to_its_provider(provider, settings, cllm):
    settings(api_key=..., providers={"mine": {"api_base": provider.url}})
    provider.serve_models("a")

    cllm("models", "list", "--provider", "mine", env={"OPENAI_API_KEY": KEY}).succeeded()

    assert "authorization" not in provider.requests[0].headers


def test_a_provider_without_known_models_is_one_notice(settings, cllm):
    settings()

    result = cllm("models", "list", "--provider", "nvidia").succeeded()

    assert result.out == ""
    assert result.err.startswith(
        "No model of 'nvidia' is known; save its key (cllm keys set nvidia)"
    )
    assert json.loads(cllm("models", "list", "--provider", "nvidia", "--json").out) == []


def test_a_narrow_terminal_has_lines_that_fit(settings, provider, cllm):
    settings()
    provider.serve_models("gpt-a", {"id": "gpt-b", "context_length": 400})

    result = cllm.on_terminal("models", "list", env={"COLUMNS": "60"})

    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.split()[:2] == ["openai/gpt-b", "400"] for line in lines)
