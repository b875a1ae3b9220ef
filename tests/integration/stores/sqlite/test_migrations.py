"""The way up and down between revisions, in SQLite."""

import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import sqlalchemy as sa
from tests import older_deployment as older

from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.core.message import Message
from cllm.core.ports import NewConversation
from cllm.stores.sql import HEAD, migrate
from cllm.stores.sql.database import Database
from cllm.stores.sqlite import statements
from cllm.stores.sqlite.connection import erase_deleted_rows, run_in_sqlite
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import answered, say, start

FIRST_ID = "00000000-0000-0000-0000-000000000100"
SECOND_ID = "00000000-0000-0000-0000-000000000101"


def fill(path: Path) -> None:
    def work(bind: sa.Connection) -> None:
        migrate.upgrade(bind, "0001")
        older.fill(bind)

    run_in_sqlite(path, work)


def down_to(path: Path, revision: str) -> None:
    run_in_sqlite(path, lambda bind: migrate.downgrade(bind, revision))


def open_store(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=lambda: datetime.now(UTC))


def dump(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of ours."""
    own = sqlite3.connect(path)
    names = ("conversations", "turns", "messages")
    found = {name: own.execute(f"SELECT * FROM {name}").fetchall() for name in names}  # noqa: S608
    own.close()
    return found


def test_objects_of_others_have_no_rights_while_a_command_uses_the_file(database):
    def read_setting(bind: sa.Connection) -> object:
        return bind.exec_driver_sql("PRAGMA trusted_schema").scalar()

    assert run_in_sqlite(database, read_setting) == 0


def test_the_migrations_create_the_tables(database):
    run_in_sqlite(database, migrate.upgrade)
    assert run_in_sqlite(database, migrate.find_differences) == []


def test_a_changed_table_is_reported(database):
    run_in_sqlite(database, migrate.upgrade)
    own = sqlite3.connect(database)
    own.execute("ALTER TABLE turns ADD COLUMN mood TEXT")
    own.close()
    assert "mood" in str(run_in_sqlite(database, migrate.find_differences))


def test_every_statement_fits_the_newest_revision(database):
    run_in_sqlite(database, migrate.upgrade)
    own = sqlite3.connect(database)
    texts = _runnable(statements)
    for text in texts:
        own.execute(f"EXPLAIN {text}", _nothing_for(text))
    own.close()
    assert len(texts) > 50


def _runnable(module: ModuleType) -> list[str]:
    named = [each for name, each in vars(module).items() if name.isupper()]
    texts = [
        text for each in named for text in (each.values() if isinstance(each, dict) else [each])
    ]
    kinds = {"SELECT", "INSERT", "UPDATE", "DELETE"}
    return [text for text in texts if isinstance(text, str) and text[:6] in kinds]


def _nothing_for(text: str) -> tuple[None, ...]:
    """Return as many values as the statement has parameters."""
    numbers = [int(number) for number in re.findall(r"\?(\d+)", text)]
    return (None,) * (max(numbers, default=0) or text.count("?"))


def test_no_statement_reads_a_whole_table_of_turns_or_messages(database):
    run_in_sqlite(database, migrate.upgrade)
    own = sqlite3.connect(database)
    text = " ".join(
        step
        for statement in _runnable(statements)
        for *_, step in own.execute(f"EXPLAIN QUERY PLAN {statement}", _nothing_for(statement))
    )
    own.close()
    assert "SEARCH messages USING" in text
    assert not re.search(r"SCAN (turns|messages|t|m)\b", text)


async def test_an_older_database_is_upgraded_completely(database):
    fill(database)
    run_in_sqlite(database, migrate.upgrade)
    store = open_store(database)
    mine = await store.list_conversations(archive_filter="all")
    assert [item.id for item in mine.items] == [FIRST_ID[:-3] + "102", FIRST_ID]
    first = await store.load(FIRST_ID)
    assert [(turn.state, len(turn.messages)) for turn in first.turns] == [
        ("complete", 2),
        ("complete", 5),
        ("incomplete", 1),
    ]
    contents = [(message.json()["role"], message.json()["content"]) for message in first.messages]
    assert contents == [(role, content) for role, content, _, _ in older.MESSAGE_ROWS]
    assert first.created_at == older.STARTED.replace(tzinfo=UTC)
    assert first.metadata == {"tags": ["a", 0], "deep": {"é": None}}
    assert [turn.cost for turn in first.turns] == [
        pytest.approx(0.00125),
        pytest.approx(0.00075),
        None,
    ]
    last = older.STARTED.replace(tzinfo=UTC) + timedelta(seconds=7)
    assert first.turns[1].ended_at == last
    assert first.system_record is not None
    assert first.system_record.policy == "dynamic"
    assert not first.has_system_message()
    anns = await store.load(SECOND_ID, owner=str(older.ANN))
    assert (anns.title, anns.archived_at) == ("Title 1 \U0001f680", anns.created_at)
    assert [hit.sequence for hit in (await store.search("luna 猫")).items] == [2]
    await say(store, FIRST_ID, "t1")
    assert (await store.summary(FIRST_ID)).message_count == len(older.MESSAGE_ROWS) + 2
    await store.close()


def test_upgrade_downgrade_upgrade_changes_nothing(database):
    fill(database)
    before = run_in_sqlite(database, older.contents)
    run_in_sqlite(database, migrate.upgrade)
    first = dump(database)
    down_to(database, "0001")
    assert run_in_sqlite(database, older.contents) == before
    run_in_sqlite(database, migrate.upgrade)
    assert dump(database) == first


async def test_later_turns_survive_downgrade_and_upgrade(database):
    store = open_store(database)
    thinking = Message(
        role="assistant",
        dialect="anthropic",
        raw=b'{"role":"assistant","content":[{"type":"text","text":"ok"}]}',
    )
    lease = await store.begin_turn(
        "demo", start("t1"), create=NewConversation(id="demo", model="m")
    )
    turn = answered(lease)
    whole = msgspec.structs.replace(turn, messages=(*turn.messages, thinking))
    await store.finish_turn(lease, whole)
    await store.create(NewConversation(id="c-2", name="cats"), owner="somebody")
    before = await store.load("demo")
    await store.close()
    down_to(database, "0002")
    run_in_sqlite(database, migrate.upgrade)
    store = open_store(database)
    after = await store.load("demo")
    assert after.messages == before.messages
    assert (after.model, after.created_at) == ("m", before.created_at)
    assert (await store.load("cats", owner="somebody")).id == "c-2"
    await store.close()


def test_the_downgrade_restores_the_column_with_its_default(database):
    fill(database)
    run_in_sqlite(database, migrate.upgrade)
    down_to(database, "0001")
    own = sqlite3.connect(database)
    default = "You are a helpful assistant."
    assert set(own.execute("SELECT system_message FROM conversations")) == {(default,)}
    own.execute("INSERT INTO conversations (id) VALUES ('x')")
    query = "SELECT system_message FROM conversations WHERE id = 'x'"
    assert own.execute(query).fetchone() == (default,)
    own.close()


def test_removed_system_prompts_leave_no_trace_in_the_file(database):
    fill(database)
    assert older.PROMPT.encode() in database.read_bytes()
    run_in_sqlite(database, migrate.upgrade)
    erase_deleted_rows(database)
    for path in database.parent.glob("cllm.db*"):
        assert older.PROMPT.encode() not in path.read_bytes()
    assert run_in_sqlite(database, migrate.find_differences) == []


async def test_an_older_database_is_refused_and_not_changed(database):
    fill(database)
    store = open_store(database)
    with pytest.raises(StoreUnavailableError, match="cllm db upgrade"):
        await store.list_conversations()
    await store.close()
    assert run_in_sqlite(database, migrate.current_revision) == "0001"


@pytest.mark.parametrize(
    ("revision", "advice"),
    [
        ("9999", "use the newer version"),
        ("0003", "of an unreleased development version; run cllm db upgrade with that version"),
        ("0004", "of an unreleased development version; run cllm db upgrade with that version"),
    ],
)
async def test_a_database_at_an_unknown_revision_is_refused(database, revision, advice):
    run_in_sqlite(database, migrate.upgrade)
    own = sqlite3.connect(database)
    own.execute("UPDATE cllm_revision SET version_num = ?", (revision,))
    own.commit()
    own.close()
    store = open_store(database)
    with pytest.raises(StoreUnavailableError, match=advice):
        await store.list_conversations()
    await store.close()
    with pytest.raises(StoreUnavailableError, match=advice):
        run_in_sqlite(database, migrate.upgrade)


def test_a_failed_migration_changes_nothing(database):
    fill(database)
    own = sqlite3.connect(database)
    own.execute("UPDATE messages SET id = 'no uuid' WHERE rowid = 3")
    own.commit()
    own.close()
    before = run_in_sqlite(database, _shape)
    with pytest.raises(StoreUnavailableError, match="was not changed"):
        Database(f"sqlite:{database}").run(migrate.upgrade)
    assert run_in_sqlite(database, migrate.current_revision) == "0001"
    assert run_in_sqlite(database, _shape) == before


def _shape(bind: sa.Connection) -> object:
    return bind.exec_driver_sql("SELECT type, name, sql FROM sqlite_master ORDER BY name").all()


def test_only_an_earlier_revision_is_a_downgrade_target(database):
    run_in_sqlite(database, migrate.upgrade)
    with pytest.raises(UsageError):
        down_to(database, HEAD)
