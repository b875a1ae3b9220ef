"""`cllm serve` under load, when it is killed or stopped: no message is lost."""

import asyncio
import json
import resource
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest
from tests.fake_provider import WAIT, FakeProvider
from tests.server_process import (
    COMPLETIONS,
    Response,
    Server,
    StreamedResponse,
    completion_body,
    expire_leases,
    list_messages,
)

HELLO = ("user", "Hello.")
AGAIN = ("user", "Again.")
NEW = {"X-Conversation-ID": ""}
STREAMS = 200
MEGABYTE = 2**20

shared = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
"""A store that survives a server and that two servers can share."""


def start_stream(server: Server, headers: dict[str, str] | None = None) -> StreamedResponse:
    return server.open(
        "POST",
        COMPLETIONS,
        completion_body(HELLO, stream=True),
        NEW if headers is None else headers,
    )


def events_path(opened: StreamedResponse) -> str:
    headers = opened.headers
    return f"/v1/conversations/{headers['x-conversation-id']}/turns/{headers['x-turn-id']}/events"


@shared
def test_a_stream_can_be_resumed_on_another_server(
    serve: Callable[..., Server], provider: FakeProvider
):
    one, other = serve(), serve()
    gate = provider.queue_held_reply("One ", "two ", "three.", at=2)
    opened = start_stream(one)
    seen = [opened.event(), opened.event()]
    last = seen[-1].split(b"\n")[0].removeprefix(b"id: ").decode()
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(other, "GET", events_path(opened), None, {"Last-Event-ID": last})
        time.sleep(0.3)
        gate.open()
        rest = opened.rest()

        assert followed.result(WAIT).body == rest
    assert rest.endswith(b"data: [DONE]\n\n")


