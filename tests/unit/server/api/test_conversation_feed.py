"""The feed of changed conversations: its events, cursor, owners and slow listeners."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, ServerApp, open_server_app

from cllm.core.conversation import LOCAL_OWNER, StoredConversation
from cllm.core.errors import StoreError
from cllm.core.message import plain_message
from cllm.core.ports import Changes, ConversationCounts, NewConversation, TurnStart
from cllm.server.api import conversation_feed
from cllm.server.api.conversation_feed import ConversationFeed, FeedSnapshot
from cllm.server.api.conversation_ref import StoreRef
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore

FEED = "/v1/conversations/events"


@pytest.fixture(autouse=True)
def fast_polls(monkeypatch):
    monkeypatch.setattr(conversation_feed, "POLL_SECONDS", 0.01)


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path, "server: {silence_seconds: 0.05}") as server:
        yield server


class Reader:
    """Reads the events of a feed, without comments; `cursor` is the last `id`."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self.cursor = ""
        self.comments: list[str] = []

    async def __call__(self, count: int = 1) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        while len(events) < count:
            events += await self._read()
        return events

    async def connect(self) -> None:
        while not self.cursor:
            assert await self._read() == []

    async def _read(self) -> list[dict[str, Any]]:
        async with asyncio.timeout(5):
            lines = (await anext(self._stream)).decode().splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith('data: {"')]
        self.cursor = next((line[4:] for line in lines if line.startswith("id: ")), self.cursor)
        self.comments += [line for line in lines if line.startswith(":")]
        return events


@asynccontextmanager
async def listen(server: ServerApp, *, owner: str = LOCAL_OWNER, feed=None, cursor=None):
    refs = (StoreRef(store=server.state.store, owner=owner),)
    feed = feed or ConversationFeed(refs, server.state)
    async with aclosing(feed.stream(cursor)) as stream:
        yield Reader(stream)


def read_cursor(reader: Reader):
    return datetime.fromisoformat(reader.cursor)


async def test_created_changed_archived_and_deleted_conversations_are_events(server):
    store = server.state.store
    async with listen(server) as read:
        await read.connect()
        conversation = await server.create_conversation()
        (created,) = await read()
        await store.update(conversation, Changes(title="New"))
        (changed,) = await read()
        await store.update(conversation, Changes(archived=True))
        (archived,) = await read()
        await store.delete(conversation)
        (deleted,) = await read()

    types = [one["type"] for one in (created, changed, archived, deleted)]
    assert types == ["created", "changed", "archived", "deleted"]
    assert {one["id"] for one in (created, changed, archived, deleted)} == {conversation}
    assert changed["title"] == "New"
    assert set(created) == {
        "type", "id", "updated_at", "message_count", "title", "model", "source", "state"
    }  # fmt: skip


async def test_an_old_conversation_that_is_archived_or_restored_is_an_event(server, monkeypatch):
    monkeypatch.setattr(conversation_feed, "OVERLAP", timedelta())
    store = server.state.store
    old = await server.create_conversation()
    await server.create_conversation()
    async with listen(server) as read:
        await read.connect()
        await store.update(old, Changes(archived=True))
        (archived,) = await read()
        await store.update(old, Changes(archived=False))
        (restored,) = await read()

    assert [(one["type"], one["id"]) for one in (archived, restored)] == [
        ("archived", old),
        ("changed", old),
    ]
    assert archived["updated_at"] == restored["updated_at"]


