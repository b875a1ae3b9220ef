"""`cllm serve` stops: open streams end with an event, and their text is saved.

One process and several workers behave the same.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.server_process import (
    COMPLETIONS,
    Response,
    Server,
    StreamedResponse,
    completion_body,
    list_messages,
)

DOCKER_STOP_SECONDS = 10
"""`docker stop` sends SIGTERM, and SIGKILL after this time."""
NEW = {"X-Conversation-ID": ""}
HELLO = ("user", "Hello.")
WORKERS = pytest.mark.parametrize("workers", ["1", "2"])


def docker_stop(server: Server) -> int:
    """Return the exit code; it is negative if the server had to be killed."""
    server.terminate()
    try:
        return server.wait(DOCKER_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.process.kill()
        return server.wait()


def open_stream(server: Server, provider: FakeProvider, headers: dict[str, str]) -> Any:
    provider.queue_held_reply("First ", "second.", at=1)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), headers)
    opened.event()
    return opened


def open_message_stream(server: Server, provider: FakeProvider) -> StreamedResponse:
    provider.queue_held_reply("First ", "second.", at=1)
    body = {**completion_body(HELLO, stream=True), "max_tokens": 100}
    opened = server.open("POST", "/v1/messages", body, NEW)
    while b"First" not in opened.event():
        pass
    return opened


def read_rest(opened: StreamedResponse) -> Response:
    return Response(opened.status, opened.headers, opened.rest())


def request_lines(server: Server) -> list[dict[str, Any]]:
    records = (json.loads(line) for line in server.log.splitlines() if line.startswith("{"))
    return [record for record in records if record["message"] == "request"]


@WORKERS
def test_docker_stop_ends_every_stream_with_an_event_and_saves_its_text(
    serve: Callable[..., Server], provider: FakeProvider, workers: str
):
    server = serve("--workers", workers, server={"limits": {"stop_seconds": 1}})
    saved = [open_stream(server, provider, NEW) for _ in range(6)]
    stateless = [open_stream(server, provider, {}) for _ in range(2)]
    messages = [open_message_stream(server, provider) for _ in range(2)]
    followers = [
        server.open(
            "GET",
            f"/v1/conversations/{one.headers['x-conversation-id']}"
            f"/turns/{one.headers['x-turn-id']}/events",
        )
        for one in saved[:4]
    ]
    for follower in followers:
        follower.event()
    provider.queue_held_reply("Late.", at=0)
    whole: list[Response] = []
    body = completion_body(HELLO)
    thread = threading.Thread(target=lambda: whole.append(server("POST", COMPLETIONS, body, NEW)))
    thread.start()
    provider.wait_for(len(saved) + len(stateless) + len(messages) + 1)

    code = docker_stop(server)

    assert code == 0
    for opened in (*saved, *stateless, *messages, *followers):
        assert read_rest(opened).events[-1]["error"]
    thread.join()
    assert (whole[0].status, whole[0].error["code"]) == (503, "shutting_down")
    lines = request_lines(server)
    assert [line["outcome"] for line in lines if line["method"] == "POST"] == ["shutting_down"] * 11
    again = serve("--workers", workers)
    for opened in (*saved, *messages):
        conversation = opened.headers["x-conversation-id"]
        assert list(list_messages(again, conversation)) == [HELLO, ("assistant", "First ")]
        detail = again("GET", f"/v1/conversations/{conversation}").json
        assert {message["state"] for message in detail["messages"]} == {"incomplete"}


def test_the_saved_stream_of_a_stopped_turn_ends_with_an_error(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server={"limits": {"stop_seconds": 0.1}})
    opened = open_stream(server, provider, NEW)
    conversation, turn = opened.headers["x-conversation-id"], opened.headers["x-turn-id"]
    path = f"/v1/conversations/{conversation}/turns/{turn}/events"
    follower = server.open("GET", path)
    follower.event()
    assert docker_stop(server) == 0
    for stream in (opened, follower):
        stream.rest()

    events = serve()("GET", path).events

    assert len(events) > 1
    assert events[-1]["error"]["code"] == "request_timeout"
    assert "The turn was interrupted" in events[-1]["error"]["message"]


@WORKERS
def test_a_turn_that_ends_within_the_stop_time_is_complete(
    serve: Callable[..., Server], provider: FakeProvider, workers: str, until: Callable[..., bool]
):
    server = serve("--workers", workers)
    gate = provider.queue_held_reply("First ", "second.", at=1)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True), NEW)
    opened.event()

    server.terminate()
    assert until(lambda: is_refused(server))
    gate.open()

    response = read_rest(opened)
    assert response.events[-1] == "[DONE]"
    assert server.wait() == 0
    assert [line["outcome"] for line in request_lines(server) if line["status"] == 200][-1] == "ok"


@WORKERS
def test_a_client_that_does_not_read_does_not_delay_the_stop(
    serve: Callable[..., Server], provider: FakeProvider, workers: str
):
    server = serve("--workers", workers, server={"limits": {"stop_seconds": 0.5}})
    provider.queue_reply(*["x" * 50_000] * 400)
    opened = server.open("POST", COMPLETIONS, completion_body(HELLO, stream=True))

    assert docker_stop(server) == 0
    opened.leave()
    assert "Exception in ASGI application" not in server.log
    assert [line["outcome"] for line in request_lines(server)] == ["disconnected"]


def is_refused(server: Server) -> bool:
    try:
        server("GET", "/health")
    except OSError:
        return True
    return False


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_killed_worker_is_replaced(serve: Callable[..., Server], until: Callable[..., bool]):
    server = serve("--workers", "2")
    first, second = children_of(server.process.pid)

    os.kill(first, signal.SIGKILL)

    def is_replaced() -> bool:
        children = children_of(server.process.pid)
        return first not in children and second in children and len(children) == 2

    assert until(is_replaced)
    assert server.complete(HELLO).status == 200
    server.terminate()
    assert server.wait() == 0
    assert '"worker ended"' in server.log


def test_a_stuck_worker_does_not_prevent_the_stop(serve: Callable[..., Server]):
    server = serve("--workers", "2")
    stuck, other = children_of(server.process.pid)
    os.kill(stuck, signal.SIGSTOP)

    code = docker_stop(server)

    assert code == 0
    assert not is_running(stuck)
    assert not is_running(other)
    assert '"worker killed"' in server.log


def test_workers_stop_if_their_parent_is_killed(
    serve: Callable[..., Server], until: Callable[..., bool]
):
    server = serve("--workers", "2")
    workers = children_of(server.process.pid)
    assert len(workers) == 2

    os.kill(server.process.pid, signal.SIGKILL)

    assert until(lambda: not any(map(is_running, workers)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_server_with_workers_exits_with_code_0(
    serve: Callable[..., Server], number: signal.Signals
):
    server = serve("--workers", "2")

    server.process.send_signal(number)

    assert server.wait() == 0
    assert "Traceback" not in server.log


@WORKERS
def test_a_server_whose_store_cannot_be_opened_does_not_start(
    cllm: Any, settings: Callable[..., Path], tmp_path: Path, workers: str
):
    settings()
    (tmp_path / "no.db").write_text("This is not a database." * 100, encoding="utf-8")

    result = cllm(
        "serve", "--port", "0", "--store", f"sqlite:{tmp_path}/no.db", "--workers", workers
    )

    assert result.code == 1
    assert result.err.startswith("Error: ")
    assert "no.db is not an SQLite database" in result.err
    assert "Serving at" not in result.err
    assert "Traceback" not in result.err