def kill_during_stream(serve: Callable[..., Server], provider: FakeProvider) -> StreamedResponse:
    """Kill a server during the second turn of a conversation, after its events are stored."""
    server, observer = serve(), serve()
    first = server.complete(HELLO, conversation="")
    provider.queue_held_reply("Half of ", "an answer.", at=1)
    headers = {"X-Conversation-ID": first.conversation}
    opened = server.open("POST", COMPLETIONS, completion_body(AGAIN, stream=True), headers)
    received = opened.event()
    assert b"Half of " in received
    followed = observer.open("GET", events_path(opened))
    assert followed.event() == received
    followed.leave()
    server.process.send_signal(signal.SIGKILL)
    server.wait()
    opened.leave()
    return opened


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_text_of_a_killed_server_is_saved_and_its_conversation_is_free(
    serve: Callable[..., Server], provider: FakeProvider
):
    opened = kill_during_stream(serve, provider)
    again = serve()
    conversation = opened.headers["x-conversation-id"]

    detail = again("GET", f"/v1/conversations/{conversation}").json

    assert [(each["role"], each["content"]) for each in detail["messages"]] == [
        HELLO,
        ("assistant", "echo: Hello."),
        AGAIN,
        ("assistant", "Half of "),
    ]
    assert detail["messages"][-1]["state"] == "incomplete"
    turn = f"/v1/conversations/{conversation}/turns/{opened.headers['x-turn-id']}"
    assert again("GET", turn).json["failure"]["code"] == "interrupted"
    events = again("GET", f"{turn}/events").events
    assert events[-1]["error"]["code"] == "request_timeout"
    more = again.complete(("user", "More."), conversation=conversation)
    assert more.status == 200
    assert provider.requests[-1].message_pairs == [
        HELLO,
        ("assistant", "echo: Hello."),
        AGAIN,
        ("assistant", "Half of "),
        ("user", "More."),
    ]


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_kill_during_a_stream_loses_no_message_in_a_shared_database(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    opened = kill_during_stream(serve, provider)
    again = serve()
    conversation = opened.headers["x-conversation-id"]

    running = list(list_messages(again, conversation))
    busy = again.complete(("user", "More."), conversation=conversation)
    branched = again.complete(
        ("user", "More."), conversation=conversation, headers={"X-On-Conflict": "branch"}
    )
    asyncio.run(expire_leases(store_url))
    settled = list(list_messages(again, conversation))

    assert running == [HELLO, ("assistant", "echo: Hello."), AGAIN]
    assert busy.status == 409
    assert busy.headers["x-turn-id"] == opened.headers["x-turn-id"]
    assert branched.status == 200
    assert provider.requests[-1].message_pairs == [
        HELLO,
        ("assistant", "echo: Hello."),
        ("user", "More."),
    ]
    assert settled == [*running, ("assistant", "Half of ")]


@shared
def test_a_stop_of_several_processes_saves_their_turns(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve("--workers", "2")
    gate = provider.gate()
    for _ in range(4):
        provider.queue_reply("First ", "second.", hold={1: gate})
    opened = [start_stream(server) for _ in range(4)]
    for stream in opened:
        stream.event()

    server.terminate()
    time.sleep(0.5)
    gate.open()
    responses = [Response(stream.status, stream.headers, stream.rest()) for stream in opened]

    assert [response.events[-1] for response in responses] == ["[DONE]"] * 4
    assert server.wait() == 0
    again = serve()
    for response in responses:
        expected_messages = [HELLO, ("assistant", "First second.")]
        assert list(list_messages(again, response.conversation)) == expected_messages


@shared
def test_a_running_request_with_a_key_is_not_repeated_by_another_server(
    serve: Callable[..., Server], provider: FakeProvider
):
    one, other = serve(), serve()
    key = {**NEW, "Idempotency-Key": "once"}
    gate = provider.queue_held_reply("One.", at=0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one, "POST", COMPLETIONS, completion_body(HELLO), key)
        gate.wait_reached()
        second = other("POST", COMPLETIONS, completion_body(HELLO), key)
        gate.open()
        answered = first.result(WAIT)

    assert second.status == 409
    assert second.error["code"] == "idempotency_conflict"
    later = other("POST", COMPLETIONS, completion_body(HELLO), key)
    assert (later.body, later.conversation) == (answered.body, answered.conversation)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_no_database_connection_is_used_while_a_provider_replies(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    server, gate = serve(), provider.gate()
    for _ in range(STREAMS):
        provider.queue_reply("First ", "second.", hold={1: gate})
    with ThreadPoolExecutor(STREAMS) as pool:
        opened = list(pool.map(lambda _: start_stream(server), range(STREAMS)))
        for stream in opened:
            assert b"First" in stream.event() + stream.event()

        assert asyncio.run(check_connections(store_url)) == (True, 0)
        assert server("GET", "/v1/conversations").json["total"] == STREAMS
        gate.open()
        responses = list(pool.map(lambda stream: stream.rest(), opened))

    assert all(response.endswith(b"data: [DONE]\n\n") for response in responses)


async def check_connections(url: str) -> tuple[bool, int]:
    """Check that the server has at most five connections; return how many are in a transaction."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT state FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
    return len(rows) <= 5, sum(row["state"] != "idle" for row in rows)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("headers", [{}, NEW], ids=["stateless", "kept"])
def test_slow_clients_do_not_fill_the_memory(
    serve: Callable[..., Server],
    provider: FakeProvider,
    headers: dict[str, str],
):
    """A stateless stream waits; for a saved one the server has a few copies of the reply."""
    server, clients, piece = serve(), 40, "x" * 65536
    server.complete(HELLO)
    before = read_memory(server)
    for _ in range(clients):
        provider.queue_reply(*[piece] * 64)
    opened = [send_without_reading(server, headers) for _ in range(clients)]
    highest = 0.0
    for _ in range(30):
        for connection in opened:
            connection.recv(1)
        highest = max(highest, read_memory(server) - before)
        time.sleep(0.1)
    for connection in opened:
        connection.close()

    most = 16 if headers else 4
    assert highest / clients < most, f"{highest / clients:.2f} MB for each client"
    assert server("GET", "/health").status == 200


def send_without_reading(server: Server, headers: dict[str, str]) -> socket.socket:
    """Return a connection with a response that is larger than its buffers."""
    connection = socket.socket()
    connection.settimeout(WAIT)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((server.host, server.port))
    body = json.dumps(completion_body(HELLO, stream=True)).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request_head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\n{head}"
    connection.sendall(f"{request_head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def read_memory(server: Server) -> float:
    """Return resident megabytes."""
    pages = Path(f"/proc/{server.process.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize() / MEGABYTE
