"""Databases that somebody filled to do harm, brought up and down on both engines."""

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from tests import older_deployment as older

from cllm.core.conversation import StoredConversation
from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.core.message import Message
from cllm.core.ports import Changes, NewConversation
from cllm.stores.registry import open_store
from cllm.stores.sql import HEAD, REVISIONS, migrate
from cllm.stores.sql.database import Database
from cllm.testing.store_contract import answered, failed, say, say_again, start

FIRST_ID = "00000000-0000-0000-0000-000000000100"
FORGED: tuple[Any, ...] = (
    {"owner": "admin", "id": "stolen"},
    {"owner": "admin"},
    {"id": "stolen"},
    {"name": "../etc"},
    {"system": "{", "system_record": "[]"},
    {"anything": 1},
    ["no", "object"],
    "text",
    None,
)


@pytest.fixture
def url(empty_url: str) -> str:
    return empty_url


def fill(url: str) -> None:
    """An older deployment's database."""

    def work(bind: sa.Connection) -> None:
        migrate.upgrade(bind, "0001")
        older.fill(bind)

    Database(url).run(work, create=True)


def up(url: str) -> None:
    Database(url).run(migrate.upgrade)


def down(url: str, to: str = "0001") -> None:
    Database(url).run(lambda bind: migrate.downgrade(bind, to))


def with_store(url: str, work: Any) -> Any:
    async def run() -> Any:
        store = open_store(url, clock=lambda: datetime.now(UTC))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def add_copy(bind: sa.Connection, number: int, metadata: Any) -> str:
    """Add a copy of the first conversation with other metadata; return its ID."""
    conversations, messages = older.CONVERSATIONS, older.MESSAGES
    first = sa.select(conversations).where(conversations.c.id == uuid.UUID(FIRST_ID))
    copied = sa.select(messages).where(messages.c.conversation_id == uuid.UUID(FIRST_ID))
    copy = uuid.UUID(int=0x200 + number)
    row = dict(bind.execute(first).mappings().one()) | {"id": copy, "metadata": metadata}
    rows = [
        dict(each) | {"id": uuid.uuid4(), "conversation_id": copy}
        for each in bind.execute(copied).mappings()
    ]
    bind.execute(sa.insert(conversations), [row])
    bind.execute(sa.insert(messages), rows)
    return str(copy)


def test_metadata_never_changes_the_owner(url):
    def forge(bind: sa.Connection) -> dict[str, Any]:
        return {
            add_copy(bind, number, {"cllm": each, "a": 1}): each
            for number, each in enumerate(FORGED)
        }

    fill(url)
    copies = Database(url).run(forge)
    up(url)

    async def look(store: Any) -> None:
        for copy, forged in copies.items():
            found = await store.load(copy)
            assert found.metadata == {"cllm": forged, "a": 1}
            assert (found.name, found.system) == (None, None)
            assert len(found.messages) == len(older.MESSAGE_ROWS)
        assert await store.count_conversations(owner="admin", archive_filter="all") == 0

    with_store(url, look)
    down(url)
    up(url)
    with_store(url, look)


def test_metadata_that_looks_like_a_record_stays_metadata(url):
    forged = {"cllm": {"owner": "admin", "id": "stolen", "name": "cats"}}

    async def make(store: Any) -> None:
        await store.create(NewConversation(id="demo", metadata=forged))

    async def look(store: Any) -> None:
        found = await store.load("demo")
        assert (found.metadata, found.name) == (forged, None)
        assert await store.count_conversations(owner="admin") == 0

    with_store(url, make)
    down(url)
    up(url)
    with_store(url, look)


def test_metadata_that_is_not_an_object_is_reported(url):
    fill(url)
    for metadata in ([1], 5, "text"):
        change = sa.update(older.CONVERSATIONS).values(metadata=metadata)
        first = change.where(older.CONVERSATIONS.c.id == uuid.UUID(FIRST_ID))
        Database(url).run(partial(_execute, change=first))
        with pytest.raises(StoreUnavailableError, match=r"not a JSON object.*was not changed"):
            up(url)
        assert Database(url).run(migrate.current_revision) == "0001"


def test_a_name_in_two_metadata_records_is_used_once(url):
    def same(bind: sa.Connection) -> None:
        bind.execute(sa.update(older.CONVERSATIONS).values(metadata={"cllm": {"name": "cats"}}))

    fill(url)
    Database(url).run(same)
    up(url)
    found = with_store(url, lambda store: store.list_conversations())
    assert sorted(str(each.name) for each in found.items) == ["None", "cats"]