class Seconds:
    """A clock that advances only by a call."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float = 1.0) -> None:
        self._now += seconds


class CountedStore(MemoryStore):
    """A store with a version that the test sets; counting takes `count_seconds`."""

    def __init__(self, seconds: Seconds, *, count_seconds: float = 0.0) -> None:
        super().__init__(clock=lambda: datetime.now(UTC))
        self.version: str | None = None
        self.counts = 0
        self._seconds = seconds
        self._count_seconds = count_seconds

    async def read_version(self, *, owner: str = LOCAL_OWNER) -> str | None:  # noqa: ARG002
        return self.version

    async def count_all(self, *, owner: str = LOCAL_OWNER) -> ConversationCounts:
        self.counts += 1
        self._seconds.advance(self._count_seconds)
        return await super().count_all(owner=owner)


@pytest.mark.parametrize("kind", ["without versions", "idle", "busy"])
async def test_an_exchange_of_archived_conversations_is_found_within_five_minutes(
    server, monkeypatch, kind
):
    monkeypatch.setattr(conversation_feed, "OVERLAP", timedelta())
    seconds = Seconds()
    store = CountedStore(seconds) if kind == "without versions" else server.state.store
    first, second, newest = ids = [server.state.new_id() for _ in range(3)]
    for one in ids:
        await store.create(NewConversation(id=one))
    await store.update(first, Changes(archived=True))
    snapshot = FeedSnapshot((StoreRef(store=store, owner=LOCAL_OWNER),), clock=seconds)
    assert await snapshot.poll() == []
    await store.update(first, Changes(archived=False))
    await store.update(second, Changes(archived=True))
    found: dict[str, str] = {}
    polls = 0
    while not found and polls < 900:
        polls += 1
        seconds.advance()
        if kind == "busy":
            await store.update(newest, Changes(title=f"Title {polls}"))
        found = {one.id: one.type for one in await snapshot.poll() if one.id != newest}

    assert found == {first: "changed", second: "archived"}
    assert polls == 300


async def test_counting_takes_at_most_a_twentieth_of_the_time():
    seconds = Seconds()
    store = CountedStore(seconds, count_seconds=0.5)
    await store.create(NewConversation(id="old"))
    snapshot = FeedSnapshot((StoreRef(store=store, owner=LOCAL_OWNER),), clock=seconds)
    await snapshot.poll()
    await store.delete("old")
    deleted = []
    for _ in range(100):
        seconds.advance()
        deleted += [(seconds(), one.type, one.id) for one in await snapshot.poll()]

    assert [one[1:] for one in deleted] == [("deleted", "old")]
    assert deleted[0][0] < 12
    assert (store.counts - 1) * 0.5 <= seconds() / 20


async def test_a_deletion_is_found_after_the_pause_even_if_nothing_else_changes():
    seconds = Seconds()
    store = CountedStore(seconds, count_seconds=0.5)
    await store.create(NewConversation(id="old"))
    store.version = "1"
    snapshot = FeedSnapshot((StoreRef(store=store, owner=LOCAL_OWNER),), clock=seconds)
    await snapshot.poll()
    await store.delete("old")
    await store.create(NewConversation(id="new"))
    store.version = "2"
    events = []
    for _ in range(20):
        seconds.advance()
        events += [(one.type, one.id) for one in await snapshot.poll()]

    assert events == [("created", "new"), ("deleted", "old")]
    assert store.counts == 2


async def test_a_poll_that_fails_loses_no_event(monkeypatch):
    monkeypatch.setattr(conversation_feed, "OVERLAP", timedelta())
    seconds = Seconds()
    store = CountedStore(seconds)
    for one in ("archived", "deleted", "newest"):
        await store.create(NewConversation(id=one))
    snapshot = FeedSnapshot((StoreRef(store=store, owner=LOCAL_OWNER),), clock=seconds)
    await snapshot.poll()
    await store.update("archived", Changes(archived=True))
    await store.delete("deleted")
    await store.create(NewConversation(id="created"))

    async def fail(*_: object, **__: object) -> None:
        raise StoreError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(store, "count_all", fail)
        with pytest.raises(StoreError):
            await snapshot.poll()
    events = {(one.type, one.id) for one in await snapshot.poll()}

    assert events == {("created", "created"), ("archived", "archived"), ("deleted", "deleted")}


async def test_a_conversation_that_cannot_be_read_does_not_stop_the_events_of_others(tmp_path):
    seconds = Seconds()
    store = JsonFileStore(tmp_path, clock=lambda: datetime.now(UTC))
    for name in ("damaged", "deleted"):
        await store.create(NewConversation(id=name))
    snapshot = FeedSnapshot((StoreRef(store=store, owner=LOCAL_OWNER),), clock=seconds)
    await snapshot.poll()
    (tmp_path / "damaged.json").write_text("{", encoding="utf-8")
    await store.create(NewConversation(id="created"))
    seconds.advance()
    created = [(one.type, one.id) for one in await snapshot.poll()]
    await store.delete("deleted")
    deleted = []
    for _ in range(2):
        seconds.advance(300)
        deleted += [(one.type, one.id) for one in await snapshot.poll()]
    (tmp_path / "damaged.json").unlink()
    seconds.advance(300)
    removed = [(one.type, one.id) for one in await snapshot.poll()]

    assert created == [("created", "created")]
    assert deleted == [("deleted", "deleted")]
    assert removed == [("deleted", "damaged")]


async def test_a_deletion_behind_a_hidden_addition_is_found_within_five_minutes():
    seconds = Seconds()
    store = CountedStore(seconds)
    for name in ("old", "new"):
        await store.create(NewConversation(id=name))
    snapshot = FeedSnapshot((StoreRef(store=store, owner=LOCAL_OWNER),), clock=seconds)
    await snapshot.poll()
    past = datetime(2020, 1, 1, tzinfo=UTC)
    imported = StoredConversation(id="imported", created_at=past, updated_at=past)
    await store.add(imported, preserve_times=True)
    await store.delete("old")
    events = []
    for _ in range(300):
        seconds.advance()
        events += [(one.type, one.id) for one in await snapshot.poll()]

    assert ("deleted", "old") in events


async def test_a_turn_is_visible_from_its_start_to_its_end(server):
    conversation = await server.create_conversation()
    async with listen(server) as read:
        await read.connect()
        start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "Hello."),))
        lease = await server.state.store.begin_turn(conversation, start)
        (running,) = await read()
        turn = msgspec.structs.replace(lease.turn, state="complete", ended_at=server.state.clock())
        await server.state.store.finish_turn(lease, turn)
        (finished,) = await read()

    assert (running["type"], running["state"]) == ("running", "running")
    assert (finished["type"], finished["state"]) == ("finished", "idle")
    assert finished["updated_at"] > running["updated_at"]


async def test_a_listener_that_connects_during_a_turn_sees_it(server):
    conversation = await server.create_conversation()
    start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "Hello."),))
    await server.state.store.begin_turn(conversation, start)

    async with listen(server) as read:
        (event,) = await read()

    assert (event["id"], event["type"]) == (conversation, "running")


async def test_a_reconnect_gets_what_changed_meanwhile(server, monkeypatch):
    monkeypatch.setattr(conversation_feed, "OVERLAP", timedelta())
    await server.create_conversation()
    async with listen(server) as read:
        await read.connect()
    missed = {await server.create_conversation() for _ in range(250)}

    async with listen(server, cursor=read_cursor(read)) as again:
        replayed = await again(251)
        await server.create_conversation()
        (new,) = await again()

    assert missed < {event["id"] for event in replayed}
    assert new["type"] == "created"


async def test_a_break_during_the_replay_repeats_it(server):
    async with listen(server) as read:
        await read.connect()
    first = read_cursor(read)
    for _ in range(5):
        await server.create_conversation()

    async with listen(server, cursor=first) as again:
        await again(2)

    assert read_cursor(again) == first


async def test_listeners_share_one_poller_which_ends_with_the_last(server):
    feed = ConversationFeed((StoreRef(store=server.state.store, owner=LOCAL_OWNER),), server.state)
    before = asyncio.all_tasks()
    async with listen(server, feed=feed) as one, listen(server, feed=feed) as two:
        await one.connect()
        await two.connect()
        assert len(asyncio.all_tasks() - before) == 1
        conversation = await server.create_conversation()
        assert (await one())[0]["id"] == (await two())[0]["id"] == conversation
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before


async def test_a_slow_listener_is_disconnected(server, monkeypatch):
    monkeypatch.setattr(conversation_feed, "MAX_UNREAD", 3)
    async with listen(server) as read:
        await read.connect()
        for _ in range(10):
            await server.create_conversation()
        await asyncio.sleep(0.1)
        events = await read(3)
        with pytest.raises(StopAsyncIteration):
            await read()

    assert len(events) == 3


async def test_an_idle_feed_sends_comments_and_ends_at_shutdown(server):
    async with listen(server) as read:
        await read.connect()
        while len(read.comments) < 3:
            assert await read._read() == []
        server.state.turns.is_stopping = True
        with pytest.raises(StopAsyncIteration):
            await read()


async def test_a_store_that_cannot_be_read_for_a_moment_does_not_end_the_feed(server, monkeypatch):
    store = server.state.store
    async with listen(server) as read:
        await read.connect()
        failures = iter([StoreError("gone")])
        original = type(store).list_running

        async def fail_once(self, **options):
            for failure in failures:
                raise failure
            return await original(self, **options)

        monkeypatch.setattr(type(store), "list_running", fail_once)
        conversation = await server.create_conversation()

        assert (await read())[0]["id"] == conversation


async def test_an_owner_sees_only_own_conversations(tmp_path):
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        theirs = await server.create_conversation(owner="alice")
        async with listen(server, owner="bob") as read:
            await read.connect()
            lease = await server.state.store.begin_turn(
                theirs,
                TurnStart(id="t1", messages=(plain_message("user", "Hello."),)),
                owner="alice",
            )
            await server.state.store.drop_turn(lease)
            await server.create_conversation(owner="alice")
            own = await server.create_conversation(owner="bob")
            assert [event["id"] for event in await read()] == [own]


async def test_side_conversations_are_left_out(server):
    async with listen(server) as read:
        await read.connect()
        side = NewConversation(id=server.state.new_id(), is_side=True)
        start = TurnStart(id="t1", messages=(plain_message("user", "Title?"),))
        await server.state.store.begin_turn(side.id, start, create=side)
        own = await server.create_conversation()

        assert [event["id"] for event in await read()] == [own]


async def test_an_invalid_cursor_and_a_missing_key_are_errors(tmp_path):
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        missing = await server("GET", FEED)
        alice = {"Authorization": f"Bearer {KEYS['alice']}", "Last-Event-ID": "x"}
        invalid = await server("GET", FEED, headers=alice)

    assert (missing.status_code, missing.json()["error"]["code"]) == (401, "missing_token")
    assert (invalid.status_code, invalid.json()["error"]["param"]) == (400, "Last-Event-ID")
