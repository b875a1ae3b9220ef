"""Tests for stores that a server can use: subclass `ServerStoreContract`."""

from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
import pytest

from cllm.core.conversation import CANCELLATION
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
    Changes,
    KeptResponse,
    NewConversation,
    RequestClaim,
    RequestKey,
    ServerStore,
    Store,
    StreamEvent,
)
from cllm.core.reply import Usage
from cllm.testing.store_contract import StoreContract, StoreHarness, answered, start, texts
from cllm.testing.store_paths import find

replace = msgspec.structs.replace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
REQUEST = RequestKey(owner="ann", key="hash-of-key", body="hash-of-body")
RESPONSE = KeptResponse(status=200, headers={"x-turn": "t1"}, body=b"\x00\xff{}")
HOUR = 3600.0


def events(*numbers: int) -> list[StreamEvent]:
    return [StreamEvent(number=number, data=f"data: {number}\n\n".encode()) for number in numbers]


def text_events(*texts: str) -> list[StreamEvent]:
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    return [
        StreamEvent(
            number=number, data=b"id: %d\ndata: %b\n\n" % (number, msgspec.json.encode(chunk))
        )
        for number, chunk in enumerate(chunks, 1)
    ]


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
    def server_store(self, store: ServerStore) -> ServerStore:
        return store

    @pytest.fixture
    def other_store(self, other: ServerStore) -> ServerStore:
        return other

    async def test_an_idempotent_request_has_one_response(
        self, server_store: ServerStore, other_store: ServerStore
    ) -> None:
        claim = await claimed(server_store)
        await self._refuse(RequestInFlightError, other_store.claim_request(REQUEST, seconds=HOUR))
        await answer(server_store, claim)
        assert await other_store.claim_request(REQUEST, seconds=HOUR) == RESPONSE

    async def test_a_new_store_can_be_written(self, server_store: ServerStore) -> None:
        await server_store.check_writable()

    async def test_an_idempotency_key_belongs_to_one_body(self, server_store: ServerStore) -> None:
        other = replace(REQUEST, body="another")
        claim = await claimed(server_store)
        await self._refuse(RequestConflictError, server_store.claim_request(other, seconds=HOUR))
        await answer(server_store, claim)
        await self._refuse(RequestConflictError, server_store.claim_request(other, seconds=HOUR))

    async def test_owners_have_separate_idempotency_keys(self, server_store: ServerStore) -> None:
        await answer(server_store, await claimed(server_store))
        assert (await claimed(server_store, replace(REQUEST, owner="bob"))).headers == {}

    async def test_a_claim_can_be_released_but_not_a_response(
        self, server_store: ServerStore
    ) -> None:
        claim = await claimed(server_store)
        await server_store.renew_claim(claim, seconds=0)
        claim = await claimed(server_store)
        await answer(server_store, claim)
        await self._refuse(RequestInFlightError, server_store.renew_claim(claim, seconds=0))
        assert await server_store.claim_request(REQUEST, seconds=HOUR) == RESPONSE

    async def test_renewal_extends_a_claim(
        self, server_store: ServerStore, other_store: ServerStore
    ) -> None:
        claim = await claimed(server_store, seconds=0)
        claim = await server_store.renew_claim(claim, seconds=HOUR)
        await self._refuse(RequestInFlightError, other_store.claim_request(REQUEST, seconds=HOUR))
        await answer(server_store, claim)

    async def test_an_expired_claim_can_be_taken_over(
        self, server_store: ServerStore, other_store: ServerStore
    ) -> None:
        claim = await claimed(server_store)
        partial = replace(claim, headers={"x-turn": "t1"}, body=b"\x00\xffso far")
        lost = await server_store.renew_claim(partial, seconds=0)
        new_claim = await claimed(other_store)
        assert (new_claim.headers, new_claim.body) == (partial.headers, partial.body)
        for write in (server_store.renew_claim(lost, seconds=HOUR), answer(server_store, lost)):
            await self._refuse(RequestInFlightError, write)
        await answer(other_store, new_claim)
        assert await server_store.claim_request(REQUEST, seconds=HOUR) == RESPONSE

    async def test_a_claim_has_no_data_of_another_request(self, server_store: ServerStore) -> None:
        claim = replace(await claimed(server_store), headers={"x-turn": "t1"}, body=b"so far")
        await server_store.renew_claim(claim, seconds=0)
        other = await claimed(server_store, replace(REQUEST, body="another"))
        assert (other.headers, other.body) == ({}, None)

    async def test_a_response_expires(self, server_store: ServerStore) -> None:
        await answer(server_store, await claimed(server_store), lifetime=0)
        new = await claimed(server_store)
        assert (new.headers, new.body) == ({}, None)

    async def test_claims_expire_in_a_day(
        self, server_store: ServerStore, other_store: ServerStore
    ) -> None:
        partial = {"x-turn": "t1"}
        requests = [REQUEST, replace(REQUEST, key="of today")]
        claims = [await claimed(server_store, request) for request in requests]
        for claim, hours in zip(claims, (25, 23), strict=True):
            await server_store.renew_claim(replace(claim, headers=partial), seconds=-hours * HOUR)
        await server_store.drop_old_events(NOON)
        remaining = [(await claimed(other_store, request)).headers for request in requests]
        assert remaining == [{}, partial]

    async def test_responses_are_deleted_by_a_header(
        self, server_store: ServerStore, other_store: ServerStore
    ) -> None:
        others = [replace(REQUEST, owner="bob"), replace(REQUEST, key="of another turn")]
        for request in (REQUEST, *others):
            claim = await claimed(server_store, request)
            head = {"x-turn": "t2" if request.key != REQUEST.key else "t1"}
            finished = replace(claim, headers=head, body=b"said")
            await server_store.keep_response(finished, status=200, lifetime=HOUR)
        await other_store.forget_responses("x-turn", "t1", owner="ann")
        assert isinstance(await server_store.claim_request(REQUEST, seconds=HOUR), RequestClaim)
        for request in others:
            assert isinstance(await server_store.claim_request(request, seconds=HOUR), KeptResponse)

    async def test_events_are_in_order(
        self, server_store: ServerStore, other_store: ServerStore
    ) -> None:
        lease = await server_store.begin_turn(
            "demo", start("t1"), create=NewConversation(id="demo")
        )
        await server_store.add_events(lease, events(1, 2))
        assert await other_store.events_after("demo", "t1", 0) == tuple(events(1, 2))
        await server_store.add_events(lease, events(3))
        assert await other_store.events_after("demo", "t1", 1) == tuple(events(2, 3))
        await server_store.finish_turn(lease, answered(lease))
        assert await other_store.events_after("demo", "t1", 3) == ()

    async def test_a_lost_lease_adds_no_events(
        self, harness: StoreHarness, server_store: ServerStore
    ) -> None:
        lease = await server_store.begin_turn(
            "demo", start("t1"), create=NewConversation(id="demo")
        )
        await harness.lose(server_store)
        await self._refuse(StaleLeaseError, server_store.add_events(lease, events(1)))
        assert await server_store.events_after("demo", "t1", 0) == ()

    @pytest.fixture
    async def broken_stream(self, harness: StoreHarness, server_store: ServerStore) -> None:
        """A second turn of `demo` whose process died after some text."""
        first = await server_store.begin_turn(
            "demo", start("t1"), create=NewConversation(id="demo")
        )
        await server_store.finish_turn(first, answered(first))
        lease = await server_store.begin_turn("demo", start("t2", "Again"))
        await server_store.add_events(lease, text_events("Half of ", "an answer"))
        await harness.lose(server_store)

    @pytest.mark.usefixtures("broken_stream")
    async def test_a_turn_whose_process_died_has_the_text_of_its_stream(
        self, other_store: ServerStore
    ) -> None:
        loaded = await other_store.load("demo")
        assert texts(loaded) == ["Hello", "Hi", "Again", "Half of an answer"]
        assert loaded.message_count == 4
        turn = loaded.turns[-1]
        assert turn.state == "incomplete"
        assert turn.failure is not None
        assert turn.failure.code == "interrupted"
        lease = await other_store.begin_turn("demo", start("t3", "More"))
        assert texts(lease.conversation) == texts(loaded)
        await other_store.finish_turn(lease, answered(lease))
        assert [each.state for each in (await other_store.load("demo")).turns] == [
            "complete",
            "incomplete",
            "complete",
        ]

    @pytest.mark.usefixtures("broken_stream")
    async def test_the_text_of_a_broken_stream_is_part_of_the_path(
        self, other_store: ServerStore
    ) -> None:
        path = ("Hello", "Hi", "Again", "Half of an answer")
        (match,) = await find(other_store, *path, "More")
        assert (match.turn, match.sequence, match.state) == ("t2", 4, "incomplete")
        lease = await other_store.begin_turn("demo", start("t3", "More"))
        await other_store.finish_turn(lease, answered(lease))
        (match,) = await find(other_store, *path, "More", "Hi")
        assert (match.turn, match.sequence, match.message_count) == ("t3", 6, 6)

    @pytest.mark.usefixtures("broken_stream")
    async def test_the_next_turn_continues_from_the_text_of_a_broken_stream(
        self, other_store: ServerStore
    ) -> None:
        lease = await other_store.begin_turn("demo", start("t3", "More"), tail="window")
        assert texts(lease.conversation)[-2:] == ["Again", "Half of an answer"]
        await other_store.finish_turn(lease, answered(lease))
        loaded = await other_store.load("demo")
        assert [number for number, _, _ in loaded.numbered_messages()] == [1, 2, 3, 4, 5, 6]
        assert texts(loaded)[2:4] == ["Again", "Half of an answer"]

    @pytest.mark.usefixtures("broken_stream")
    async def test_lists_and_searches_show_the_text_of_a_broken_stream(
        self, other_store: ServerStore
    ) -> None:
        (listed,) = (await other_store.list_conversations()).items
        assert listed.message_count == 4
        assert (await other_store.search("half")).total == 1
        assert (await other_store.summary("demo")).message_count == 4
        assert len(await other_store.events_after("demo", "t2", 0)) == 2

    @pytest.mark.usefixtures("broken_stream")
    async def test_a_search_finds_the_text_of_a_broken_stream(
        self, other_store: ServerStore
    ) -> None:
        assert [hit.sequence for hit in (await other_store.search("half")).items] == [4]

    @pytest.mark.usefixtures("broken_stream")
    async def test_an_edit_settles_a_broken_stream(self, other_store: ServerStore) -> None:
        await other_store.update("demo", Changes(title="Cats"))
        loaded = await other_store.load("demo")
        assert (loaded.title, texts(loaded)[-1]) == ("Cats", "Half of an answer")

    async def test_a_broken_stream_of_a_variant_is_on_the_path(
        self, harness: StoreHarness, server_store: ServerStore, other_store: ServerStore
    ) -> None:
        first = await server_store.begin_turn(
            "demo", start("t1"), create=NewConversation(id="demo")
        )
        await server_store.finish_turn(first, answered(first))
        lease = await server_store.begin_turn("demo", start("t2", place="t1"))
        await server_store.add_events(lease, text_events("Half"))
        await harness.lose(server_store)
        loaded = await other_store.load("demo")
        assert texts(loaded) == ["Hello", "Half"]
        assert [turn.id for turn in loaded.variants] == ["t1"]
        assert loaded.message_count == 2

    @pytest.mark.parametrize("text", ["", "Half"])
    async def test_a_turn_is_cancelled_by_another_process(
        self, server_store: ServerStore, other_store: ServerStore, text: str
    ) -> None:
        lease = await server_store.begin_turn(
            "demo", start("t1"), create=NewConversation(id="demo")
        )
        if text:
            await server_store.add_events(lease, text_events(text))
        assert not await other_store.cancel_turn("demo", "t9")
        assert not await other_store.cancel_turn("demo", "t1", owner="eve")
        assert await other_store.cancel_turn("demo", "t1")
        assert not await other_store.cancel_turn("demo", "t1")

        for store in (server_store, other_store):
            (turn,) = (await store.load("demo")).turns
            assert turn.failure == CANCELLATION
            assert turn.ended_at is not None
            assert turn.ended_at > turn.started_at
            assert turn.state == ("incomplete" if text else "failed")
        assert texts(await other_store.load("demo")) == ["Hello", *([text] if text else [])]
        await self._refuse(
            StaleLeaseError,
            server_store.renew_lease(lease),
            server_store.add_events(lease, text_events("late")),
            server_store.finish_turn(lease, answered(lease)),
        )
        following = await other_store.begin_turn("demo", start("t2", "More"))
        await other_store.finish_turn(following, answered(following))
        assert not await other_store.cancel_turn("demo", "t2")
        assert len(texts(await server_store.load("demo"))) == (4 if text else 3)

    async def test_a_missing_turn_has_no_events(self, server_store: ServerStore) -> None:
        lease = await server_store.begin_turn(
            "demo", start("t1"), create=NewConversation(id="demo")
        )
        await server_store.add_events(lease, events(1))
        await server_store.finish_turn(lease, answered(lease))
        await self._refuse(TurnNotFoundError, server_store.events_after("demo", "t9", 0))
        await self._refuse(
            ConversationNotFoundError,
            server_store.events_after("other", "t1", 0),
            server_store.events_after("demo", "t1", 0, owner="eve"),
        )

    async def test_old_events_are_deleted_except_those_of_running_turns(
        self, server_store: ServerStore
    ) -> None:
        for ref, ended_at in (("old", NOON), ("new", NOON + timedelta(hours=1))):
            new = NewConversation(id=ref)
            lease = await server_store.begin_turn(ref, start("t1"), create=new)
            await server_store.add_events(lease, events(1))
            await server_store.finish_turn(lease, replace(answered(lease), ended_at=ended_at))
        lease = await server_store.begin_turn("run", start("t1"), create=NewConversation(id="run"))
        await server_store.add_events(lease, events(1))
        await server_store.drop_old_events(NOON + timedelta(minutes=1))
        remaining = [
            len(await server_store.events_after(ref, "t1", 0)) for ref in ("old", "new", "run")
        ]
        assert remaining == [0, 1, 1]
        await server_store.finish_turn(lease, answered(lease))

    async def test_calls_without_a_conversation_are_counted(
        self, server_store: ServerStore
    ) -> None:
        usage = Usage(input=5, output=6)
        call = CallRecord(model="big", usage=usage, cost=0.5, ended_at=NOON)
        await server_store.count_call(call, owner="ann")
        await server_store.count_call(replace(call, cost=None), owner="ann")
        (total,) = await server_store.usage(owner="ann", by="model")
        assert (total.key, total.calls, total.cost, total.unpriced) == ("big", 2, 0.5, 1)
        assert total.usage == usage + usage
        assert await server_store.usage(owner="bob") == ()
        assert (await server_store.list_conversations(owner="ann")).items == ()

    async def test_two_owners_can_use_the_same_id(self, server_store: ServerStore) -> None:
        await server_store.create(NewConversation(id="demo", name="n", title="Ann's"), owner="ann")
        await server_store.create(NewConversation(id="demo", name="n", title="Bob's"), owner="bob")
        with pytest.raises(ConversationExistsError):
            await server_store.create(NewConversation(id="demo"), owner="ann")
        await server_store.delete("n", owner="ann")
        assert (await server_store.load("demo", owner="bob")).title == "Bob's"
        await self._refuse(ConversationNotFoundError, server_store.load("demo", owner="ann"))

    async def test_a_path_is_found_for_its_owner(self, server_store: ServerStore) -> None:
        for owner, ref in (("ann", "hers"), ("bob", "his")):
            lease = await server_store.begin_turn(
                ref, start("t1", "one"), create=NewConversation(id=ref), owner=owner
            )
            await server_store.finish_turn(lease, answered(lease, "one?"))
        assert [match.conversation for match in await find(server_store, "one", owner="ann")] == [
            "hers"
        ]
        assert await find(server_store, "one") == ()

    async def test_a_renewed_lease_expires_later(
        self, harness: StoreHarness, server_store: ServerStore
    ) -> None:
        lease = await server_store.begin_turn(
            "demo", start("t1"), create=NewConversation(id="demo")
        )
        renewed = await server_store.renew_lease(lease)
        assert renewed.expires_at is not None
        assert lease.expires_at is not None
        assert renewed.expires_at > lease.expires_at
        await harness.lose(server_store)
        await self._refuse(StaleLeaseError, server_store.finish_turn(renewed, answered(renewed)))

    async def test_branches_of_two_owners_have_nothing_in_common(
        self, server_store: ServerStore
    ) -> None:
        for owner in ("ann", "bob"):
            lease = await server_store.begin_turn(
                "demo", start("t1", "one"), create=NewConversation(id="demo"), owner=owner
            )
            await server_store.finish_turn(lease, answered(lease, owner))
            await server_store.branch("demo", NewConversation(id="copy"), owner=owner)
        await server_store.delete("demo", owner="ann")
        await server_store.delete("copy", owner="ann")
        assert (await server_store.search("one", owner="ann")).items == ()
        assert texts(await server_store.load("copy", owner="bob")) == ["one", "bob"]
        hits = await server_store.search("one", owner="bob")
        assert {hit.conversation for hit in hits.items} == {"demo", "copy"}
