"""Revisions up and down on PostgreSQL, with what older deployments and ours have stored."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest
import sqlalchemy as sa
from tests.postgres import Server

from cllm.core.conversation import StoredConversation
from cllm.core.errors import StoreUnavailableError
from cllm.core.message import Message
from cllm.core.ports import NewConversation
from cllm.stores.postgres.connection import run_in_postgres
from cllm.stores.postgres.statements import turn_has_id
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sql import UNRELEASED_REVISIONS, migrate
from cllm.testing.store_contract import answered, failed, say, say_again, start, texts

T = TypeVar("T")

FIRST_ID = "11111111-1111-4111-8111-111111111111"
USER_ID = "22222222-2222-4222-8222-222222222222"
SECRET = "Talk like a pirate."
FILLED = f"""
INSERT INTO conversations (id, title, system_message, created_at, updated_at, metadata)
VALUES ('{FIRST_ID}', 'Größe 日本', '{SECRET}', '2024-01-02 03:04:05.000006',
    '2024-01-02 03:05:00', '{{"tags": ["ä", 1]}}');
INSERT INTO conversations (id, user_id) VALUES (gen_random_uuid(), '{USER_ID}');
INSERT INTO messages (id, conversation_id, role, content, reasoning_events, metadata, total_cost,
    sequence_number)
SELECT gen_random_uuid(), '{FIRST_ID}', CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END,
    'Nachricht ' || n || ' 検索', '["thought"]', '{{"n": 1}}', 0.000123, n
FROM generate_series(1, 20) n;
"""  # noqa: S608
OLDER_CONVERSATIONS = """
SELECT id::text, user_id::text, title, created_at, updated_at, archived_at, metadata::jsonb::text
FROM conversations ORDER BY id
"""
OLDER_MESSAGES = """
SELECT id::text, conversation_id::text, role, content, reasoning_events::jsonb::text,
    metadata::jsonb::text, total_cost, created_at, sequence_number
FROM messages ORDER BY conversation_id, sequence_number
"""
ROWS = """
SELECT m.owner, c.id, t.number, ordinal, first_sequence + ordinal, raw,
    replace(array_to_string(tsvector_to_array(message_terms('', 0, raw, terms)), ' '), '0.', '')
