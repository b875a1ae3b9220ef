"""Following a turn's stream: one of this process wakes its followers, others are looked at."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fake_provider import WAIT, FakeProvider
from tests.integration.server.conftest import KEPT
from tests.server_app import ServerApp, open_server_app

from cllm.core.message import plain_message
from cllm.core.ports import Lease, Store, StreamEvent, TurnStart
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sqlite.store import SqliteStore, parse_location

LIST = "/v1/conversations"
HELD = 1.5
SHORT = 0.2
NEW = {"X-Conversation-ID": ""}
ASKED = {
    "model": "openai/gpt-test",
    "messages": [{"role": "user", "content": "Hello."}],
    "stream": True,
}


@asynccontextmanager
async def state(
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


class Looks:
    """How often the events of a turn were asked for."""

    def __init__(self, server: ServerApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        store = server.state.store
        events_after = store.events_after

        async def counted(*given: Any, **named: Any) -> tuple[StreamEvent, ...]:
            self.count += 1
            return await events_after(*given, **named)

        monkeypatch.setattr(store, "events_after", counted)


async def running_turn(server: ServerApp) -> tuple[str, str]:
    """The conversation and the turn that has begun in it."""
    async with asyncio.timeout(WAIT):
        while True:
            for listed in (await server.state.store.list_conversations()).items:
                turns = (await server.load(listed.id)).turns
                if turns:
                    return listed.id, turns[-1].id
            await asyncio.sleep(0.01)


def store_of_another(url: str) -> Store:
    """The store as another process has it, whose leases run out at once."""
    scheme, _, location = url.partition(":")
    if scheme == "sqlite":
        path, _ = parse_location(location)
        return SqliteStore(path, clock=now, lease_seconds=SHORT)
    return PostgresStore(url, clock=now, lease_seconds=SHORT)


def now() -> datetime:
    return datetime.now(UTC)


async def begin(server: ServerApp, conversation: str, *, store: Store | None = None) -> Lease:
    """A turn as another process begins it."""
    start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "Hello"),))
    return await (store or server.state.store).begin_turn(conversation, start)


def data_of(stream: bytes) -> list[bytes]:
    return [event for event in stream.split(b"\n\n") if event.startswith(b"id: ")]


async def test_a_turn_of_this_process_wakes_who_follows_it(
    tmp_path: Path, store_url: str, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    gate = provider.say_held("First ", "second.", at=1)
    async with state(tmp_path, store_url, provider) as server:
        looks = Looks(server, monkeypatch)
        asked = asyncio.create_task(server("POST", "/v1/chat/completions", json=ASKED, headers=NEW))
        conversation, turn = await running_turn(server)
        path = f"{LIST}/{conversation}/turns/{turn}/events"
        followers = [asyncio.create_task(server("GET", path)) for _ in range(3)]
        await asyncio.sleep(HELD)
        held = looks.count
        gate.open()
        whole = await asked
        async with asyncio.timeout(WAIT / 2):
            followed = await asyncio.gather(*followers)
        assert not server.state.turns.next_change(("local", conversation, turn))
    assert held <= 3 * 4
    for one in followed:
        assert data_of(one.content) == data_of(whole.content) != []


async def test_a_follower_of_a_turn_of_this_process_has_signs_of_life(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    gate = provider.say_held("First ", "second.", at=1)
    async with state(tmp_path, store_url, provider, silence_seconds=0.2) as server:
        asked = asyncio.create_task(server("POST", "/v1/chat/completions", json=ASKED, headers=NEW))
        conversation, turn = await running_turn(server)
        follower = asyncio.create_task(server("GET", f"{LIST}/{conversation}/turns/{turn}/events"))
        await asyncio.sleep(HELD)
        gate.open()
        followed, whole = await follower, await asked
    assert 3 <= followed.content.count(b": still running") <= 10
    assert data_of(followed.content) == data_of(whole.content) != []


async def test_a_turn_of_this_process_that_breaks_off_ends_its_followers(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    provider.say_held("First ", "second.", at=1)
    async with state(tmp_path, store_url, provider) as server:
        asked = asyncio.create_task(server("POST", "/v1/chat/completions", json=ASKED, headers=NEW))
        conversation, turn = await running_turn(server)
        follower = asyncio.create_task(server("GET", f"{LIST}/{conversation}/turns/{turn}/events"))
        await asyncio.sleep(0.5)
        await server.state.turns.stop(within=0)
        async with asyncio.timeout(WAIT / 2):
            followed = await follower
            await asked
    assert data_of(followed.content)


async def test_a_turn_of_another_process_is_looked_at_less_and_less_often(
    tmp_path: Path, store_url: str, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    async with state(tmp_path, store_url, provider) as server:
        looks = Looks(server, monkeypatch)
        conversation = await server.create_conversation()
        lease = await begin(server, conversation)
        path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
        follower = asyncio.create_task(server("GET", path))
        await asyncio.sleep(2)
        silent = looks.count
        store = server.state.store
        await store.add_events(lease, [StreamEvent(number=1, data=b"id: 1\ndata: {}\n\n")])
        ended = msgspec.structs.replace(lease.turn, state="complete", ended_at=server.state.clock())
        await store.finish_turn(lease, ended)
        async with asyncio.timeout(WAIT / 2):
            followed = await follower
    assert 4 <= silent <= 9
    assert data_of(followed.content) == [b"id: 1\ndata: {}"]


@pytest.mark.parametrize("store_url", KEPT, indirect=True)
async def test_a_turn_whose_process_is_gone_is_not_followed_for_long(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    async with state(tmp_path, store_url, provider, silence_seconds=0.2) as server:
        conversation = await server.create_conversation()
        gone = store_of_another(store_url)
        lease = await begin(server, conversation, store=gone)
        await gone.close()
        async with asyncio.timeout(WAIT / 2):
            path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
            followed = await server("GET", path)
        assert b"request_timeout" in followed.content
        assert b"has died" in followed.content
        provider.say("Hello.")
        headers = {"X-Conversation-ID": conversation}
        again = await server("POST", "/v1/chat/completions", json=ASKED, headers=headers)
        assert again.status_code == 200


async def test_a_silent_turn_of_another_process_is_left_in_peace(
    tmp_path: Path, store_url: str, provider: FakeProvider
):
    async with state(tmp_path, store_url, provider, silence_seconds=0.2) as server:
        conversation = await server.create_conversation()
        lease = await begin(server, conversation)
        path = f"{LIST}/{conversation}/turns/{lease.turn.id}/events"
        follower = asyncio.create_task(server("GET", path))
        await asyncio.sleep(HELD)
        assert not follower.done()
        ended = msgspec.structs.replace(lease.turn, state="complete", ended_at=server.state.clock())
        await server.state.store.finish_turn(lease, ended)
        async with asyncio.timeout(WAIT / 2):
            followed = await follower
    assert followed.content.count(b": still running") >= 3
    assert b"error" not in followed.content
