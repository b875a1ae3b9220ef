"""The feed of changed conversations of a real server: workers, conversation files, owners."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.fake_provider import FakeProvider
from tests.home import Home
from tests.server_process import COMPLETIONS, Client, Server, completion_body
from tests.sqlite_template import write_database

FEED = "/v1/conversations/events"
KEYS = {name: f"sk-{name}-0123456789abcdef" for name in ("alice", "bob")}


class Feed:
    """An open feed; `cursor` is the last ID."""

    def __init__(self, client: Client, **headers: str) -> None:
        self._stream = client.open("GET", FEED, headers=headers)
        assert self._stream.status == 200
        assert self._stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        self.cursor = ""

    def next(self) -> dict[str, Any]:
        """Return the next event that is not a comment; `ready` is {}."""
        while True:
            block = self._stream.event().decode()
            assert block, "the feed ended"
            lines = dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":")
            self.cursor = lines.get("id", self.cursor)
            if "data" in lines:
                event: dict[str, Any] = json.loads(lines["data"])
                return event

    def until(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the events up to the first one with these fields."""
        events = [self.next()]
        while not fields.items() <= events[-1].items():
            events.append(self.next())
        return events

    def rest(self) -> bytes:
        return self._stream.rest()

    def close(self) -> None:
        self._stream.leave()


@contextmanager
def feed(client: Client, **headers: str) -> Iterator[Feed]:
    with closing(Feed(client, **headers)) as opened:
        yield opened


def test_the_changes_of_every_worker_and_of_a_turn_are_sent(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve("--workers", "2")
    with feed(server) as events:
        assert events.next() == {}
        ids = {server.complete(("user", "Hello"), conversation="").conversation for _ in range(4)}
        seen: set[str] = set()
        while not ids <= seen:
            seen.add(events.next()["id"])
        one = min(ids)
        gate = provider.queue_held_reply("Half", " whole", at=1)
        body = completion_body(("user", "More"), stream=True)
        running = server.open("POST", COMPLETIONS, body, {"X-Conversation-ID": one})
        events.until(id=one, state="running")
        gate.open()
        running.rest()
        assert events.until(id=one, state="idle")[-1]["message_count"] == 4
        cursor = events.cursor

    server("DELETE", f"/v1/conversations/{one}")
    with feed(server, **{"Last-Event-ID": cursor}) as again:
        assert [event["id"] for event in again.until(id=one)][-1] == one
        server("DELETE", f"/v1/conversations/{one}?permanent=true")
        assert again.until(type="deleted")[-1]["id"] == one
        server.terminate()
        again.rest()
    assert server.wait() == 0


def test_the_shell_and_other_owners(home: Home, settings: Callable[..., Path], cllm: Any):
    path = home.path / ".cllm/cllm.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_database(path)
    settings()
    options: dict[str, Any] = {
        "environment": home.environment,
        "directory": home.work,
        "store": None,
    }
    with Server(**options) as server, feed(server) as events:
        assert events.next() == {}
        cllm("Hello", "--conversation", "cats").succeeded()
        assert events.until(id="files:cats", state="idle")[-1]["message_count"] == 2
        cllm("conversations", "delete", "cats", "--yes").succeeded()
        assert events.until(type="deleted")[-1]["id"] == "files:cats"
    keys = [{"name": name, "owner": name, "key": key} for name, key in KEYS.items()]
    settings(server={"keys": keys})
    with Server(**options) as server:
        with feed(server, Authorization=f"Bearer {KEYS['bob']}") as events:
            assert events.next() == {}
            for name in ("alice", "bob"):
                headers = {"Authorization": f"Bearer {KEYS[name]}"}
                server.complete(("user", name), conversation=name, headers=headers)
            listed = server("GET", "/v1/conversations", headers={"x-api-key": KEYS["bob"]}).json
            assert {events.next()["id"]} == {one["id"] for one in listed["conversations"]}
        assert server("GET", FEED).error["code"] == "missing_token"
