"""Following the events of a turn: notified by this process, polled for another process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fake_provider import WAIT, FakeProvider
from tests.integration.server.conftest import PERSISTENT
from tests.server_app import ServerApp, open_server_app

from cllm.core.message import plain_message
from cllm.core.ports import Lease, Store, StreamEvent, TurnStart
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sqlite.store import SqliteStore, parse_location

LIST = "/v1/conversations"
SILENT_SECONDS = 1.5
LEASE_SECONDS = 0.2
NEW = {"X-Conversation-ID": ""}
BODY = {
    "model": "openai/gpt-test",
    "messages": [{"role": "user", "content": "Hello."}],
    "stream": True,
}


@asynccontextmanager
async def open_server(
    folder: Path, store_url: str, provider: FakeProvider, **server: Any
) -> AsyncIterator[ServerApp]:
    settings = {
        "model": "openai/gpt-test",
        "api_base": provider.url,
        "api_key": "sk-0",
        "num_retries": 0,
        "server": server,
    }
    async with open_server_app(
        folder, msgspec.json.encode(settings).decode(), store=store_url
    ) as running:
        yield running


@pytest.fixture
def provider() -> Any:
    with FakeProvider() as running:
        yield running


class QueryCounter:
    """Counts how often the events of a turn are loaded."""

    def __init__(self, server: ServerApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        store = server.state.store
        events_after = store.events_after

        async def count(*arguments: Any, **options: Any) -> tuple[StreamEvent, ...]:
            self.count += 1
            return await events_after(*arguments, **options)

        monkeypatch.setattr(store, "events_after", count)


async def find_running_turn(server: ServerApp) -> tuple[str, str]:
    """Return the IDs of the conversation and of its running turn."""
    async with asyncio.timeout(WAIT):
        while True:
            for listed in (await server.state.store.list_conversations()).items:
                turns = (await server.load(listed.id)).turns
                if turns:
                    return listed.id, turns[-1].id
            await asyncio.sleep(0.01)


def open_store_of_another_process(url: str) -> Store:
    """Return a store as another process opens it, with leases that expire soon."""
    scheme, _, location = url.partition(":")
    if scheme == "sqlite":
        path, _ = parse_location(location)
        return SqliteStore(path, clock=now, lease_seconds=LEASE_SECONDS)
    return PostgresStore(url, clock=now, lease_seconds=LEASE_SECONDS)


def now() -> datetime:
    return datetime.now(UTC)


async def start_turn(server: ServerApp, conversation: str, *, store: Store | None = None) -> Lease:
    """Start a turn that this process does not run."""
    start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "Hello"),))
    return await (store or server.state.store).begin_turn(conversation, start)


def split_events(stream: bytes) -> list[bytes]:
    return [event for event in stream.split(b"\n\n") if event.startswith(b"id: ")]


async def test_a_turn_of_this_process_notifies_its_followers(
    tmp_path: Path, store_url: str, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    gate = provider.queue_held_reply("First ", "second.", at=1)
    async with open_server(tmp_path, store_url, provider) as server:
        queries = QueryCounter(server, monkeypatch)
        request = asyncio.create_task(
            server("POST", "/v1/chat/completions", json=BODY, headers=NEW)
        )
        conversation, turn = await find_running_turn(server)
        path = f"{LIST}/{conversation}/turns/{turn}/events"
        followers = [asyncio.create_task(server("GET", path)) for _ in range(3)]
        await asyncio.sleep(SILENT_SECONDS)
        silent = queries.count
        gate.open()
        whole = await request
        async with asyncio.timeout(WAIT / 2):
            followed = await asyncio.gather(*followers)
        assert not server.state.turns.next_change(("local", conversation, turn))
    assert silent <= 3 * 4
    for one in followed:
        assert split_events(one.content) == split_events(whole.content) != []


async def test_a_follower_receives_keep_alive_comments(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    gate = provider.queue_held_reply("First ", "second.", at=1)
    async with open_server(tmp_path, store_url, provider, silence_seconds=0.2) as server:
        request = asyncio.create_task(
            server("POST", "/v1/chat/completions", json=BODY, headers=NEW)
        )
        conversation, turn = await find_running_turn(server)
        follower = asyncio.create_task(server("GET", f"{LIST}/{conversation}/turns/{turn}/events"))
        await asyncio.sleep(SILENT_SECONDS)
        gate.open()
        followed, whole = await follower, await request
    assert 3 <= followed.content.count(b": still running") <= 10
    assert split_events(followed.content) == split_events(whole.content) != []


async def test_a_cancelled_turn_ends_its_followers(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    provider.queue_held_reply("First ", "second.", at=1)
    async with open_server(tmp_path, store_url, provider) as server:
        request = asyncio.create_task(
            server("POST", "/v1/chat/completions", json=BODY, headers=NEW)
        )
        conversation, turn = await find_running_turn(server)
        follower = asyncio.create_task(server("GET", f"{LIST}/{conversation}/turns/{turn}/events"))
        await asyncio.sleep(0.5)
        await server.state.turns.stop(within=0)
        async with asyncio.timeout(WAIT / 2):
            followed = await follower
            await request
    assert split_events(followed.content)


async def test_a_turn_of_another_process_is_polled_less_and_less_often(
    tmp_path: Path, store_url: str, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    async with open_server(tmp_path, store_url, provider) as server:
        queries = QueryCounter(server, monkeypatch)
        conversation = await server.create_conversation()
        lease = await start_turn(server, conversation)
        path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
        follower = asyncio.create_task(server("GET", path))
        await asyncio.sleep(2)
        silent = queries.count
        store = server.state.store
        await store.add_events(lease, [StreamEvent(number=1, data=b"id: 1\ndata: {}\n\n")])
        ended = msgspec.structs.replace(lease.turn, state="complete", ended_at=server.state.clock())
        await store.finish_turn(lease, ended)
        async with asyncio.timeout(WAIT / 2):
            followed = await follower
    assert 4 <= silent <= 9
    assert split_events(followed.content) == [b"id: 1\ndata: {}"]


@pytest.mark.parametrize("store_url", PERSISTENT, indirect=True)
async def test_a_turn_of_a_dead_process_ends_its_followers_with_an_error(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    async with open_server(tmp_path, store_url, provider, silence_seconds=0.2) as server:
        conversation = await server.create_conversation()
        other = open_store_of_another_process(store_url)
        lease = await start_turn(server, conversation, store=other)
        await other.close()
        async with asyncio.timeout(WAIT / 2):
            path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
            followed = await server("GET", path)
        assert b"request_timeout" in followed.content
        assert b"was interrupted" in followed.content
        provider.queue_reply("Hello.")
        headers = {"X-Conversation-ID": conversation}
        again = await server("POST", "/v1/chat/completions", json=BODY, headers=headers)
        assert again.status_code == 200


async def test_a_silent_turn_of_a_live_process_is_followed_to_its_end(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    async with open_server(tmp_path, store_url, provider, silence_seconds=0.2) as server:
        conversation = await server.create_conversation()
        lease = await start_turn(server, conversation)
        path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
        follower = asyncio.create_task(server("GET", path))
        await asyncio.sleep(SILENT_SECONDS)
        assert not follower.done()
        ended = msgspec.structs.replace(lease.turn, state="complete", ended_at=server.state.clock())
        await server.state.store.finish_turn(lease, ended)
        async with asyncio.timeout(WAIT / 2):
            followed = await follower
    assert followed.content.count(b": still running") >= 3
    assert b"error" not in followed.content
