from datetime import UTC, datetime, timedelta

import pytest
from tests.postgres import Server, empty_database

from cllm.core.errors import (
    ConversationNotFoundError,
    RequestConflictError,
    RequestInFlightError,
    StaleLeaseError,
    StoreUnavailableError,
    TurnNotFoundError,
)
from cllm.core.ports import KeptResponse, NewConversation, RequestClaim, RequestKey, StreamEvent
from cllm.stores.memory import MemoryStore
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_harness import TickingClock, answered, say, start

__all__ = ["empty_database"]

REQUEST = RequestKey(owner="local", key="key", body="body")
EVENT = StreamEvent(number=1, data=b"data: 1\n\n")


async def test_a_claimed_request_has_one_response(store: PostgresStore):
    claim = await store.claim_request(REQUEST, seconds=60)
    assert isinstance(claim, RequestClaim)
    with pytest.raises(RequestInFlightError):
        await store.claim_request(REQUEST, seconds=60)
    with pytest.raises(RequestConflictError):
        await store.claim_request(RequestKey(owner="local", key="key", body="x"), seconds=60)
    await store.keep_response(claim, status=200, lifetime=60)
    assert isinstance(await store.claim_request(REQUEST, seconds=60), KeptResponse)
    with pytest.raises(RequestInFlightError):
        await store.renew_claim(claim, seconds=60)


async def test_events_need_a_valid_lease(store: PostgresStore):
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    await store.add_events(lease, [EVENT])
    assert await store.events_after("demo", "t1", 0) == (EVENT,)
    assert await store.events_after("demo", "t1", 1) == ()
    await store.finish_turn(lease, answered(lease))
    with pytest.raises(StaleLeaseError):
        await store.add_events(lease, [EVENT])


async def test_events_of_an_unknown_turn_are_not_found(store: PostgresStore):
    await say(store, "demo", "t1")
    with pytest.raises(TurnNotFoundError):
        await store.events_after("demo", "none", 0)
    with pytest.raises(ConversationNotFoundError):
        await store.events_after("none", "t1", 0)


async def test_events_are_deleted_after_the_end_of_their_turn(store: PostgresStore):
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    await store.add_events(lease, [EVENT])
    await store.drop_old_events(datetime.now(UTC) + timedelta(days=1))
    assert await store.events_after("demo", "t1", 0) == (EVENT,)
    await store.drop_turn(lease)
    await store.drop_old_events(datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(ConversationNotFoundError):
        await store.events_after("demo", "t1", 0)


async def test_two_urls_of_one_database_are_the_same_store(
    store: PostgresStore, postgres_server: Server, database: str, empty_database: str
):
    await store.create(NewConversation(id="cats"))
    await postgres_server.execute("CREATE SCHEMA other", database=database)
    urls = {
        postgres_server.url(database) + "&application_name=cats": True,
        postgres_server.url(database) + "&search_path=other": False,
        postgres_server.url(empty_database): False,
    }
    for url, is_same in urls.items():
        other = PostgresStore(url, clock=TickingClock())
        assert await store.is_same_store(other) == is_same
        assert await other.is_same_store(store) == is_same
        await other.close()
    assert not await store.is_same_store(MemoryStore(clock=TickingClock()))
    tables = "SELECT 1 FROM pg_tables WHERE schemaname = 'public'"
    assert await postgres_server.execute(tables, database=empty_database) == []


async def test_a_database_that_cannot_be_reached_cannot_be_compared(store: PostgresStore):
    url = "postgresql://127.0.0.1:1/cats?pool_patience=0"
    other = PostgresStore(url, clock=TickingClock())
    for one, two in ((store, other), (other, store)):
        with pytest.raises(StoreUnavailableError):
            await one.is_same_store(two)
    await other.close()
