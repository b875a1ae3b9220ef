"""What every store does that a server can use, as tests, on top of what every store does.

Subclass `ServerStoreContract` in place of `StoreContract`.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
import pytest

from cllm.core.errors import (
    ConversationExistsError,
    ConversationNotFoundError,
    RequestConflictError,
    RequestInFlightError,
    StaleLeaseError,
    TurnNotFoundError,
)
from cllm.core.ports import (
    CallRecord,
    KeptResponse,
    NewConversation,
    RequestKey,
    ServerStore,
    Store,
    StreamEvent,
)
from cllm.core.reply import Usage
from cllm.testing.store_contract import StoreContract, StoreHarness, answered, start

replace = msgspec.structs.replace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
REQUEST = RequestKey(owner="ann", key="hash-of-key", body="hash-of-body")
RESPONSE = KeptResponse(status=200, headers={"x-turn": "t1"}, body=b"\x00\xff{}")
HOUR = 3600.0


def events(*numbers: int) -> list[StreamEvent]:
    return [StreamEvent(number=number, data=f"data: {number}\n\n".encode()) for number in numbers]


class ServerStoreHarness(Protocol):
    """How the suite gets at a kind of store that a server can use."""

    async def open(self) -> ServerStore: ...

    async def lose(self, store: Store, /) -> None: ...


class ServerStoreContract(StoreContract):
    """The tests. A subclass gives the `harness`, whose stores are a server's."""

    @pytest.fixture
    async def served(self, harness: ServerStoreHarness) -> AsyncIterator[ServerStore]:
        store = await harness.open()
        yield store
        await store.close()

    @pytest.fixture
    async def beside(self, harness: ServerStoreHarness) -> AsyncIterator[ServerStore]:
        """A second worker on the same data."""
        store = await harness.open()
        yield store
        await store.close()

    async def test_a_request_is_answered_once(
        self, served: ServerStore, beside: ServerStore
    ) -> None:
        assert await served.claim_request(REQUEST, lifetime=HOUR) is None
        with pytest.raises(RequestInFlightError):
            await beside.claim_request(REQUEST, lifetime=HOUR)
        await served.keep_response(REQUEST, RESPONSE)
        assert await beside.claim_request(REQUEST, lifetime=HOUR) == RESPONSE

    async def test_a_key_stands_for_one_body(self, served: ServerStore) -> None:
        other = replace(REQUEST, body="another")
        await served.claim_request(REQUEST, lifetime=HOUR)
        with pytest.raises(RequestConflictError):
            await served.claim_request(other, lifetime=HOUR)
        await served.keep_response(other, RESPONSE)
        with pytest.raises(RequestInFlightError):
            await served.claim_request(REQUEST, lifetime=HOUR)
        await served.keep_response(REQUEST, RESPONSE)
        with pytest.raises(RequestConflictError):
            await served.claim_request(other, lifetime=HOUR)

    async def test_owners_have_keys_of_their_own(self, served: ServerStore) -> None:
        await served.claim_request(REQUEST, lifetime=HOUR)
        await served.keep_response(REQUEST, RESPONSE)
        bobs = replace(REQUEST, owner="bob")
        assert await served.claim_request(bobs, lifetime=HOUR) is None

    async def test_a_claim_can_be_given_back(self, served: ServerStore) -> None:
        await served.claim_request(REQUEST, lifetime=HOUR)
        await served.drop_request(REQUEST)
        assert await served.claim_request(REQUEST, lifetime=HOUR) is None
        await served.keep_response(REQUEST, RESPONSE)
        await served.drop_request(REQUEST)
        assert await served.claim_request(REQUEST, lifetime=HOUR) == RESPONSE

    async def test_what_was_answered_is_forgotten_in_time(self, served: ServerStore) -> None:
        await served.claim_request(REQUEST, lifetime=0)
        await served.keep_response(REQUEST, RESPONSE)
        assert await served.claim_request(replace(REQUEST, body="new"), lifetime=HOUR) is None

    async def test_events_are_read_in_order_from_any_number_on(
        self, served: ServerStore, beside: ServerStore
    ) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await served.add_events(lease, events(1, 2))
        assert await beside.events_after("demo", "t1", 0) == tuple(events(1, 2))
        await served.add_events(lease, events(3))
        assert await beside.events_after("demo", "t1", 1) == tuple(events(2, 3))
        await served.finish_turn(lease, answered(lease))
        assert await beside.events_after("demo", "t1", 3) == ()

    async def test_who_lost_a_lease_adds_no_events(
        self, harness: StoreHarness, served: ServerStore
    ) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await harness.lose(served)
        with pytest.raises(StaleLeaseError):
            await served.add_events(lease, events(1))
        assert await served.events_after("demo", "t1", 0) == ()

    async def test_there_are_no_events_of_a_turn_that_is_not_there(
        self, served: ServerStore
    ) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await served.add_events(lease, events(1))
        await served.finish_turn(lease, answered(lease))
        with pytest.raises(TurnNotFoundError):
            await served.events_after("demo", "t9", 0)
        with pytest.raises(ConversationNotFoundError):
            await served.events_after("other", "t1", 0)
        with pytest.raises(ConversationNotFoundError):
            await served.events_after("demo", "t1", 0, owner="eve")

    async def test_old_events_go_and_those_of_running_turns_stay(self, served: ServerStore) -> None:
        for ref, ended_at in (("old", NOON), ("new", NOON + timedelta(hours=1))):
            new = NewConversation(id=ref)
            lease = await served.begin_turn(ref, start("t1"), create=new)
            await served.add_events(lease, events(1))
            await served.finish_turn(lease, replace(answered(lease), ended_at=ended_at))
        lease = await served.begin_turn("run", start("t1"), create=NewConversation(id="run"))
        await served.add_events(lease, events(1))
        await served.drop_old_events(NOON + timedelta(minutes=1))
        left = [len(await served.events_after(ref, "t1", 0)) for ref in ("old", "new", "run")]
        assert left == [0, 1, 1]
        await served.finish_turn(lease, answered(lease))

    async def test_calls_without_a_conversation_are_counted(self, served: ServerStore) -> None:
        usage = Usage(input=5, output=6)
        call = CallRecord(model="big", usage=usage, cost=0.5, ended_at=NOON)
        await served.count_call(call, owner="ann")
        await served.count_call(replace(call, cost=None), owner="ann")
        (total,) = await served.usage(owner="ann", by="model")
        assert (total.key, total.calls, total.cost, total.unpriced) == ("big", 2, 0.5, 1)
        assert total.usage == usage + usage
        assert await served.usage(owner="bob") == ()
        assert (await served.list_conversations(owner="ann")).items == ()

    async def test_owners_may_use_the_same_id(self, served: ServerStore) -> None:
        await served.create(NewConversation(id="demo", name="n", title="Ann's"), owner="ann")
        await served.create(NewConversation(id="demo", name="n", title="Bob's"), owner="bob")
        with pytest.raises(ConversationExistsError):
            await served.create(NewConversation(id="demo"), owner="ann")
        await served.delete("n", owner="ann")
        assert (await served.load("demo", owner="bob")).title == "Bob's"
        with pytest.raises(ConversationNotFoundError):
            await served.load("demo", owner="ann")

    async def test_a_renewed_lease_outlasts_its_first_minute(
        self, harness: StoreHarness, served: ServerStore
    ) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        renewed = await served.renew_lease(lease)
        assert renewed.expires_at is not None
        assert lease.expires_at is not None
        assert renewed.expires_at > lease.expires_at
        await harness.lose(served)
        with pytest.raises(StaleLeaseError):
            await served.finish_turn(renewed, answered(renewed))
