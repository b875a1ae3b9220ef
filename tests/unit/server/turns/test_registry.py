"""The turn registry: followers are notified; expired events and requests are deleted."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from tests.virtual_time import loop_clock

from cllm.core.errors import ConversationBusyError
from cllm.core.message import plain_message
from cllm.core.ports import (
    Clock,
    Lease,
    NewConversation,
    RequestClaim,
    RequestKey,
    StreamEvent,
    TurnStart,
)
from cllm.engine.request import TurnStorage
from cllm.server.http.errors import ApiError
from cllm.server.turns.registry import (
    SAVE_SECONDS,
    TurnRegistry,
    delete_expired_events,
    turn_key,
)
from cllm.stores.memory import MemoryStore

__all__ = ["loop_clock"]

TIMEOUT = 5
HOUR = 3600.0


@pytest.fixture
async def lease() -> Lease:
    store = MemoryStore(clock=lambda: datetime.now(UTC))
    start = TurnStart(id="t1", messages=())
    return await store.begin_turn("c1", start, create=NewConversation(id="c1"))


async def follow(turns: TurnRegistry, lease: Lease) -> asyncio.Task[bool]:
    """Return a task that waits for the next change."""
    change = turns.next_change(turn_key(lease))
    assert change is not None
    waiting = asyncio.create_task(change.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def test_the_end_of_a_turn_wakes_every_follower(lease: Lease):
    turns = TurnRegistry()
    turns.add(lease)
    waiting = [await follow(turns, lease) for _ in range(2)]

    turns.remove(lease)

    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*waiting)
    assert turns.next_change(turn_key(lease)) is None


async def test_a_follower_is_woken_by_each_change_and_by_the_end(lease: Lease):
    turns = TurnRegistry()
    turns.add(lease)
    for change in (turns.notify, turns.notify, turns.remove):
        waiting = await follow(turns, lease)
        change(lease)
        async with asyncio.timeout(TIMEOUT):
            await waiting


async def test_a_turn_without_followers_ends_normally(lease: Lease):
    turns = TurnRegistry()
    turns.add(lease)

    turns.notify(lease)
    turns.remove(lease)

    assert turns.next_change(turn_key(lease)) is None


async def test_stop_cancels_the_remaining_turns_and_starts_no_more():
    turns = TurnRegistry()
    task = turns.start(asyncio.sleep(60))

    await turns.stop(within=0)

    assert task.cancelled()
    assert len(turns) == 0
    with pytest.raises(ApiError) as raised:
        turns.start(asyncio.sleep(0))
    assert raised.value.code == "shutting_down"


async def test_events_are_deleted_after_their_retention_time(loop_clock: Clock):
    store = MemoryStore(clock=loop_clock)
    start = TurnStart(id="t1", messages=(plain_message("user", "Hi."),))
    lease = await store.begin_turn("c1", start, create=NewConversation(id="c1"))
    await store.add_events(lease, [StreamEvent(number=1, data=b"data: 1\n\n")])
    await store.finish_turn(lease, replace(lease.turn, state="complete", ended_at=loop_clock()))

    async with delete_expired_events(store, clock=loop_clock, keep_seconds=HOUR):
        await asyncio.sleep(0.9 * HOUR)
        early = await store.events_after("c1", "t1", 0)
        await asyncio.sleep(1.2 * HOUR)
        late = await store.events_after("c1", "t1", 0)

    assert len(early) == 1
    assert late == ()


async def test_expired_requests_are_deleted_from_memory(loop_clock: Clock):
    store = MemoryStore(clock=loop_clock)
    for key in ("complete", "incomplete"):
        request = RequestKey(owner="ann", key=key, body="body")
        claim = await store.claim_request(request, seconds=60)
        assert isinstance(claim, RequestClaim)
        if key == "complete":
            await store.keep_response(claim, status=200, lifetime=HOUR / 2)
    remaining = []

    for hours in (0, 1, 24):
        async with delete_expired_events(store, clock=loop_clock, keep_seconds=60):
            await asyncio.sleep(hours * HOUR + 120)
        remaining.append([key for _, key in store._data.requests])

    assert remaining == [["complete", "incomplete"], ["incomplete"], []]


async def test_waiting_turns_start_in_the_order_of_their_requests():
    turns, started, is_free = TurnRegistry(), list[int](), asyncio.Event()
    storage = TurnStorage(ref="c1", wait=HOUR)

    async def take_turn(number: int) -> None:
        async with turns.wait_in_line(storage):
            started.append(number)
            await is_free.wait()

    waiting = []
    for number in range(5):
        waiting.append(asyncio.create_task(take_turn(number)))
        await asyncio.sleep(0)
    waiting.pop(2).cancel()
    is_free.set()
    await asyncio.gather(*waiting)

    assert started == [0, 1, 3, 4]
    assert turns._lines == {}


async def test_a_turn_that_waits_too_long_is_busy_and_the_wait_is_shared_with_the_store():
    turns = TurnRegistry()
    async with turns.wait_in_line(TurnStorage(ref="c1", wait=HOUR)) as first:
        assert first.wait is not None
        assert 0 < first.wait <= HOUR
        with pytest.raises(ConversationBusyError):
            async with turns.wait_in_line(TurnStorage(ref="c1", wait=0.01)):
                pass
        async with (
            turns.wait_in_line(TurnStorage(ref="c2", wait=0.01)),
            turns.wait_in_line(TurnStorage(ref="c1", wait=0)),
            turns.wait_in_line(TurnStorage()),
        ):
            pass

    assert turns._lines == {}


async def test_a_store_that_does_not_respond_delays_the_stop_only_once(loop_clock: Clock):
    turns, is_over = TurnRegistry(), asyncio.Event()

    async def ignore_cancellation() -> None:
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await is_over.wait()

    task = turns.start(ignore_cancellation())
    started = loop_clock()
    await turns.stop(within=7)
    await turns.stop(within=7)

    assert (loop_clock() - started).total_seconds() == pytest.approx(7 + SAVE_SECONDS, 0.1)
    is_over.set()
    await task


async def test_a_background_turn_is_cancelled_by_its_key(lease: Lease):
    registry = TurnRegistry()
    reasons: list[tuple[str, ...]] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            reasons.append(error.args)
            raise

    task = registry.start(work())
    registry.add(lease, task)
    await asyncio.sleep(0)

    assert await registry.cancel(turn_key(lease))
    assert reasons == [("cancelled",)]
    registry.remove(lease)
    assert not await registry.cancel(turn_key(lease))


async def test_the_stop_waits_for_store_operations_in_the_background(loop_clock: Clock):
    turns, saved = TurnRegistry(), []

    def add(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        turns.background.add(task)
        task.add_done_callback(turns.background.discard)

    async def save(name: str) -> None:
        await asyncio.sleep(SAVE_SECONDS / 3)
        saved.append(name)

    async def run_until_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            add(save("cancelled turn"))

    turns.start(run_until_cancelled())
    await asyncio.sleep(0)
    add(save("late turn"))
    await turns.stop(within=0.01)

    assert saved == ["late turn", "cancelled turn"]
    assert not turns.background


async def test_a_store_operation_in_the_background_does_not_block_the_stop(loop_clock: Clock):
    turns = TurnRegistry()
    turns.background.add(late := asyncio.create_task(asyncio.sleep(HOUR)))
    started = loop_clock()
    await turns.stop(within=7)

    assert (loop_clock() - started).total_seconds() == pytest.approx(SAVE_SECONDS, 0.1)
    assert not late.done()
    late.cancel()
