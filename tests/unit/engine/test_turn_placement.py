"""Turns start in the conversation where they belong, or are not recorded."""

import asyncio
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace
from tests.history_client import HistoryClient, make_engine, reply, user
from tests.scripted_provider import ScriptedProvider
from tests.store_gates import block_method, wait_for_background
from tests.unit.engine.conftest import Clock

from cllm.core.errors import ConversationBusyError, StoreUnavailableError
from cllm.core.ports import NewConversation, TurnStart
from cllm.engine import optional_steps, turn_placement
from cllm.engine.request import ClientHistory
from cllm.stores.memory import MemoryStore

SESSION = ClientHistory(client="test", family="test:a")


def make_client(store: MemoryStore, history: ClientHistory = SESSION) -> HistoryClient:
    provider = ScriptedProvider(f"answer {number}" for number in count(1))
    ids = (f"id-{number}" for number in count(1))
    engine = make_engine(store, provider, clock=Clock(), new_id=lambda: next(ids))
    return HistoryClient(store, engine, provider, history)


class ChangedStore(MemoryStore):
    """Another turn is saved between the lookup and the lease, `changes` times."""

    changes = 0

    async def find_paths(self, digests: Any, **options: Any) -> Any:
        matches = await super().find_paths(digests, **options)
        if matches and self.changes:
            self.changes -= 1
            start = TurnStart(id=f"other-{self.changes}", messages=(user("in between"),))
            lease = await self.begin_turn(matches[0].conversation, start)
            await self.finish_turn(lease, replace(lease.turn, state="complete"))
        return matches


async def test_a_turn_is_placed_again_if_the_conversation_changed() -> None:
    store = ChangedStore(clock=Clock())
    client = make_client(store)
    await client.ask("one")
    first = client.conversation
    store.changes = 1
    client.messages.append(user("two"))
    await client.request()
    # The other turn is the last one, so this one is a variant of it.
    assert client.conversation == first
    assert await client.stored_texts() == ["one", "answer 1", "two", "answer 2"]
    assert not client.unrecorded


async def test_a_conversation_that_changes_all_the_time_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_placement, "MAX_ATTEMPTS", 1)
    store = ChangedStore(clock=Clock())
    client = make_client(store)
    await client.ask("one")
    first = client.conversation
    store.changes = 10
    client.messages.append(user("two"))
    await client.request()
    assert client.conversation != first
    assert (await client.stored()).family == "test:a"
    assert len(await client.stored_texts()) == 4


async def test_a_busy_conversation_with_an_id_is_an_error() -> None:
    store = MemoryStore(clock=Clock())
    await store.begin_turn(
        "demo", TurnStart(id="t", messages=(user("x"),)), create=NewConversation(id="demo")
    )
    client = make_client(store, ClientHistory(conversation="demo"))
    client.messages = [user("x")]
    with pytest.raises(ConversationBusyError):
        await client.request()


@pytest.mark.parametrize("error", [StoreUnavailableError("The disk is full."), None])
async def test_a_store_that_fails_or_is_slow_leaves_the_turn_unrecorded(
    error: StoreUnavailableError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    monkeypatch.setattr(optional_steps, "OPTIONAL_SECONDS", 0.01)
    store = MemoryStore(clock=Clock())
    monkeypatch.setattr(store, "begin_turn", fail)
    client = make_client(store)
    assert await client.ask("one") == "answer 1"
    assert client.conversation is None
    assert [one.code for one in client.notices] == ["not_recorded"]
    assert [type(one) for one in client.unrecorded] == [StoreUnavailableError]


async def test_a_store_that_fails_is_an_error_for_a_conversation_with_an_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailableError("The disk is full.")

    store = MemoryStore(clock=Clock())
    await store.create(NewConversation(id="demo"))
    client = make_client(store, ClientHistory(conversation="demo"))
    monkeypatch.setattr(store, "find_paths", fail)
    client.messages = [user("one")]
    with pytest.raises(StoreUnavailableError):
        await client.request()


async def test_a_lease_that_comes_too_late_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_steps, "OPTIONAL_SECONDS", 0.01)
    store = MemoryStore(clock=Clock())
    client = make_client(store)
    await client.ask("one")
    first = client.conversation
    gate = block_method(monkeypatch, store, "begin_turn")
    assert await client.ask("two") == "answer 2"
    other = client.fork(ClientHistory(client="test", family="test:b"))
    other.messages = []
    assert await other.ask("three") == "answer 3"
    assert [type(one) for one in client.unrecorded] == [StoreUnavailableError]

    gate.set()
    for tasks in (client.background, other.background):
        await wait_for_background(tasks)
    assert await client.conversations() == [first]
    assert [turn.state for turn in (await store.load(str(first))).turns] == ["complete"]
    client.messages = [user("one"), reply("answer 1"), user("again")]
    await client.request()
    assert client.conversation == first


async def test_a_lookup_that_ends_too_late_starts_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(optional_steps, "OPTIONAL_SECONDS", 0.01)
    store = MemoryStore(clock=Clock())
    client = make_client(store)
    gate = block_method(monkeypatch, store, "list_family")
    monkeypatch.setattr(store, "begin_turn", fail)
    assert await client.ask("one") == "answer 1"

    gate.set()
    (late,) = client.background
    await late


async def test_a_request_cancelled_while_it_is_placed_leaves_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore(clock=Clock())
    client = make_client(store)
    gate = block_method(monkeypatch, store, "begin_turn")
    request = asyncio.create_task(client.ask("one"))
    for _ in range(10):
        await asyncio.sleep(0)
    request.cancel()
    await asyncio.wait((request,))
    assert request.cancelled()

    gate.set()
    await wait_for_background(client.background)
    assert await client.conversations() == []
