"""Tests for stores that a server can use: subclass `ServerStoreContract`."""

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
    RequestClaim,
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


async def claimed(
    store: ServerStore, request: RequestKey = REQUEST, *, seconds: float = HOUR
) -> RequestClaim:
    claim = await store.claim_request(request, seconds=seconds)
    assert isinstance(claim, RequestClaim)
    return claim


async def answer(store: ServerStore, claim: RequestClaim, *, lifetime: float = HOUR) -> None:
    whole = replace(claim, headers=RESPONSE.headers, body=RESPONSE.body)
    await store.keep_response(whole, status=RESPONSE.status, lifetime=lifetime)


class ServerStoreHarness(Protocol):
    async def open(self) -> ServerStore: ...

    async def lose(self, store: Store, /) -> None: ...


class ServerStoreContract(StoreContract):
    @pytest.fixture
    def served(self, store: ServerStore) -> ServerStore:
        return store

    @pytest.fixture
    def beside(self, other: ServerStore) -> ServerStore:
        return other

    async def test_an_idempotent_request_has_one_response(
        self, served: ServerStore, beside: ServerStore
    ) -> None:
        claim = await claimed(served)
        await self._refuse(RequestInFlightError, beside.claim_request(REQUEST, seconds=HOUR))
        await answer(served, claim)
        assert await beside.claim_request(REQUEST, seconds=HOUR) == RESPONSE

    async def test_an_idempotency_key_belongs_to_one_body(self, served: ServerStore) -> None:
        other = replace(REQUEST, body="another")
        claim = await claimed(served)
        await self._refuse(RequestConflictError, served.claim_request(other, seconds=HOUR))
        await answer(served, claim)
        await self._refuse(RequestConflictError, served.claim_request(other, seconds=HOUR))

    async def test_owners_have_separate_idempotency_keys(self, served: ServerStore) -> None:
        await answer(served, await claimed(served))
        assert (await claimed(served, replace(REQUEST, owner="bob"))).headers == {}

    async def test_a_claim_can_be_released_but_not_a_response(self, served: ServerStore) -> None:
        claim = await claimed(served)
        await served.renew_claim(claim, seconds=0)
        claim = await claimed(served)
        await answer(served, claim)
        await self._refuse(RequestInFlightError, served.renew_claim(claim, seconds=0))
        assert await served.claim_request(REQUEST, seconds=HOUR) == RESPONSE

    async def test_renewal_extends_a_claim(self, served: ServerStore, beside: ServerStore) -> None:
        claim = await claimed(served, seconds=0)
        claim = await served.renew_claim(claim, seconds=HOUR)
        await self._refuse(RequestInFlightError, beside.claim_request(REQUEST, seconds=HOUR))
        await answer(served, claim)

    async def test_an_expired_claim_can_be_taken_over(
        self, served: ServerStore, beside: ServerStore
    ) -> None:
        claim = await claimed(served)
        known = replace(claim, headers={"x-turn": "t1"}, body=b"\x00\xffso far")
        lost = await served.renew_claim(known, seconds=0)
        taken = await claimed(beside)
        assert (taken.headers, taken.body) == (known.headers, known.body)
        for write in (served.renew_claim(lost, seconds=HOUR), answer(served, lost)):
            await self._refuse(RequestInFlightError, write)
        await answer(beside, taken)
        assert await served.claim_request(REQUEST, seconds=HOUR) == RESPONSE

    async def test_a_claim_has_no_data_of_another_request(self, served: ServerStore) -> None:
        claim = replace(await claimed(served), headers={"x-turn": "t1"}, body=b"so far")
        await served.renew_claim(claim, seconds=0)
        other = await claimed(served, replace(REQUEST, body="another"))
        assert (other.headers, other.body) == ({}, None)

    async def test_a_response_expires(self, served: ServerStore) -> None:
        await answer(served, await claimed(served), lifetime=0)
        new = await claimed(served)
        assert (new.headers, new.body) == ({}, None)

    async def test_claims_expire_in_a_day(self, served: ServerStore, beside: ServerStore) -> None:
        known = {"x-turn": "t1"}
        requests = [REQUEST, replace(REQUEST, key="of today")]
        claims = [await claimed(served, request) for request in requests]
        for claim, hours in zip(claims, (25, 23), strict=True):
            await served.renew_claim(replace(claim, headers=known), seconds=-hours * HOUR)
        await served.drop_old_events(NOON)
        left = [(await claimed(beside, request)).headers for request in requests]
        assert left == [{}, known]

    async def test_responses_are_deleted_by_a_header(
        self, served: ServerStore, beside: ServerStore
    ) -> None:
        others = [replace(REQUEST, owner="bob"), replace(REQUEST, key="of another turn")]
        for request in (REQUEST, *others):
            claim = await claimed(served, request)
            head = {"x-turn": "t2" if request.key != REQUEST.key else "t1"}
            kept = replace(claim, headers=head, body=b"said")
            await served.keep_response(kept, status=200, lifetime=HOUR)
        await beside.forget_responses("x-turn", "t1", owner="ann")
        assert isinstance(await served.claim_request(REQUEST, seconds=HOUR), RequestClaim)
        for request in others:
            assert isinstance(await served.claim_request(request, seconds=HOUR), KeptResponse)

    async def test_events_are_in_order(self, served: ServerStore, beside: ServerStore) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await served.add_events(lease, events(1, 2))
        assert await beside.events_after("demo", "t1", 0) == tuple(events(1, 2))
        await served.add_events(lease, events(3))
        assert await beside.events_after("demo", "t1", 1) == tuple(events(2, 3))
        await served.finish_turn(lease, answered(lease))
        assert await beside.events_after("demo", "t1", 3) == ()

    async def test_a_lost_lease_adds_no_events(
        self, harness: StoreHarness, served: ServerStore
    ) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await harness.lose(served)
        await self._refuse(StaleLeaseError, served.add_events(lease, events(1)))
        assert await served.events_after("demo", "t1", 0) == ()

    async def test_a_missing_turn_has_no_events(self, served: ServerStore) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await served.add_events(lease, events(1))
        await served.finish_turn(lease, answered(lease))
        await self._refuse(TurnNotFoundError, served.events_after("demo", "t9", 0))
        await self._refuse(
            ConversationNotFoundError,
            served.events_after("other", "t1", 0),
            served.events_after("demo", "t1", 0, owner="eve"),
        )

    async def test_old_events_are_deleted_except_those_of_running_turns(
        self, served: ServerStore
    ) -> None:
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

    async def test_two_owners_can_use_the_same_id(self, served: ServerStore) -> None:
        await served.create(NewConversation(id="demo", name="n", title="Ann's"), owner="ann")
        await served.create(NewConversation(id="demo", name="n", title="Bob's"), owner="bob")
        with pytest.raises(ConversationExistsError):
            await served.create(NewConversation(id="demo"), owner="ann")
        await served.delete("n", owner="ann")
        assert (await served.load("demo", owner="bob")).title == "Bob's"
        await self._refuse(ConversationNotFoundError, served.load("demo", owner="ann"))

    async def test_a_renewed_lease_expires_later(
        self, harness: StoreHarness, served: ServerStore
    ) -> None:
        lease = await served.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        renewed = await served.renew_lease(lease)
        assert renewed.expires_at is not None
        assert lease.expires_at is not None
        assert renewed.expires_at > lease.expires_at
        await harness.lose(served)
        await self._refuse(StaleLeaseError, served.finish_turn(renewed, answered(renewed)))
