"""Background responses of `cllm serve`: without their client, after a kill, on several servers."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.server_process import Client, Response, Server, StreamedResponse, expire_leases
from tests.waits import wait_until

PATH = "/v1/responses"
MODEL = "openai/gpt-test"

shared = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
"""A store that survives a server and that two servers can share."""


def background_body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": "Count.", "background": True, **fields}


def send_and_leave(server: Server, body: dict[str, Any], *, when: Callable[[], object]) -> None:
    """Send a request and close the connection without reading the response."""
    data = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(head.encode() + data)
        when()


def find_response_id(server: Client) -> str:
    """Return the ID of the only response, for a client that did not read it."""
    (listed,) = server("GET", "/v1/conversations").json["conversations"]
    detail = server("GET", f"/v1/conversations/{listed['id']}").json
    return f"resp_{listed['id']}{detail['messages'][0]['turn_id']}".replace("-", "")


def get_response(server: Client, response_id: str) -> dict[str, Any]:
    response = server("GET", f"{PATH}/{response_id}")
    assert response.status == 200, response.body
    found: dict[str, Any] = response.json
    return found


def wait_for_end(server: Client, response_id: str) -> dict[str, Any]:
    def has_ended() -> bool:
        return get_response(server, response_id)["status"] not in ("queued", "in_progress")

    assert wait_until(has_ended)
    return get_response(server, response_id)


def read_text(response: dict[str, Any]) -> str:
    items = [item for item in response["output"] if item["type"] == "message"]
    return "".join(block["text"] for item in items for block in item["content"])


def resume(server: Client, response_id: str, after: int) -> list[Any]:
    path = f"{PATH}/{response_id}?stream=true&starting_after={after}"
    events: list[Any] = server("GET", path).events
    return events


@shared
@pytest.mark.parametrize("stream", [False, True])
def test_a_background_response_does_not_need_its_client(
    serve: Callable[..., Server], provider: FakeProvider, stream: bool
):
    server = serve(server={"on_disconnect": "cancel"})
    gate = provider.queue_held_reply("One ", "two.", at=1 if stream else 0)
    send_and_leave(server, background_body(stream=stream), when=gate.wait_reached)
    response_id = find_response_id(server)
    assert get_response(server, response_id)["status"] == "in_progress"

    gate.open()

    ended = wait_for_end(server, response_id)
    assert (ended["status"], read_text(ended)) == ("completed", "One two.")
    if stream:
        whole = resume(server, response_id, -1)
        assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
        assert whole[0]["type"] == "response.created"
        assert read_text(whole[-1]["response"]) == "One two."
        assert resume(server, response_id, 3) == whole[4:]


def kill_during_background(
    serve: Callable[..., Server], provider: FakeProvider
) -> tuple[str, list[Any]]:
    """Kill a server after the first text is stored; return the response and the first events."""
    server, observer = serve(), serve()
    provider.queue_held_reply("Half of ", "an answer.", at=1)
    opened = server.open("POST", PATH, background_body(stream=True))
    events: list[Any] = []
    while not events or events[-1]["type"] != "response.output_text.delta":
        events += Response(200, {}, opened.event()).events
    opened.leave()
    response_id = events[0]["response"]["id"]
    followed = observer.open("GET", f"{PATH}/{response_id}?stream=true")
    while b"Half of " not in followed.event():
        pass
    followed.leave()
    assert get_response(observer, response_id)["status"] == "in_progress"
    server.process.send_signal(signal.SIGKILL)
    server.wait()
    return response_id, events


@shared
def test_the_background_response_of_a_killed_server_ends_with_its_text(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    response_id, events = kill_during_background(serve, provider)
    again = serve()
    if store_url.startswith("postgresql:"):
        # A database does not know that the process is dead until its lease expires.
        assert get_response(again, response_id)["status"] == "in_progress"
        asyncio.run(expire_leases(store_url))

    ended = wait_for_end(again, response_id)

    assert (ended["status"], read_text(ended)) == ("failed", "Half of ")
    assert "interrupted" in ended["error"]["message"]
    rest = resume(again, response_id, events[-1]["sequence_number"])
    assert [event["type"] for event in rest] == ["error", "response.failed"]
    assert [event["sequence_number"] for event in rest] == [len(events), len(events) + 1]
    assert read_text(rest[-1]["response"]) == "Half of "
    continued = again(
        "POST", PATH, {"model": MODEL, "input": "More.", "previous_response_id": response_id}
    )
    assert continued.status == 200, continued.body
    assert ("assistant", "Half of ") in provider.requests[-1].message_pairs


@shared
def test_a_killed_server_without_text_leaves_a_failed_response(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    server = serve()
    gate = provider.queue_held_reply("Never.", at=0)
    started = server("POST", PATH, background_body()).json
    gate.wait_reached()
    server.process.send_signal(signal.SIGKILL)
    server.wait()
    again = serve()
    if store_url.startswith("postgresql:"):
        assert get_response(again, started["id"])["status"] == "in_progress"
        asyncio.run(expire_leases(store_url))

    ended = wait_for_end(again, started["id"])

    assert (ended["status"], ended["output"]) == ("failed", [])
    items = again("GET", f"{PATH}/{started['id']}/input_items").json["data"]
    assert [item["content"][0]["text"] for item in items] == ["Count."]


def start_stream(server: Server) -> tuple[StreamedResponse, str, int]:
    """Start a background stream; return it, its response and the number of its first text."""
    opened = server.open("POST", PATH, background_body(stream=True))
    events: list[Any] = []
    while not events or events[-1]["type"] != "response.output_text.delta":
        events += Response(200, {}, opened.event()).events
    return opened, events[0]["response"]["id"], events[-1]["sequence_number"]


@shared
def test_a_background_stream_is_cancelled_by_another_server(
    serve: Callable[..., Server], provider: FakeProvider
):
    one, other = serve(), serve()
    gate = provider.queue_held_reply("Half of ", "an ", "answer.", at=1)
    opened, response_id, number = start_stream(one)
    followed = other.open("GET", f"{PATH}/{response_id}?stream=true")
    while b"Half of " not in followed.event():
        pass

    cancelled = other("POST", f"{PATH}/{response_id}/cancel")

    assert cancelled.status == 200, cancelled.body
    assert (cancelled.json["status"], read_text(cancelled.json)) == ("cancelled", "Half of ")
    rest = Response(200, {}, followed.rest()).events
    assert rest[-1]["response"]["status"] == "cancelled"
    assert get_response(one, response_id) == cancelled.json
    gate.open()
    ended = Response(200, {}, opened.rest()).events
    assert ended[-2]["error"]["code"] == "response_cancelled"
    again = other("POST", f"{PATH}/{response_id}/cancel").json
    assert again == get_response(one, response_id) == cancelled.json
    last = resume(other, response_id, number)
    assert [event["type"] for event in last] == ["error", "response.failed"]
    more = {"model": MODEL, "input": "More.", "previous_response_id": response_id}
    assert one("POST", PATH, more).status == 200
    assert ("assistant", "Half of ") in provider.requests[-1].message_pairs


@shared
def test_a_background_response_is_cancelled_by_any_worker(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve("--workers", "2")
    gate = provider.gate()
    for _ in range(4):
        provider.queue_reply("Never.", hold={0: gate})
    started = [server("POST", PATH, background_body()).json["id"] for _ in range(4)]

    cancelled = [server("POST", f"{PATH}/{response}/cancel") for response in started]

    assert [response.status for response in cancelled] == [200] * 4
    assert [response.json["status"] for response in cancelled] == ["cancelled"] * 4
    gate.open()
    for response_id in started:
        assert get_response(server, response_id)["output"] == []


@shared
def test_another_server_cancels_only_background_responses(
    serve: Callable[..., Server], provider: FakeProvider
):
    one, other = serve(), serve()
    gate = provider.queue_held_reply("One ", "two.", at=1)
    opened = one.open("POST", PATH, {"model": MODEL, "input": "Count.", "stream": True})
    opened.event()
    response_id = find_response_id(other)

    refused = other("POST", f"{PATH}/{response_id}/cancel")

    assert (refused.status, refused.error["param"]) == (400, "response_id")
    gate.open()
    assert b"One two." in opened.rest()
