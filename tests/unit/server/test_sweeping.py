"""The events of a stream go some time after its end, and requests when nobody asks any more."""

import asyncio
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, RequestClaim, RequestKey, StreamEvent, TurnStart
from cllm.server.turns.registry import swept
from cllm.stores.memory import MemoryStore


async def test_events_are_kept_for_a_while_and_no_longer():
    now = [datetime(2026, 11, 15, tzinfo=UTC)]
    store = MemoryStore(clock=lambda: now[0])
    start = TurnStart(id="t1", messages=(plain_message("user", "Hi."),))
    lease = await store.begin_turn("c1", start, create=NewConversation(id="c1"))
    await store.add_events(lease, [StreamEvent(number=1, data=b"data: 1\n\n")])
    await store.finish_turn(lease, replace(lease.turn, state="complete", ended_at=now[0]))

    async with swept(store, clock=lambda: now[0], keep_seconds=0.05):
        await asyncio.sleep(0.2)
        kept = await store.events_after("c1", "t1", 0)
        now[0] += timedelta(seconds=1)
        await asyncio.sleep(0.3)
        left = await store.events_after("c1", "t1", 0)

    assert len(kept) == 1
    assert left == ()


async def test_requests_are_not_held_in_memory_for_ever():
    now = [datetime(2026, 11, 15, tzinfo=UTC)]
    store = MemoryStore(clock=lambda: now[0])
    for key in ("answered", "unanswered"):
        request = RequestKey(owner="ann", key=key, body="body")
        claim = await store.claim_request(request, seconds=60)
        assert isinstance(claim, RequestClaim)
        if key == "answered":
            await store.keep_response(claim, status=200, lifetime=60)
    left = []

    for hours in (0, 1, 24):
        now[0] += timedelta(hours=hours)
        async with swept(store, clock=lambda: now[0], keep_seconds=0.02):
            await asyncio.sleep(0.1)
        left.append([key for _, key in store._data.requests._known])

    assert left == [["answered", "unanswered"], ["unanswered"], []]
