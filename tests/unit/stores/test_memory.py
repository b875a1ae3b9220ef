from datetime import timedelta

import pytest

from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    RequestInFlightError,
    StaleLeaseError,
)
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, RequestClaim, RequestKey, StreamEvent
from cllm.stores.memory import MemoryData, MemoryStore
from cllm.testing.store_harness import TickingClock, answered, say, start
from cllm.wire.path_digest import digest_path

DEMO = NewConversation(id="demo", name="cats")
REQUEST = RequestKey(owner="local", key="key", body="body")


def open_store(clock: TickingClock | None = None, data: MemoryData | None = None) -> MemoryStore:
    return MemoryStore(clock=clock or TickingClock(), data=data, patience=0)


async def test_a_lease_expires_by_the_clock():
    clock = TickingClock()
    store = open_store(clock)
    lease = await store.begin_turn("demo", start("t1"), create=DEMO)
    clock.advance(59)
    lease = await store.renew_lease(lease)
    clock.advance(61)
    with pytest.raises(StaleLeaseError):
        await store.finish_turn(lease, answered(lease))


async def test_a_hidden_first_turn_reserves_its_id_and_name():
    store = open_store()
    lease = await store.begin_turn("demo", start("t1", visible=False), create=DEMO)
    for ref in ("demo", "cats"):
        with pytest.raises(ConversationBusyError):
            await store.create(NewConversation(id=ref))
    await store.finish_turn(lease, answered(lease))
    with pytest.raises(ConversationExistsError):
        await store.create(NewConversation(id="cats"))


async def test_stores_on_the_same_data_see_each_other():
    data = MemoryData()
    await say(open_store(data=data), "demo", "t1")
    assert (await open_store(data=data).load("demo")).message_count == 2


async def test_the_partial_reply_of_a_dead_process_is_found():
    clock = TickingClock()
    store = open_store(clock)
    lease = await store.begin_turn("demo", start("t1"), create=DEMO)
    data = b'data: {"choices": [{"delta": {"content": "Luna is"}}]}\n\n'
    await store.add_events(lease, [StreamEvent(number=1, data=data)])
    whole = digest_path([*lease.turn.messages, plain_message("assistant", "Luna is")])
    (running,) = await store.find_paths(whole[::-1])
    assert (running.ordinal, running.state) == (0, "running")
    clock.advance(61)
    (settled,) = await store.find_paths(whole[::-1])
    assert (settled.ordinal, settled.state, settled.sequence) == (1, "incomplete", 2)


async def test_an_edit_is_refused_while_a_turn_runs():
    store = open_store()
    await store.begin_turn("demo", start("t1"), create=DEMO)
    with pytest.raises(ConversationBusyError):
        await store.delete_from("cats", 1)


async def test_a_claim_is_extended_once():
    store = open_store()
    claim = await store.claim_request(REQUEST, seconds=60)
    assert isinstance(claim, RequestClaim)
    extended = await store.renew_claim(claim, seconds=60)
    with pytest.raises(RequestInFlightError):
        await store.renew_claim(claim, seconds=60)
    await store.keep_response(extended, status=200, lifetime=60)


async def test_old_events_and_requests_are_deleted():
    clock = TickingClock()
    store = open_store(clock)
    claim = await store.claim_request(REQUEST, seconds=1)
    assert isinstance(claim, RequestClaim)
    await store.keep_response(claim, status=200, lifetime=1)
    clock.advance(2)
    await store.drop_old_events(clock() + timedelta(days=1))
    assert store._data.requests == {}