def test_equal_ids_of_two_owners_survive_downgrade_and_upgrade(url):
    mine, owners = str(uuid.uuid4()), ("local", "ann", str(uuid.uuid4()), str(uuid.uuid4()))

    async def make(store: Any) -> None:
        for owner in owners:
            await store.create(NewConversation(id=mine, title=owner), owner=owner)

    async def look(store: Any) -> None:
        for owner in owners:
            assert (await store.load(mine, owner=owner)).title == owner

    with_store(url, make)
    down(url)
    up(url)
    with_store(url, look)


def test_branches_variants_and_pins_can_be_downgraded(url):
    async def make(store: Any) -> None:
        await say(store, "demo", "t1")
        await say(store, "demo", "t2")
        await say_again(store, "demo", "t3", place="t2", text="another")
        await store.update("demo", Changes(pins=(1,)))
        await store.branch("demo", NewConversation(id="branch"), at=2)

    async def texts(store: Any) -> list[list[str]]:
        loaded = [await store.load(ref) for ref in ("demo", "branch")]
        return [[message.text for message in each.messages] for each in loaded]

    with_store(url, make)
    before = with_store(url, texts)
    down(url)
    up(url)
    assert with_store(url, texts) == before


def test_only_earlier_revisions_are_downgrade_targets(url):
    Database(url).run(migrate.upgrade, create=True)
    for to in ("", "0000", "000", "0002x", "xyz", "base", "head", HEAD):
        with pytest.raises(UsageError, match=r"use an earlier one: 0001, 0002, 0005, 0006, 0007\."):
            down(url, to)
        assert Database(url).run(migrate.current_revision) == HEAD


def test_every_command_refuses_an_unknown_revision(url):
    Database(url).run(migrate.upgrade, create=True)
    table = sa.table("cllm_revision", sa.column("version_num"))
    for revision in ("9999", "0002x", "0000", ""):
        change = sa.update(table).values(version_num=revision)
        Database(url).run(partial(_execute, change=change))
        with pytest.raises(StoreUnavailableError, match="does not know"):
            up(url)
        with pytest.raises(StoreUnavailableError, match="does not know"):
            down(url)
        with pytest.raises(StoreUnavailableError, match="does not know"):
            with_store(url, lambda store: store.list_conversations())
        assert "does not know" in Database(url).run(migrate.find_differences)[0]


def test_every_command_refuses_two_revisions(url):
    Database(url).run(migrate.upgrade, create=True)
    table = sa.table("cllm_revision", sa.column("version_num"))
    Database(url).run(lambda bind: bind.execute(sa.insert(table).values(version_num="0002")))
    for work in (
        migrate.current_revision,
        migrate.upgrade,
        migrate.find_differences,
        migrate.adopt,
    ):
        with pytest.raises(StoreUnavailableError, match="2 revisions"):
            Database(url).run(work)
    with pytest.raises(StoreUnavailableError, match="2 revisions"):
        with_store(url, lambda store: store.list_conversations())


def test_a_database_with_half_of_the_legacy_tables_is_not_adopted(url):
    def half(bind: sa.Connection) -> None:
        migrate.upgrade(bind, "0001")
        bind.execute(sa.text("ALTER TABLE messages DROP COLUMN reasoning_events"))
        bind.execute(sa.text("DROP TABLE cllm_revision"))

    Database(url).run(half, create=True)
    with pytest.raises(UsageError, match=r"lacks messages\.reasoning_events, .* was not changed"):
        Database(url).run(migrate.adopt)
    assert Database(url).run(migrate.current_revision) is None


def test_the_oldest_databases_without_a_column_of_costs_are_adopted(url):
    def shorten(bind: sa.Connection) -> None:
        table = older.MESSAGES
        costs = {"cost": {"total_cost": 0.00125, "total_tokens": 7}}
        reply = (table.c.sequence_number == 2) & (table.c.conversation_id == uuid.UUID(FIRST_ID))
        bind.execute(sa.update(table).where(reply).values(metadata=costs))
        bind.execute(sa.text("ALTER TABLE messages DROP COLUMN total_cost"))
        bind.execute(sa.text("ALTER TABLE messages ADD COLUMN tool_calls json"))
        bind.execute(sa.text("ALTER TABLE conversations ADD COLUMN routing_mode varchar(50)"))
        bind.execute(sa.text("DROP TABLE cllm_revision"))

    fill(url)
    Database(url).run(shorten)

    adoption = Database(url).run(migrate.adopt)
    assert (adoption.revision, adoption.conversations) == ("0001", 3)
    assert Database(url).run(migrate.find_differences) == []
    up(url)
    conversation = with_store(url, lambda store: store.load(FIRST_ID))
    assert [turn.cost for turn in conversation.turns] == [0.00125, None, None]


@pytest.mark.parametrize("revision", REVISIONS[:2])
def test_a_check_compares_the_tables_with_the_revision_of_the_database(url, revision):
    Database(url).run(lambda bind: migrate.upgrade(bind, revision), create=True)
    assert Database(url).run(migrate.find_differences) == []

    def drop(bind: sa.Connection) -> None:
        bind.execute(sa.text("ALTER TABLE messages DROP COLUMN reasoning_events"))

    Database(url).run(drop)
    differences = Database(url).run(migrate.find_differences)
    assert differences == ["missing column: messages.reasoning_events"]