FROM messages m JOIN turns t ON t.owner = m.owner AND t.message_group = m.message_group
JOIN conversations c ON c.owner = t.owner AND c.number = t.conversation
"""
"""Messages with their terms, those of the owner as of nobody."""
LONG = """
INSERT INTO conversations (owner, id, number, created_at, updated_at, metadata, message_count)
VALUES ('local', 'demo', 1, now(), now(), '{}', 0);
INSERT INTO turns (owner, conversation, number, message_group, id, state, started_at)
SELECT 'local', 1, number, number, 't' || number, 'failed', now()
FROM generate_series(1, 2000) AS number;
ANALYZE turns;
"""


class Database:
    """An empty database, and migrations in it."""

    def __init__(self, server: Server, name: str) -> None:
        self.url = server.url(name)
        self._server = server
        self._name = name

    async def do(self, work: Callable[[sa.Connection], T]) -> T:
        return await asyncio.to_thread(run_in_postgres, self.url, work)

    async def execute(self, sql: str) -> list[Any]:
        return await self._server.execute(sql, database=self._name)

    async def upgrade(self, to: str = "head") -> None:
        await self.do(lambda bind: migrate.upgrade(bind, to))

    async def downgrade(self, to: str) -> None:
        await self.do(lambda bind: migrate.downgrade(bind, to))

    async def fill_first(self) -> None:
        await self.fill("0001", FILLED)

    async def fill(self, revision: str, statements: str) -> None:
        await self.upgrade(revision)
        for statement in statements.split(";")[:-1]:
            await self.execute(statement)

    async def older_rows(self) -> list[list[Any]]:
        return [await self.execute(sql) for sql in (OLDER_CONVERSATIONS, OLDER_MESSAGES)]

    def store(self) -> PostgresStore:
        return PostgresStore(self.url, clock=lambda: datetime.now(UTC))

    async def load(self, ref: str) -> StoredConversation:
        store = self.store()
        try:
            return await store.load(ref)
        finally:
            await store.close()


@pytest.fixture
def older(postgres_server: Server, empty_database: str) -> Database:
    return Database(postgres_server, empty_database)


async def test_a_database_of_the_first_revision_is_complete_at_the_head(older: Database):
    await older.fill_first()
    await older.upgrade()
    loaded = await older.load(FIRST_ID)
    assert loaded.title == "Größe 日本"
    assert loaded.metadata == {"tags": ["ä", 1]}
    assert loaded.created_at == datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert texts(loaded) == [f"Nachricht {number} 検索" for number in range(1, 21)]
    store = older.store()
    assert (await store.search("検索")).total == 20
    assert await store.count_conversations(owner=USER_ID) == 1
    await say(store, FIRST_ID, "new")
    assert (await store.load(FIRST_ID)).message_count == 22
    await store.close()


async def test_upgrade_downgrade_upgrade_keeps_every_row(older: Database):
    await older.fill_first()
    before = await older.older_rows()
    await older.upgrade()
    at_head = await older.load(FIRST_ID)
    await older.downgrade("0001")
    assert await older.older_rows() == before
    await older.upgrade()
    assert await older.load(FIRST_ID) == at_head


async def test_fields_without_a_legacy_column_survive_downgrade_and_upgrade(older: Database):
    store = older.store()
    reply = Message(
        role="assistant",
        dialect="anthropic",
        raw=b'{"role":"assistant","content":[{"type":"text","text":"1.50e3 \\u00e9"}]}',
    )
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    messages = (*answered(lease).messages, reply)
    await store.finish_turn(lease, msgspec.structs.replace(answered(lease), messages=messages))
    before = await store.load("demo")
    await store.close()
    await older.downgrade("0001")
    await older.upgrade()
    after = await older.load("demo")
    assert after.messages == before.messages
    assert (after.id, after.title, after.owner) == (before.id, before.title, before.owner)


async def test_an_upgraded_database_is_searchable(older: Database):
    store = older.store()
    texts_by_ref = {
        "en": "Two words",
        "de": "Größe",
        "ja": "東京です",
        "kept": "\ufb01ne",
        "none": "?!",
    }
    for ref, text in texts_by_ref.items():
        await say(store, ref, "t1", text)
    new = NewConversation(id="another")
    lease = await store.begin_turn("another", start("t1", "words"), owner="somebody", create=new)
    await store.finish_turn(lease, answered(lease))
    before = [await store.load(ref) for ref in texts_by_ref]
    rows = await older.execute(ROWS)
    await store.close()
    await older.downgrade("0002")
    await older.upgrade()
    assert sorted(await older.execute(ROWS)) == sorted(rows)
    assert await older.do(migrate.find_differences) == []
    store = older.store()
    assert [(await store.load(ref)).messages for ref in texts_by_ref] == [
        each.messages for each in before
    ]
    for ref, word in (("en", "words"), ("de", "größe"), ("ja", "京で"), ("kept", "fine")):
        assert {hit.conversation for hit in (await store.search(word)).items} == {ref}
    await say(store, "en", "t2", "Two more")
    assert (await store.search("two")).total == 4
    await store.close()


async def test_a_turn_is_stored_without_default_values(older: Database):
    store = older.store()
    await say(store, "demo", "t1")
    await say_again(store, "demo", "t2", place="t1", text="another")
    lease = await store.begin_turn("demo", start("t3"))
    await store.finish_turn(lease, failed(lease))
    rows = await older.execute(
        "SELECT id, place, input_tokens, output_tokens, reasoning_tokens, estimated FROM turns"
        " ORDER BY number"
    )
    assert [tuple(row) for row in rows] == [
        ("t1", None, 3, 4, None, None),
        ("t2", "t1", 3, 4, None, None),
        ("t3", None, None, None, None, None),
    ]
    await store.close()


async def test_a_turn_is_found_by_its_id_without_a_scan(older: Database):
    await older.fill("head", LONG)
    known = "SELECT number FROM turns WHERE owner = 'local' AND conversation = 1 AND "
    plan = await older.execute("EXPLAIN " + known + turn_has_id("'t1000'"))
    assert "turns_by_id" in plan[0][0]
    assert [row[0] for row in await older.execute(known + turn_has_id("'t1000'"))] == [1000]


async def test_a_check_reports_a_different_index_on_ids(older: Database):
    await older.upgrade()
    await older.execute("DROP INDEX turns_by_id")
    assert "missing index: turns.turns_by_id" in await older.do(migrate.find_differences)
    await older.execute("CREATE UNIQUE INDEX turns_by_id ON turns (owner, conversation, place)")
    assert await older.do(migrate.find_differences) != []


async def test_the_downgrade_restores_the_column_with_its_default_and_no_prompt(older: Database):
    await older.fill_first()
    await older.upgrade()
    await older.downgrade("0001")
    rows = await older.execute("SELECT DISTINCT system_message FROM conversations")
    assert [row[0] for row in rows] == ["You are a helpful assistant."]
    await older.execute("INSERT INTO conversations (id) VALUES (gen_random_uuid())")


async def test_the_tables_match_the_migrations(older: Database):
    await older.upgrade()
    assert await older.do(migrate.find_differences) == []
    await older.execute("ALTER TABLE turns DROP COLUMN provider")
    assert await older.do(migrate.find_differences) != []


async def test_a_deployment_with_its_own_revision_table_is_adopted(older: Database):
    await older.fill_first()
    await older.execute("DROP TABLE cllm_revision")
    await older.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
    with pytest.raises(StoreUnavailableError, match="cllm db adopt"):
        await older.load(FIRST_ID)
    adoption = await older.do(migrate.adopt)
    assert (adoption.revision, adoption.conversations, adoption.without_user) == ("0001", 2, 1)
    await older.upgrade()
    assert (await older.load(FIRST_ID)).owner == "local"


async def test_the_first_store_creates_the_tables(older: Database):
    stores = [older.store() for _ in range(6)]
    await asyncio.gather(*(say(store, f"c{at}", "t1") for at, store in enumerate(stores)))
    assert await stores[0].count_conversations() == 6
    for store in stores:
        await store.close()


async def test_an_older_database_is_refused_and_not_changed(older: Database):
    await older.fill_first()
    before = await older.older_rows()
    with pytest.raises(StoreUnavailableError, match="cllm db upgrade"):
        await older.load(FIRST_ID)
    assert await older.older_rows() == before


@pytest.mark.parametrize("revision", UNRELEASED_REVISIONS)
async def test_a_database_at_an_unreleased_revision_is_refused(older: Database, revision: str):
    await older.upgrade()
    await older.execute(f"UPDATE cllm_revision SET version_num = '{revision}'")  # noqa: S608
    with pytest.raises(StoreUnavailableError, match=f"{revision} of an unreleased"):
        await older.load(FIRST_ID)
    with pytest.raises(StoreUnavailableError, match="development version"):
        await older.upgrade()


async def test_an_upgrade_analyzes_the_tables(older: Database):
    await older.fill_first()
    await older.upgrade()
    known = await older.execute("SELECT DISTINCT tablename FROM pg_stats")
    assert {"conversations", "turns", "messages"} <= {row[0] for row in known}
