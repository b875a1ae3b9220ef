"""The caller's key: used for one call and one provider, and stored nowhere."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.messages_api import (
    BEDROCK_KEY,
    COUNT,
    MODELS,
    OPERATORS_KEY,
    list_notice_codes,
    make_settings,
    post_message,
    start_server,
)
from tests.server_process import Server, read_stored_bytes

KEY = "sk-ant-of-the-caller-0123456789"
BRINGING = {"x-anthropic-api-key": KEY}
HELLO = ("user", "Hello.")
OTHERS_KEY = "key-of-another-service-01"


@pytest.fixture(scope="module")
def other() -> Iterator[FakeProvider]:
    """Another service with Anthropic's protocol."""
    with FakeProvider() as running:
        yield running


def with_fallback(upstream: FakeProvider, other: FakeProvider, fallback: str) -> dict[str, Any]:
    values = make_settings(upstream)
    values["providers"]["other"] = {
        "type": "anthropic",
        "api_base": other.root,
        "api_key": OTHERS_KEY,
        "models": ["claude-elsewhere"],
    }
    return values | {"fallbacks": [fallback]}


@pytest.mark.parametrize("stream", [False, True])
def test_a_fallback_of_another_service_does_not_receive_the_callers_key(
    upstream: FakeProvider, other: FakeProvider, tmp_path: Path, stream: bool
):
    values = with_fallback(upstream, other, "other/claude-elsewhere")
    with start_server(tmp_path, values) as server:
        upstream.queue_error(529, "Overloaded.")
        response = post_message(server, HELLO, headers=BRINGING, stream=stream)
        log = server.log

    assert response.status == 200, response.body
    assert "fallback" in list_notice_codes(response)
    assert upstream.requests[-1].headers["x-api-key"] == KEY
    assert other.requests[-1].headers["x-api-key"] == OTHERS_KEY
    assert KEY not in str(other.requests[-1].headers)
    assert KEY.encode() not in response.body
    assert KEY not in log + json.dumps(dict(response.headers))


def test_a_fallback_on_bedrock_uses_the_operators_key(
    upstream: FakeProvider, other: FakeProvider, tmp_path: Path
):
    with start_server(tmp_path, with_fallback(upstream, other, MODELS["bedrock"])) as server:
        upstream.queue_error(529, "Overloaded.")
        response = post_message(server, HELLO, headers=BRINGING)

    assert response.status == 200, response.body
    assert upstream.requests[-1].headers["authorization"] == f"Bearer {BEDROCK_KEY}"
    assert KEY not in str(upstream.requests[-1].headers)


def test_the_key_is_stored_nowhere(upstream: FakeProvider, tmp_path: Path):
    store = f"sqlite:{tmp_path / 'served.db'}"
    with start_server(tmp_path, make_settings(upstream), store=store) as server:
        headers = {**BRINGING, "X-Conversation-ID": "", "Idempotency-Key": "once"}
        first_response = post_message(server, HELLO, headers=headers, stream=True)
        upstream.queue_error(401, f"The key {KEY} is not known.")
        refused = post_message(
            server, HELLO, headers={**BRINGING, "X-Conversation-ID": first_response.conversation}
        )
        shown = server("GET", f"/v1/conversations/{first_response.conversation}?variants=true")
        log = server.log

    assert (first_response.status, refused.status) == (200, 401)
    assert KEY.encode() not in first_response.body + refused.body + shown.body
    assert KEY not in log
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    assert KEY.encode() not in read_stored_bytes(store, tmp_path)


def test_a_token_count_uses_the_callers_key_too(server: Server, upstream: FakeProvider):
    post_message(server, HELLO, path=COUNT, headers=BRINGING)
    theirs = upstream.requests[-1].headers
    post_message(server, HELLO, path=COUNT)
    ours = upstream.requests[-1].headers

    assert (theirs["x-api-key"], ours["x-api-key"]) == (KEY, OPERATORS_KEY)


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("keys"), make_settings(upstream)) as running:
        yield running
