"""`cllm serve` exports conversations that are larger than its memory limit."""

import asyncio
import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.server_process import Server

from cllm.core.ports import NewConversation
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_harness import OPENING, answered, say, start

MEGABYTE = 1024 * 1024
TURNS = 130
TEXT = "All work and no play makes Jack a dull boy. " * 4800
"""A fifth of a megabyte; each turn has it twice."""
LONG = "0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11"
PATH = f"/v1/conversations/{LONG}"
ALLOWED = 16 * MEGABYTE
BRANCHED = 100
"""Messages: more than fits in the buffers of a connection."""


async def fill(path: Path) -> None:
    store = SqliteStore(path, clock=lambda: datetime.now(UTC), synchronous="NORMAL")
    for number in range(TURNS):
        begun = start(f"t{number}", f"{number}: {TEXT}")
        lease = await store.begin_turn(LONG, begun, create=NewConversation(id=LONG), tail=0)
        await store.finish_turn(lease, answered(lease, TEXT), opening=OPENING)
    await say(store, "short", "t1")
    await store.close()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one conversation of fifty megabytes, and a short one."""
    path = tmp_path_factory.mktemp("export") / "long.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def server(database: Path, home: Any, settings: Callable[..., Path]) -> Iterator[Server]:
    settings()
    with Server(
        environment=home.environment, directory=home.work, store=f"sqlite:{database}"
    ) as running:
        yield running


def status(server: Server, field: str) -> int:
    """Return a value of /proc/PID/status in bytes."""
    status_text = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{field}:\s+(\d+) kB$", status_text, re.MULTILINE)
    assert found is not None, status_text
    return int(found[1]) * 1024


def reset_peak(server: Server) -> None:
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5", encoding="utf-8")


@pytest.mark.parametrize("form", ["json", "markdown", "html"])
def test_fifty_megabytes_are_exported_with_little_memory(server: Server, form: str):
    assert server("GET", f"/v1/conversations/short/export?format={form}").status == 200
    reset_peak(server)
    before = status(server, "VmRSS")
    opened = server.open("GET", f"{PATH}/export?format={form}", timeout=120)
    assert opened.status == 200
    size, count, tail = 0, 0, b""
    while data := opened.response.read(MEGABYTE):
        size += len(data)
        count += (tail + data).count(b"a dull boy") - tail.count(b"a dull boy")
        tail = data[-9:]
    opened.leave()
    assert size > 50 * MEGABYTE
    assert count >= 2 * TURNS * TEXT.count("a dull boy")
    assert status(server, "VmHWM") - before < ALLOWED


def test_a_long_export_is_streamed_and_a_short_one_has_a_content_length(server: Server):
    exported = server("GET", f"{PATH}/export", timeout=120)
    assert "content-length" not in exported.headers
    document = exported.json
    assert len(document["messages"]) == 2 * TURNS + 1
    assert len(document["metadata"]["cllm"]["turns"]) == TURNS
    short = server("GET", "/v1/conversations/short/export")
    assert int(short.headers["content-length"]) == len(short.body)
    assert short.json["messages"][1]["content"] == "Hello"


def test_an_http_1_0_client_gets_a_long_export_whole(server: Server):
    whole = server("GET", f"{PATH}/export", timeout=120).body
    with socket.create_connection((server.host, server.port), timeout=120) as client:
        client.sendall(
            f"GET {PATH}/export HTTP/1.0\r\nHost: {server.host}:{server.port}\r\n\r\n".encode()
        )
        received = b"".join(iter(lambda: client.recv(MEGABYTE), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert f"content-length: {len(whole)}".encode() in head.lower()
    assert body == whole


def test_a_head_request_returns_the_length_of_a_long_export(server: Server):
    whole = server("GET", f"{PATH}/export?format=markdown", timeout=120)
    head = server("HEAD", f"{PATH}/export?format=markdown", timeout=120)
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) == len(whole.body)
    for name in ("content-type", "content-disposition", "content-security-policy"):
        assert head.headers[name] == whole.headers[name]


def test_messages_added_during_an_export_are_not_in_it(server: Server):
    opened = server.open("GET", f"{PATH}/export", timeout=120)
    start = opened.response.read(MEGABYTE)
    late_response = server.complete(("user", "A late word."), conversation=LONG)
    assert late_response.status == 200
    exported = start + opened.rest()
    assert len(json.loads(exported)["messages"]) == 2 * TURNS + 1
    assert b"A late word." not in exported
    later = server("GET", f"{PATH}?after={2 * TURNS}").json
    assert [message["content"] for message in later["messages"]][:1] == ["A late word."]
    assert server("DELETE", f"{PATH}/messages/{2 * TURNS + 1}").status == 204


def test_a_disconnect_ends_the_export(server: Server, until: Callable[..., bool]):
    for _ in range(5):
        opened = server.open("GET", f"{PATH}/export", timeout=120)
        opened.response.read(MEGABYTE)
        opened.leave()
    assert until(lambda: server.log.count('"outcome":"disconnected"') == 5), server.log
    assert server("GET", "/v1/conversations/short").status == 200
    assert '"fault"' not in server.log


def test_an_export_is_cut_off_if_its_messages_are_deleted(
    server: Server, until: Callable[..., bool]
):
    branch = server("POST", f"{PATH}/branch", {"branch_at_sequence": BRANCHED}, timeout=120)
    assert branch.status == 201
    path = f"/v1/conversations/{branch.json['id']}"
    opened = server.open("GET", f"{path}/export", timeout=120)
    opened.response.read(MEGABYTE)
    assert server("DELETE", f"{path}?permanent=true", timeout=120).status == 204
    with pytest.raises(http.client.IncompleteRead):
        opened.rest()
    assert server("GET", f"{path}/export").status == 404
    assert until(lambda: '"outcome":"turn_not_found"' in server.log), server.log
    assert '"fault"' not in server.log
