"""Who follows a turn of this process is woken when it goes on, and when it has ended."""

import asyncio
from datetime import UTC, datetime

import pytest

from cllm.core.ports import Lease, NewConversation, TurnStart
from cllm.server.turns.registry import TurnRegistry, turn_key
from cllm.stores.memory import MemoryStore

LONGEST = 5


@pytest.fixture
async def lease() -> Lease:
    store = MemoryStore(clock=lambda: datetime.now(UTC))
    start = TurnStart(id="t1", messages=())
    return await store.begin_turn("c1", start, create=NewConversation(id="c1"))


async def follow(turns: TurnRegistry, lease: Lease) -> asyncio.Task[bool]:
    """A follower that waits."""
    change = turns.next_change(turn_key(lease))
    assert change is not None
    waiting = asyncio.create_task(change.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def test_the_end_of_a_turn_wakes_all_who_follow_it(lease: Lease):
    turns = TurnRegistry()
    turns.add(lease)
    waiting = [await follow(turns, lease) for _ in range(2)]

    turns.remove(lease)

    async with asyncio.timeout(LONGEST):
        await asyncio.gather(*waiting)
    assert turns.next_change(turn_key(lease)) is None


async def test_who_was_woken_for_more_is_woken_for_the_end_as_well(lease: Lease):
    turns = TurnRegistry()
    turns.add(lease)
    for change in (turns.notify, turns.notify, turns.remove):
        waiting = await follow(turns, lease)
        change(lease)
        async with asyncio.timeout(LONGEST):
            await waiting


async def test_a_turn_that_nobody_follows_ends_all_the_same(lease: Lease):
    turns = TurnRegistry()
    turns.add(lease)

    turns.notify(lease)
    turns.remove(lease)

    assert turns.next_change(turn_key(lease)) is None
