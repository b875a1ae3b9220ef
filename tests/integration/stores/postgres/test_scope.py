"""What belongs to whom, what is refused, and what is found."""

import sys
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.postgres import Server

from cllm.core.conversation import SystemRecord
from cllm.core.errors import (
    ConversationNotFoundError,
    MissingExtraError,
    RequestConflictError,
    RequestInFlightError,
    SettingsError,
    StaleLeaseError,
    TurnNotFoundError,
    UsageError,
)
from cllm.core.message import plain_message
from cllm.core.ports import (
    CallRecord,
    Changes,
    NewConversation,
    Opening,
    RequestClaim,
    RequestKey,
    StreamEvent,
)
from cllm.core.reply import Usage
from cllm.stores.postgres.connection import split_url
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.registry import open_store
from cllm.testing.store_contract import answered, say, start

from .conftest import Open, now

HOSTILE = ["'; DROP TABLE turns; --", "%", "_", "\\", "a' | 'b", "x:* & !y", "$1", "{}", '"']


async def test_two_owners_can_use_the_same_id_and_key(store: PostgresStore):
    for owner in ("ann", "bob"):
        new = NewConversation(id="demo", name="name", title=owner)
        await store.create(new, owner=owner)
        lease = await store.begin_turn("name", start("t1", f"by {owner}"), owner=owner)
        await store.add_events(lease, [StreamEvent(number=1, data=owner.encode())])
        await store.finish_turn(lease, answered(lease))
        assert isinstance(await store.claim_request(_request(owner), seconds=60), RequestClaim)
    await store.delete("demo", owner="ann")
    assert (await store.load("demo", owner="bob")).title == "bob"
    events = await store.events_after("demo", "t1", 0, owner="bob")
    assert [event.data for event in events] == [b"bob"]
    with pytest.raises(ConversationNotFoundError):
        await store.events_after("demo", "t1", 0, owner="ann")


async def test_an_old_fencing_number_writes_nothing(
    postgres_server: Server, database: str, store: PostgresStore
):
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    stale = msgspec.structs.replace(lease, fence=lease.fence - 1)
    for attempt in (
        store.renew_lease(stale),
        store.finish_turn(stale, answered(stale)),
        store.drop_turn(stale),
        store.add_events(stale, [StreamEvent(number=1, data=b"x")]),
    ):
        with pytest.raises(StaleLeaseError):
            await attempt
    await store.finish_turn(lease, answered(lease))
    held = await postgres_server.execute("SELECT count(*) FROM leases", database=database)
    assert held[0][0] == 0


async def test_a_lease_expires_by_the_clock_of_the_database(open_store: Open):
    store = await open_store(lease_seconds=0.2)
    behind = PostgresStore(store._url, clock=lambda: now() - timedelta(hours=3))
    first = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    second = await behind.begin_turn("demo", start("t2"), wait=2)
    assert second.fence > first.fence
    with pytest.raises(StaleLeaseError):
        await store.finish_turn(first, answered(first))
    await behind.drop_turn(second)
    await behind.close()


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d"])
async def test_nul_and_unpaired_surrogates_are_refused(store: PostgresStore, text: str):
    await say(store, "demo", "t1")
    before = await store.load("demo")
    opening = Opening(system=None, system_record=SystemRecord(policy="pinned", prompt=text))
    for attempt in (
        store.create(NewConversation(id="new", title=text)),
        store.create(NewConversation(id="new", metadata={"k": text})),
        store.create(NewConversation(id="new"), opening=opening),
        store.update("demo", Changes(title=text)),
        store.update("demo", Changes(metadata={text: 1})),
        store.begin_turn("demo", start("t2", model=text)),
    ):
        with pytest.raises(UsageError, match="NUL"):
            await attempt
    assert await store.load("demo") == before


async def test_the_lease_is_released_if_the_turn_cannot_be_stored(store: PostgresStore):
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    turn = msgspec.structs.replace(answered(lease), provider="\0")
    with pytest.raises(UsageError):
        await store.finish_turn(lease, turn)
    await say(store, "demo", "t2")
    states = [(turn.id, turn.state) for turn in (await store.load("demo")).turns]
    assert states == [("t1", "failed"), ("t2", "complete")]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_words_are_data(store: PostgresStore, text: str):
    await say(store, "demo", "t1", f"apple {text} pear")
    assert (await store.search(f"{text} apple")).total == 2
    await store.update("demo", Changes(title=text, metadata={text: text}))
    summary = (await store.list_conversations()).items[0]
    assert (summary.title, summary.metadata) == (text, {text: text})
    assert (await store.load("demo", tail="window")).message_count == 2


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("東京都に住んでいます", "東京", True),
        ("東京都に住んでいます", "京都", True),
        ("東京都に住んでいます", "都", True),
        ("東京都に住んでいます", "大阪", False),
        ("我喜欢吃苹果", "苹果", True),
        ("한국어 문장", "한국어", True),
        ("Straße und Ärger", "STRASSE ärger", True),
        ("full text search", "tex", False),
    ],
)
async def test_words_are_found_in_every_script(
    store: PostgresStore, text: str, query: str, found: bool
):
    await say(store, "demo", "t1", text)
    hits = await store.search(query)
    assert bool(hits.total) is found
    assert all(text[:2] in hit.snippet for hit in hits.items)


