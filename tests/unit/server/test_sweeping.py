"""The events of a stream go some time after its end, and requests when nobody asks any more."""

import asyncio

from msgspec.structs import replace
from tests.virtual_time import loop_clock

from cllm.core.message import plain_message
from cllm.core.ports import Clock, NewConversation, RequestClaim, RequestKey, StreamEvent, TurnStart
from cllm.server.turns.registry import delete_expired_events
from cllm.stores.memory import MemoryStore

__all__ = ["loop_clock"]

HOUR = 3600.0


async def test_events_are_kept_for_a_while_and_no_longer(loop_clock: Clock):
    store = MemoryStore(clock=loop_clock)
    start = TurnStart(id="t1", messages=(plain_message("user", "Hi."),))
    lease = await store.begin_turn("c1", start, create=NewConversation(id="c1"))
    await store.add_events(lease, [StreamEvent(number=1, data=b"data: 1\n\n")])
    await store.finish_turn(lease, replace(lease.turn, state="complete", ended_at=loop_clock()))

    async with delete_expired_events(store, clock=loop_clock, keep_seconds=HOUR):
        await asyncio.sleep(0.9 * HOUR)
        kept = await store.events_after("c1", "t1", 0)
        await asyncio.sleep(1.2 * HOUR)
        left = await store.events_after("c1", "t1", 0)

    assert len(kept) == 1
    assert left == ()


async def test_requests_are_not_held_in_memory_for_ever(loop_clock: Clock):
    store = MemoryStore(clock=loop_clock)
    for key in ("answered", "unanswered"):
        request = RequestKey(owner="ann", key=key, body="body")
        claim = await store.claim_request(request, seconds=60)
        assert isinstance(claim, RequestClaim)
        if key == "answered":
            await store.keep_response(claim, status=200, lifetime=HOUR / 2)
    left = []

    for hours in (0, 1, 24):
        async with delete_expired_events(store, clock=loop_clock, keep_seconds=60):
            await asyncio.sleep(hours * HOUR + 120)
        left.append([key for _, key in store._data.requests])

    assert left == [["answered", "unanswered"], ["unanswered"], []]
