"""The same request with and without `stream`, in any order."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider, Request
from tests.messages_api import MESSAGES, MODELS, make_settings, start_server
from tests.server_process import COMPLETIONS, Response, Server

LONG = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 20
STREAM_FIELDS = ("stream", "stream_options")


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("whole"), make_settings(upstream)) as running:
        yield running


@pytest.fixture(scope="module")
def aliased(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the alias `fast-NAME` for the model of each provider."""
    settings = make_settings(upstream)
    settings["aliases"] = {f"fast-{name}": model for name, model in MODELS.items()}
    with start_server(tmp_path_factory.mktemp("aliased"), settings) as running:
        yield running


def streamed_models(response: Response) -> set[str]:
    """Return the names of the model in a stream in either protocol."""
    objects = [event for event in response.events if isinstance(event, dict)]
    heads = [event.get("message", event) for event in objects]
    return {head["model"] for head in heads if "model" in head}


def make_body(model: str, name: str) -> dict[str, Any]:
    """Return a request with a history that is long enough for every cache."""
    history = [
        ("user", f"{name}: {LONG}"),
        ("assistant", LONG),
        ("user", LONG),
        ("assistant", LONG),
        ("user", f"What did I say in {name}?"),
    ]
    messages = [{"role": role, "content": content} for role, content in history]
    return {"model": model, "max_tokens": 100, "messages": messages}


def streamed_text(response: Response) -> str:
    """Return the text of a stream in either protocol."""
    if b"event: " not in response.body:
        return response.streamed_text
    deltas = [event["delta"] for event in response.events if event["type"] == "content_block_delta"]
    return "".join(delta.get("text", "") for delta in deltas)


def whole_text(response: Response) -> str:
    if "choices" in response.json:
        return response.text
    return "".join(block["text"] for block in response.json["content"])


def is_stream(request: Request) -> bool:
    return bool(request.json.get("stream")) or request.path.endswith("-stream")


def remove_stream_flag(request: Request) -> dict[str, Any]:
    return {name: value for name, value in request.json.items() if name not in STREAM_FIELDS}


@pytest.mark.parametrize("streams", [(False, True, False, True), (True, False, True, False)])
@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("path", [COMPLETIONS, MESSAGES])
def test_requests_with_and_without_stream_do_not_affect_each_other(
    server: Server,
    upstream: FakeProvider,
    path: str,
    provider: str,
    streams: tuple[bool, ...],
):
    name = f"{path} {provider} {streams}"
    body = make_body(MODELS[provider], name)
    sent: list[Request] = []
    for stream in streams:
        response = server("POST", path, {**body, "stream": stream})
        sent.append(upstream.requests[-1])

        assert response.status == 200, response.body
        assert is_stream(sent[-1]) == stream
        assert response.headers["content-type"].startswith(
            "text/event-stream" if stream else "application/json"
        )
        text = streamed_text(response) if stream else whole_text(response)
        assert text == f"echo: What did I say in {name}?"

    assert len({json.dumps(remove_stream_flag(request)) for request in sent}) == 1
    by_kind = {
        stream: {request.body for request in sent if is_stream(request) == stream}
        for stream in (False, True)
    }
    assert [len(bodies) for bodies in by_kind.values()] == [1, 1]


@pytest.mark.parametrize("conversation", [None, ""])
@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("path", [COMPLETIONS, MESSAGES])
def test_a_stream_and_a_whole_response_name_the_same_model(
    aliased: Server, path: str, provider: str, conversation: str | None
):
    headers = {} if conversation is None else {"X-Conversation-ID": conversation}
    message = {"role": "user", "content": "Hello."}
    body = {"model": f"fast-{provider}", "max_tokens": 100, "messages": [message]}

    whole = aliased("POST", path, body, headers)
    stream = aliased("POST", path, {**body, "stream": True}, headers)

    assert (whole.status, stream.status) == (200, 200), (whole.body, stream.body)
    assert streamed_models(stream) == {whole.json["model"]}


def test_a_stream_names_the_fallback_that_replies(upstream: FakeProvider, tmp_path: Path):
    settings = make_settings(upstream) | {"num_retries": 0, "fallbacks": [MODELS["anthropic"]]}
    body = {"model": MODELS["openai"], "messages": [{"role": "user", "content": "Hi"}]}
    with start_server(tmp_path, settings) as server:
        upstream.queue_error(500)
        response = server("POST", COMPLETIONS, {**body, "stream": True})

    assert streamed_models(response) == {MODELS["anthropic"].partition("/")[2]}