async def test_deleted_and_failed_turns_are_not_found(store: PostgresStore):
    await say(store, "demo", "t1", "apple")
    await say(store, "demo", "t2", "apple pie")
    lease = await store.begin_turn("demo", start("t3", "apple cake"))
    assert (await store.search("cake")).total == 0
    failed = msgspec.structs.replace(lease.turn, state="failed")
    await store.finish_turn(lease, failed)
    assert (await store.search("cake")).total == 0
    await store.delete_from("demo", 3)
    assert {hit.sequence for hit in (await store.search("apple")).items} == {1, 2}
    await store.update("demo", Changes(archived=True))
    assert (await store.search("apple")).total == 0
    assert (await store.search("apple", archive_filter="all")).total == 2
    await store.delete("demo")
    assert (await store.search("apple", archive_filter="all")).total == 0


async def test_only_the_newest_thousand_are_ranked_and_more_is_set(
    store: PostgresStore,
):
    lease = await store.begin_turn("demo", start("t1", "first"), create=NewConversation(id="demo"))
    many = tuple(plain_message("assistant", f"apple {number}") for number in range(1100))
    messages = (*lease.turn.messages, *many)
    turn = msgspec.structs.replace(lease.turn, state="complete", messages=messages)
    await store.finish_turn(lease, turn)
    hits = await store.search("apple", limit=5)
    assert (hits.total, hits.more, len(hits.items)) == (1000, True, 5)
    assert min(hit.sequence for hit in hits.items) > 100


def _request(owner: str, body: str = "b") -> RequestKey:
    return RequestKey(owner=owner, key="k", body=body)


async def test_a_claim_expires_by_the_clock_of_the_database(store: PostgresStore):
    """The machine's own clock has no say: it may be that of another time zone, or wrong."""
    one = await store.claim_request(_request("ann"), seconds=0.0)
    other = await store.claim_request(_request("ann", "other"), seconds=60)
    assert isinstance(one, RequestClaim)
    assert isinstance(other, RequestClaim)
    assert other.until > one.until
    with pytest.raises(RequestInFlightError):
        await store.renew_claim(one, seconds=60)
    with pytest.raises(RequestConflictError):
        await store.claim_request(_request("ann"), seconds=60)


async def test_old_events_are_deleted_with_their_turn(store: PostgresStore):
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    events = [StreamEvent(number=number, data=bytes([number])) for number in range(1, 6)]
    await store.add_events(lease, events[:3])
    await store.add_events(lease, events[3:])
    assert await store.events_after("demo", "t1", 2) == tuple(events[2:])
    with pytest.raises(TurnNotFoundError):
        await store.events_after("demo", "t9", 0)
    ended = datetime.now(UTC)
    await store.finish_turn(lease, msgspec.structs.replace(answered(lease), ended_at=ended))
    await store.drop_old_events(ended)
    assert len(await store.events_after("demo", "t1", 0)) == 5
    await store.drop_old_events(ended + timedelta(seconds=1))
    assert await store.events_after("demo", "t1", 0) == ()


async def test_leases_of_conversations_never_created_are_deleted_after_a_day(
    store: PostgresStore, postgres_server: Server, database: str
):
    for ref in ("young", "old", "runs"):
        await store.begin_turn(ref, start("t1", visible=False), create=NewConversation(id=ref))
    await store.begin_turn("made", start("t1"), create=NewConversation(id="made"))
    for ref, age in (("young", "1 hour"), ("old", "25 hours"), ("made", "25 hours")):
        await postgres_server.execute(
            f"UPDATE leases SET expires_at = now() - interval '{age}'"  # noqa: S608
            f" WHERE conversation_id = '{ref}'",
            database=database,
        )

    await store.drop_old_events(now())

    left = "SELECT conversation_id FROM leases ORDER BY 1"
    rows = await postgres_server.execute(left, database=database)
    assert [row[0] for row in rows] == ["made", "runs", "young"]


async def test_usage_sums_turns_and_calls_by_day_and_by_model(store: PostgresStore):
    day = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    turn = msgspec.structs.replace(
        answered(lease), cost=0.5, ended_at=day, usage=Usage(input=3, output=4, estimated=True)
    )
    await store.finish_turn(lease, turn)
    usage = Usage(input=10, output=1, cache_read=2, cache_write=3, reasoning=4, cache_write_hour=5)
    call = CallRecord(model="n", usage=usage, cost=None, ended_at=day + timedelta(minutes=2))
    await store.count_call(call)
    first, second = await store.usage()
    assert (first.key, first.calls, first.cost, first.unpriced) == ("2026-03-01", 1, 0.5, 0)
    assert first.usage == turn.usage
    assert (second.key, second.usage, second.unpriced) == ("2026-03-02", usage, 1)
    assert [each.key for each in await store.usage(by="model")] == ["m", "n"]
    assert [each.key for each in await store.usage(since=call.ended_at)] == ["2026-03-02"]
    assert [each.key for each in await store.usage(until=call.ended_at)] == ["2026-03-01"]


def test_pool_options_are_in_the_url():
    url, options = split_url("postgresql://u:p@h/d?sslmode=require&pool_size=7&pool_idle=9.5")
    assert url == "postgresql://u:p@h/d?sslmode=require"
    assert (options.size, options.idle) == (7, 9.5)
    for wrong in ("pool_size=x", "pool_size=0", "pool_colour=red"):
        with pytest.raises(SettingsError) as caught:
            split_url(f"postgresql://u:secret@h/d?{wrong}")
        assert "secret" not in str(caught.value)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("cllm.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtraError, match=r"install .*\[postgres\]'"):
        open_store("postgresql://h/d", clock=now)
