"""`cllm serve`: streams, and the saved turn when client, provider or server disconnects."""

import http.client
import json
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.server_process import COMPLETIONS, Response, Server, completion_body, list_messages

HELLO = ("user", "Hello.")
ECHO = ("assistant", "echo: Hello.")
NEW = {"X-Conversation-ID": ""}


def states(server: Server, conversation: str) -> list[str]:
    """Return the state of each message's turn."""
    shown = server("GET", f"/v1/conversations/{conversation}?variants=true").json
    return [message["state"] for message in shown["messages"]]


def test_a_stream_has_id_headers_and_ends_with_done(server: Server):
    response = server.complete(HELLO, conversation="", stream=True)

    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-turn-id"]
    assert response.events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert response.streamed_text == "echo: Hello."
    assert response.events[-2]["choices"][0]["finish_reason"] == "stop"
    assert response.events[-1] == "[DONE]"


def test_a_stateless_stream_has_no_ids(server: Server):
    response = server.complete(HELLO, stream=True)

    assert response.streamed_text == "echo: Hello."
    assert "x-conversation-id" not in response.headers
    assert b"\nid:" not in response.body


def test_a_stream_has_usage_only_on_request(server: Server, upstream: FakeProvider):
    silent = server.complete(HELLO, stream=True)
    with_usage = server.complete(HELLO, stream=True, stream_options={"include_usage": True})

    assert all("usage" not in event for event in silent.events[:-1])
    assert with_usage.events[-2]["usage"]["total_tokens"] == 18


def test_messages_can_be_read_when_the_stream_ends(server: Server):
    for _ in range(5):
        opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)
        while b"[DONE]" not in opened.event():
            pass
        conversation = opened.headers["x-conversation-id"]
        assert list(list_messages(server, conversation)) == [HELLO, ECHO]
        opened.leave()


def test_an_error_before_the_first_byte_is_a_response_with_its_status(
    server: Server, upstream: FakeProvider
):
    upstream.queue_error(429, "Slow down.", code="rate_limit_exceeded", retry_after="7")

    response = server.complete(HELLO, conversation="", stream=True)

    assert response.status == 429
    assert response.headers["retry-after"] == "7"
    assert response.headers["content-type"].startswith("application/json")


def test_an_error_after_the_first_byte_is_the_last_event(server: Server, upstream: FakeProvider):
    upstream.queue_reply("It ", "was", stop_after=1, error=("server_error", "Out of cheese."))

    response = server.complete(HELLO, conversation="", stream=True)

    assert response.status == 200
    assert "error" in response.events[-1]
    assert "[DONE]" not in response.events
    assert not any(
        choice["finish_reason"] for event in response.events[:-1] for choice in event["choices"]
    )
    assert set(states(server, response.conversation)) == {"failed"}


def test_a_broken_stream_is_never_saved_as_complete(server: Server, upstream: FakeProvider):
    upstream.queue_reply("Half ", "an answer", stop_after=1)

    response = server.complete(HELLO, stream=True)

    assert "error" in response.events[-1]
    assert "[DONE]" not in response.events


def test_the_reply_is_saved_despite_a_disconnect(
    server: Server, upstream: FakeProvider, until: Callable[..., bool]
):
    gate = upstream.queue_held_reply("First ", "second.", at=1)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)
    conversation = opened.headers["x-conversation-id"]
    opened.event()

    opened.leave()
    time.sleep(0.3)
    gate.open()

    expected_messages = [HELLO, ("assistant", "First second.")]
    assert until(lambda: list(list_messages(server, conversation)) == expected_messages)
    assert states(server, conversation) == ["complete", "complete"]
    shown = server("GET", f"/v1/conversations/{conversation}").json
    assert shown["messages"][-1]["usage"] is not None


def test_a_reply_without_stream_is_saved_despite_a_disconnect(
    server: Server, upstream: FakeProvider, until: Callable[..., bool]
):
    first_response = server.complete(HELLO, conversation="")
    gate = upstream.queue_held_reply("Late.", at=0)
    count = len(upstream.requests)
    threading.Thread(
        target=lambda: _swallow(
            lambda: server(
                "POST",
                COMPLETIONS,
                completion_body(("user", "Go on.")),
                {"X-Conversation-ID": first_response.conversation},
                timeout=0.5,
            )
        )
    ).start()
    upstream.wait_for(count + 1)
    time.sleep(0.8)
    gate.open()

    def kept() -> bool:
        return list(list_messages(server, first_response.conversation))[-1] == (
            "assistant",
            "Late.",
        )

    assert until(kept)


def _swallow(work: Callable[[], Any]) -> None:
    with pytest.raises(OSError, match="timed out"):
        work()


def test_with_on_disconnect_cancel_the_partial_reply_is_saved(
    serve: Callable[..., Server], provider: FakeProvider, until: Callable[..., bool]
):
    server = serve(server={"on_disconnect": "cancel"})
    provider.queue_held_reply("First ", "second.", at=1)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)
    conversation = opened.headers["x-conversation-id"]
    opened.event()

    opened.leave()

    provider.requests[-1].wait_disconnected()
    assert until(lambda: states(server, conversation) == ["incomplete", "incomplete"])
    assert list(list_messages(server, conversation)) == [HELLO, ("assistant", "First ")]


def test_a_disconnect_ends_a_stateless_call(server: Server, upstream: FakeProvider):
    upstream.queue_held_reply("First ", "second.", at=1)
    count = len(upstream.requests)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True))
    opened.event()

    opened.leave()

    upstream.wait_for(count + 1).wait_disconnected()