def test_a_check_describes_the_differences(url):
    Database(url).run(migrate.upgrade, create=True)

    def drift(bind: sa.Connection) -> None:
        bind.execute(sa.text("ALTER TABLE turns ADD COLUMN mood TEXT"))
        bind.execute(sa.text("DROP INDEX turns_by_end"))
        bind.execute(sa.text("DROP TABLE calls"))

    Database(url).run(drift)
    found = Database(url).run(migrate.find_differences)
    assert {
        "unknown column: turns.mood",
        "missing index: turns.turns_by_end",
        "missing table: calls",
    } <= set(found)
    assert all("object at 0x" not in difference for difference in found)


def test_every_revision_can_be_upgraded_and_downgraded(url):
    for revision in REVISIONS:
        Database(url).run(partial(migrate.upgrade, to=revision), create=True)
        assert Database(url).run(migrate.current_revision) == revision
        assert Database(url).run(migrate.find_differences) == []
    for revision in REVISIONS[:-1]:
        down(url, revision)
        assert Database(url).run(migrate.current_revision) == revision
        up(url)
        assert Database(url).run(migrate.find_differences) == []


def test_turn_states_survive_downgrade_and_upgrade(url: str):
    async def talk(store: Any) -> None:
        await say(store, "demo", "t1", "zebra")
        lease = await store.begin_turn("demo", start("t2", "lost lion"))
        await store.finish_turn(lease, failed(lease))
        lease = await store.begin_turn("demo", start("t3"))
        await store.finish_turn(lease, msgspec.structs.replace(answered(lease), state="incomplete"))
        await say(store, "demo", "t4")
        await say(store, "plain", "t1")
        await store.begin_turn("demo", start("t5"))

    async def ends(store: Any) -> Any:
        turns = (await store.load("demo")).turns
        assert (await store.search("lion")).total == 0
        assert (await store.search("zebra")).total == 2
        return [(turn.state, turn.failure, turn.messages) for turn in turns]

    with_store(url, talk)
    before = with_store(url, ends)
    down(url)
    up(url)
    after = with_store(url, ends)
    states = [state for state, _, _ in after]
    assert states == ["complete", "failed", "incomplete", "complete", "failed"]
    assert after[:-1] == before[:-1]
    assert after[-1][1].code == "interrupted"


def test_messages_that_an_older_deployment_adds_become_a_new_turn(url: str):
    async def fail(store: Any) -> None:
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2"))
        await store.finish_turn(lease, failed(lease))

    def add(bind: sa.Connection) -> None:
        rows = bind.execute(sa.select(older.MESSAGES)).mappings().all()
        last = max(rows, key=lambda row: row["sequence_number"])
        more = {"id": uuid.uuid4(), "content": "More", "metadata": {}, "sequence_number": 4}
        bind.execute(sa.insert(older.MESSAGES), [dict(last) | more])

    async def shape(store: Any) -> Any:
        return [(turn.state, len(turn.messages)) for turn in (await store.load("demo")).turns]

    with_store(url, fail)
    down(url)
    Database(url).run(add)
    up(url)
    assert with_store(url, shape) == [("complete", 2), ("failed", 1), ("incomplete", 1)]


def test_parallel_upgrades_are_one_upgrade(url: str):
    fill(url)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(up, [url] * 4))
    assert Database(url).run(migrate.current_revision) == HEAD
    assert Database(url).run(migrate.find_differences) == []
    assert len(with_store(url, lambda store: store.list_conversations()).items) == 2


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_an_upgrade_whose_connection_is_killed_at_its_end_changes_nothing(url: str):
    """A file has no connection that others can kill; processes are killed elsewhere."""
    fill(url)
    before = Database(url).run(older.contents)

    def work(bind: sa.Connection) -> None:
        migrate.upgrade(bind)
        bind.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(StoreUnavailableError):
        Database(url).run(work)
    assert Database(url).run(migrate.current_revision) == "0001"
    assert Database(url).run(older.contents) == before
    up(url)
    assert Database(url).run(migrate.find_differences) == []


def test_nul_in_messages_survives_downgrade_and_upgrade(url):
    async def make(store: Any) -> None:
        await say(store, "demo", "t1", "a\0b")

    async def messages(store: Any) -> tuple[Message, ...]:
        conversation: StoredConversation = await store.load("demo")
        return conversation.messages

    with_store(url, make)
    before = with_store(url, messages)
    down(url)
    up(url)
    assert with_store(url, messages) == before


def _execute(bind: sa.Connection, change: sa.Update) -> None:
    bind.execute(change)
