"""Large and deeply nested requests to `/v1/messages`."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fake_provider import FakeProvider, Request
from tests.messages_api import MESSAGES, MODELS, SONNET, make_settings, post_message, start_server
from tests.server_process import Server

HELLO = ("user", "Hello.")
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\1" * 5_000_000).decode()
SHOWN: list[dict[str, Any]] = [
    {"type": "text", "text": "What is this?"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
]
TOOLS = [
    {"name": f"tool_{number}", "input_schema": {"type": "object", "properties": {}}}
    for number in range(5000)
]


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sizes")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


@pytest.fixture(params=list(MODELS))
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def tools_in(request: Request) -> list[str]:
    """Return the names of the tools that a provider received."""
    body = request.json
    found = body["toolConfig"]["tools"] if "toolConfig" in body else body["tools"]
    return [(tool.get("toolSpec") or tool.get("function") or tool)["name"] for tool in found]


def test_a_system_prompt_of_a_megabyte_arrives(
    server: Server, upstream: FakeProvider, provider: str
):
    prompt = "0123456789abcdef" * 65_536
    response = post_message(server, HELLO, model=MODELS[provider], system=prompt)

    assert response.status == 200, response.body
    assert prompt.encode() in upstream.requests[-1].body


def test_five_thousand_tools_arrive_in_order(server: Server, upstream: FakeProvider, provider: str):
    response = post_message(server, HELLO, model=MODELS[provider], tools=TOOLS)

    assert response.status == 200, response.body
    assert tools_in(upstream.requests[-1]) == [tool["name"] for tool in TOOLS]


def test_an_image_of_five_megabytes_is_sent_again_with_the_history(
    server: Server, upstream: FakeProvider, provider: str
):
    model = MODELS[provider]
    first_response = post_message(
        server, ("user", SHOWN), model=model, headers={"X-Conversation-ID": ""}
    )
    again = post_message(
        server,
        HELLO,
        model=model,
        headers={"X-Conversation-ID": first_response.conversation},
        stream=True,
    )

    assert (first_response.status, again.status) == (200, 200)
    assert upstream.requests[-1].body.count(PICTURE.encode()) == 1


@pytest.mark.parametrize("end", [b"]" * 100_000 + b"}", b""])
def test_json_that_is_too_deep_is_rejected(server: Server, upstream: FakeProvider, end: bytes):
    before = len(upstream.requests)
    body_start = b'{"model":"%b","max_tokens":5,"messages":[{"role":"user","content":"x"}],"deep":'
    response = server("POST", MESSAGES, body_start % SONNET.encode() + b"[" * 100_000 + end)

    assert (response.status, response.error["type"]) == (400, "invalid_request_error")
    assert "64" in response.error["message"]
    assert len(upstream.requests) == before