def test_the_usage_of_a_stateless_stream_is_counted_although_its_client_leaves(
    serve: Callable[..., Server], provider: FakeProvider, until: Callable[..., bool]
):
    server = serve()
    provider.queue_held_reply("First ", "second.", at=1)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True))
    opened.event()

    opened.leave()

    def total() -> dict[str, Any]:
        found: dict[str, Any] = server("GET", "/v1/usage?by=model").json["total"]
        return found

    assert until(lambda: total()["calls"] == 1)
    assert total()["input_tokens"] > 0
    assert total()["output_tokens"] > 0


def test_a_disconnect_ends_a_stateless_call_without_stream(server: Server, upstream: FakeProvider):
    upstream.queue_held_reply("Late.", at=0)
    count = len(upstream.requests)

    with pytest.raises(OSError, match="timed out"):
        server("POST", COMPLETIONS, completion_body(HELLO), timeout=0.5)

    upstream.wait_for(count + 1).wait_disconnected()


@pytest.mark.parametrize("headers", [{}, NEW])
def test_a_disconnect_before_the_first_event_of_a_stream_ends_the_call(
    serve: Callable[..., Server], provider: FakeProvider, headers: dict[str, str]
):
    server = serve(server={"on_disconnect": "cancel", "silence_seconds": 3600})
    provider.queue_held_reply("Late.", at=0)
    body = json.dumps(completion_body(HELLO, stream=True))
    connection = http.client.HTTPConnection(server.host, server.port)
    connection.request("POST", COMPLETIONS, body, headers)
    request = provider.wait_for(1)

    connection.close()

    request.wait_disconnected()


def test_a_silent_stream_sends_comments(serve: Callable[..., Server], provider: FakeProvider):
    server = serve(server={"silence_seconds": 0.1})
    gate = provider.queue_held_reply("Late.", at=0)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)

    assert opened.event().startswith(b":")
    assert opened.event().startswith(b":")
    gate.open()

    response = Response(opened.status, opened.headers, opened.rest())
    assert response.streamed_text == "Late."
    assert response.events[-1] == "[DONE]"


def test_an_error_after_a_keep_alive_comment_is_an_event(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server={"silence_seconds": 0.1})
    gate = provider.queue_held_reply("Never", stop_after=0, at=0)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True))
    opened.event()
    gate.open()

    response = Response(opened.status, opened.headers, opened.rest())
    assert "error" in response.events[-1]
    assert "[DONE]" not in response.events


@pytest.mark.parametrize("on_disconnect", ["complete", "cancel"])
def test_a_slow_reader_does_not_delay_the_turn_and_gets_an_error(
    serve: Callable[..., Server],
    provider: FakeProvider,
    until: Callable[..., bool],
    on_disconnect: str,
):
    server = serve(server={"on_disconnect": on_disconnect})
    piece = "x" * 50_000
    provider.queue_reply(*[piece] * 400)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)
    conversation = opened.headers["x-conversation-id"]

    assert until(lambda: states(server, conversation) == ["complete", "complete"])

    response = Response(opened.status, opened.headers, opened.rest())
    assert response.events[-1]["error"]["code"] == "stream_not_read"
    assert response.headers["x-turn-id"] in response.events[-1]["error"]["message"]
    assert list(list_messages(server, conversation))[-1] == ("assistant", piece * 400)


def test_a_slow_reader_of_a_stateless_stream_receives_everything(
    server: Server, upstream: FakeProvider
):
    piece = "x" * 50_000
    upstream.queue_reply(*[piece] * 400)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True))
    time.sleep(1)

    response = Response(opened.status, opened.headers, opened.rest())

    assert response.streamed_text == piece * 400
    assert response.events[-1] == "[DONE]"


def test_a_stream_can_be_resumed(server: Server, upstream: FakeProvider):
    upstream.queue_reply("One ", "two ", "three.")
    whole = server.complete(HELLO, conversation="", stream=True)
    path = f"/v1/conversations/{whole.conversation}/turns/{whole.headers['x-turn-id']}/events"

    again = server("GET", path, headers={"Last-Event-ID": "1"})

    first, _, rest = whole.body.partition(b"\n\n")
    assert first.startswith(b"id: 1\n")
    assert again.body == rest


def test_a_stopping_server_waits_for_a_turn(serve: Callable[..., Server], provider: FakeProvider):
    server = serve()
    gate = provider.queue_held_reply("First ", "second.", at=1)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)
    opened.event()

    server.terminate()
    time.sleep(0.5)
    gate.open()

    response = Response(opened.status, opened.headers, opened.rest())
    assert response.events[-1] == "[DONE]"
    assert server.wait() == 0


def test_a_stopping_server_cancels_a_long_turn(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server={"limits": {"stop_seconds": 0.5}})
    provider.queue_held_reply("First ", "second.", at=1)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)
    opened.event()

    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)

    response = Response(opened.status, opened.headers, opened.rest())
    assert response.events[-1]["error"]["code"] == "shutting_down"
    assert server.wait() == 0
    assert time.monotonic() - began < 5


def test_json_in_the_header_of_notices_is_ascii(server: Server):
    first_response = server.complete(HELLO, conversation="")

    response = server.complete(
        ("system", "S"),
        ("system", "ü"),
        HELLO,
        conversation=first_response.conversation,
        stream=True,
    )

    assert json.loads(response.headers["x-cllm-notice"])[0]["path"] == "messages[1]"
