"""Revisions up and down on PostgreSQL, with what older deployments and ours have stored."""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest
import sqlalchemy as sa
from tests.postgres import Server

from cllm.core.conversation import Conversation
from cllm.core.errors import ConversationBusyError, StoreUnavailableError, UsageError
from cllm.core.message import Message
from cllm.core.ports import NewConversation
from cllm.core.reply import Usage
from cllm.stores.sql import migrate
from cllm.stores.sql.connection import with_postgres
from cllm.stores.sql.postgres import PostgresStore
from cllm.stores.sql.postgres_statements import has_id
from cllm.stores.sql.search import owner_term
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
SELECT m.owner, c.id, turn, ordinal, sequence_number, raw,
    replace(array_to_string(tsvector_to_array(message_terms('', 0, raw, terms)), ' '), '0.', '')
FROM messages m JOIN conversations c ON c.owner = m.owner AND c.number = m.conversation
ORDER BY m.number
"""
"""Messages with their terms, those of the owner as of nobody."""
_NOBODY = "_" + hashlib.sha256(b"").hexdigest()[:16]
OLDER_ROWS = f"""
SELECT owner, conversation_id, turn, ordinal, sequence_number, raw,
    array_to_string(tsvector_to_array(array_to_tsvector(string_to_array(regexp_replace(
        array_to_string(tsvector_to_array(terms), ' '), '_[0-9a-f]{{16}}', '{_NOBODY}'), ' '))),
        ' ')
FROM messages ORDER BY number
"""  # noqa: S608
OLDER_SEARCH = f"""
SELECT conversation_id FROM messages WHERE terms @@ '{owner_term("local")} & words'::tsquery
"""  # noqa: S608
WITH_IDS = """
INSERT INTO conversations (owner, id, name, created_at, updated_at, metadata, parent_id,
    parent_sequence, message_count)
VALUES ('local', 'demo', 'cats', '2026-01-01Z', '2026-01-02Z', '{}', NULL, NULL, 5),
    ('ann', 'demo', NULL, '2026-01-01Z', '2026-01-02Z', '{}', NULL, NULL, 2),
    ('local', 'branch', NULL, '2026-01-01Z', '2026-01-02Z', '{}', 'demo', 2, 2),
    ('local', 'empty', NULL, '2026-01-01Z', '2026-01-02Z', '{}', NULL, NULL, 0);
INSERT INTO turns (owner, conversation_id, number, id, place, position, state, input_tokens,
    output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
    cache_write_hour_tokens, estimated, started_at, ended_at, model, "window")
SELECT owner, conversation, number, id, place, position, state, tokens, tokens * 2, tokens * 0,
    tokens * 0, tokens * 0, tokens * 0, tokens * 0, '2026-01-01Z',
    CASE state WHEN 'complete' THEN timestamptz '2026-01-02Z' END, 'm',
    '{"first_sequence":1,"sent_messages":1}'
FROM (VALUES ('local', 'demo', 1, 't1', 't1', 1, 'complete', 3),
    ('local', 'demo', 2, 't2', 't2', NULL, 'complete', 0),
    ('local', 'demo', 3, 't3', 't2', 2, 'complete', NULL),
    ('local', 'demo', 4, 't4', 't4', 4, 'running', NULL),
    ('ann', 'demo', 1, 't1', 't1', 1, 'complete', 7),
    ('local', 'branch', 1, 't1', 't1', 1, 'complete', 3)
) AS t(owner, conversation, number, id, place, position, state, tokens);
INSERT INTO messages (owner, conversation_id, turn, ordinal, sequence_number, role, dialect, raw)
SELECT t.owner, t.conversation_id, t.number, m.ordinal, t.position * 2 - 1 + m.ordinal
    - CASE t.number WHEN 4 THEN 2 ELSE 0 END, m.role, 'openai',
    '{"role":"' || m.role || '","content":"zebra ' || t.owner || ' ' || t.id || '"}'
FROM turns t JOIN (VALUES (0, 'user'), (1, 'assistant')) AS m(ordinal, role)
    ON t.state = 'complete' OR m.ordinal = 0
ORDER BY t.number, t.owner, t.conversation_id, m.ordinal;
INSERT INTO leases (owner, conversation_id, turn_id, fence, creates, expires_at)
VALUES ('local', 'demo', 't4', nextval('fences'), 0, now() + interval '1 hour');
"""
"""Rows of revision 0004: variants, a branch, two owners with one id, a turn that runs."""
KEPT_TABLES = ("conversations", "turns", "messages", "leases")
MANY_WITH_IDS = """
INSERT INTO conversations (owner, id, created_at, updated_at, metadata, message_count)
SELECT 'local', gen_random_uuid(), now(), now(), '{}', 2 FROM generate_series(1, 500);
INSERT INTO turns (owner, conversation_id, number, id, place, position, state, input_tokens,
    output_tokens, cache_read_tokens, started_at, ended_at)
SELECT 'local', id, 1, 't1', 't1', 1, 'complete', 3, 4, 0, now(), now() FROM conversations;
INSERT INTO messages (owner, conversation_id, turn, ordinal, sequence_number, role, dialect, raw)
SELECT 'local', id, 1, at, at + 1, 'user', 'openai', '{"role":"user","content":"'
    || (SELECT string_agg(md5(id || word || at), ' ') FROM generate_series(1, 30) AS word) || '"}'
FROM conversations, generate_series(0, 1) AS at;
DELETE FROM turns WHERE hashtext(conversation_id) % 2 = 0;
"""
LONG = """
INSERT INTO conversations (owner, id, number, created_at, updated_at, metadata, message_count)
VALUES ('local', 'demo', 1, now(), now(), '{}', 0);
INSERT INTO turns (owner, conversation, number, id, state, started_at)
SELECT 'local', 1, number, 't' || number, 'failed', now() FROM generate_series(1, 2000) AS number;
ANALYZE turns;
"""
SIZES = """
SELECT relname, pg_relation_size(oid) FROM pg_class
WHERE relname IN ('conversations', 'turns', 'messages') OR relname ~ '^(turns|messages)_by_'
"""


class Database:
    """An empty database, and migrations in it."""

    def __init__(self, server: Server, name: str) -> None:
        self.url = server.url(name)
        self._server = server
        self._name = name

    async def do(self, work: Callable[[sa.Connection], T]) -> T:
        return await asyncio.to_thread(with_postgres, self.url, work)

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

    async def whole_rows(self) -> dict[str, list[Any]]:
        """Every column of every row, whatever the order of either."""
        found = {}
        for table in KEPT_TABLES:
            sql = f"SELECT to_jsonb(t)::text FROM {table} AS t ORDER BY 1"  # noqa: S608
            found[table] = await self.execute(sql)
        return found

    async def older_rows(self) -> list[list[Any]]:
        return [await self.execute(sql) for sql in (OLDER_CONVERSATIONS, OLDER_MESSAGES)]

    def store(self) -> PostgresStore:
        return PostgresStore(self.url, clock=lambda: datetime.now(UTC))

    async def load(self, ref: str) -> Conversation:
        store = self.store()
        try:
            return await store.load(ref)
        finally:
            await store.close()


@pytest.fixture
def older(postgres_server: Server, empty_database: str) -> Database:
    return Database(postgres_server, empty_database)


async def test_what_was_filled_at_the_first_revision_is_whole_at_the_head(older: Database):
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


async def test_up_down_and_up_again_leaves_every_row_as_it_was(older: Database):
    await older.fill_first()
    before = await older.older_rows()
    await older.upgrade()
    at_head = await older.load(FIRST_ID)
    await older.downgrade("0001")
    assert await older.older_rows() == before
    await older.upgrade()
    assert await older.load(FIRST_ID) == at_head


async def test_what_only_we_can_store_survives_going_down_and_up(older: Database):
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


async def test_what_was_filled_with_its_terms_is_whole_and_found(older: Database):
    store = older.store()
    said = {"en": "Two words", "de": "Größe", "ja": "東京です", "kept": "\ufb01ne", "none": "?!"}
    for ref, text in said.items():
        await say(store, ref, "t1", text)
    new = NewConversation(id="another")
    lease = await store.begin_turn("another", start("t1", "words"), owner="somebody", create=new)
    await store.finish_turn(lease, answered(lease))
    before = [await store.load(ref) for ref in said]
    rows = await older.execute(ROWS)
    await store.close()
    await older.downgrade("0003")
    assert await older.execute(OLDER_ROWS) == rows
    found = await older.execute(OLDER_SEARCH)
    assert [row[0] for row in found] == ["en", "en"]
    await older.upgrade()
    assert await older.execute(ROWS) == rows
    assert await older.do(migrate.differences) == []
    store = older.store()
    assert [await store.load(ref) for ref in said] == before
    for ref, word in (("en", "words"), ("de", "größe"), ("ja", "京で"), ("kept", "fine")):
        assert {hit.conversation for hit in (await store.search(word)).items} == {ref}
    await say(store, "en", "t2", "Two more")
    assert (await store.search("two")).total == 4
    await store.close()


async def test_what_was_filled_with_ids_in_its_keys_is_whole_at_the_head(older: Database):
    await older.fill("0004", WITH_IDS)
    await older.upgrade()
    demo = await older.load("cats")
    assert [(turn.id, turn.place) for turn in demo.turns] == [
        ("t1", "t1"),
        ("t3", "t2"),
        ("t4", "t4"),
    ]
    assert [(turn.id, turn.place) for turn in demo.variants] == [("t2", "t2")]
    assert [turn.usage for turn in demo.turns] == [Usage(input=3, output=6), None, None]
    assert demo.variants[0].usage == Usage()
    said = [f"zebra local {turn}" for turn in ("t1", "t1", "t3", "t3", "t4")]
    assert texts(demo) == said
    store = older.store()
    assert texts(await store.load("demo", owner="ann")) == ["zebra ann t1"] * 2
    assert texts(await store.load("branch")) == said[:2]
    hits = await store.search("zebra")
    assert sorted(hit.conversation for hit in hits.items) == ["branch"] * 2 + ["demo"] * 4
    (used,) = await store.usage(by="model")
    assert (used.calls, used.usage) == (3, Usage(input=6, output=12))
    with pytest.raises(ConversationBusyError) as busy:
        await store.begin_turn("demo", start("t5"))
    assert busy.value.turn_id == "t4"
    await say(store, "branch", "t2")
    with pytest.raises(UsageError, match="already has a turn 't2'"):
        await say(store, "branch", "t2")
    await store.delete("branch")
    await store.close()


async def test_keys_with_ids_come_back_with_every_row_as_it_was(older: Database):
    await older.fill("0004", WITH_IDS)
    before = await older.whole_rows()
    await older.upgrade()
    await older.downgrade("0004")
    assert await older.whole_rows() == before
    await older.upgrade()
    assert await older.do(migrate.differences) == []


async def test_a_turn_that_runs_meanwhile_is_finished_by_its_lease(older: Database):
    store = older.store()
    await say(store, "demo", "t1")
    lease = await store.begin_turn("demo", start("t2", "more"))
    await store.close()
    await older.downgrade("0004")
    await older.upgrade()
    store = older.store()
    await store.finish_turn(lease, answered(lease, "enough"))
    assert texts(await store.load("demo")) == ["Hello", "Hello?", "more", "enough"]
    await store.close()


async def test_a_database_that_was_brought_up_is_as_small_as_it_can_be(older: Database):
    await older.fill("0004", MANY_WITH_IDS)
    await older.upgrade()
    # Gives back the pages at the end that were made to be ready for more.
    await older.execute("VACUUM")
    sizes = dict(await older.execute(SIZES))
    await older.execute("VACUUM FULL")
    for relation, least in await older.execute(SIZES):
        assert sizes[relation] <= 1.05 * least, relation


async def test_of_a_turn_is_kept_what_does_not_go_without_saying(older: Database):
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


async def test_a_turn_is_found_by_its_id_without_a_walk(older: Database):
    await older.fill("head", LONG)
    known = "SELECT number FROM turns WHERE owner = 'local' AND conversation = 1 AND "
    plan = await older.execute("EXPLAIN " + known + has_id("'t1000'"))
    assert "turns_by_id" in plan[0][0]
    assert [row[0] for row in await older.execute(known + has_id("'t1000'"))] == [1000]


async def test_a_check_sees_that_ids_are_told_apart_otherwise(older: Database):
    await older.upgrade()
    await older.execute("DROP INDEX turns_by_id")
    assert "missing index: turns.turns_by_id" in await older.do(migrate.differences)
    await older.execute("CREATE UNIQUE INDEX turns_by_id ON turns (owner, conversation, place)")
    assert await older.do(migrate.differences) != []


async def test_the_downgrade_restores_the_column_with_its_default_and_no_prompt(older: Database):
    await older.fill_first()
    await older.upgrade()
    await older.downgrade("0001")
    rows = await older.execute("SELECT DISTINCT system_message FROM conversations")
    assert [row[0] for row in rows] == ["You are a helpful assistant."]
    await older.execute("INSERT INTO conversations (id) VALUES (gen_random_uuid())")


async def test_the_tables_are_those_that_the_migrations_lead_to(older: Database):
    await older.upgrade()
    assert await older.do(migrate.differences) == []
    await older.execute("ALTER TABLE turns DROP COLUMN provider")
    assert await older.do(migrate.differences) != []


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


async def test_an_empty_database_is_brought_up_by_whoever_comes_first(older: Database):
    stores = [older.store() for _ in range(6)]
    await asyncio.gather(*(say(store, f"c{at}", "t1") for at, store in enumerate(stores)))
    assert await stores[0].count_conversations() == 6
    for store in stores:
        await store.close()


async def test_a_filled_older_database_is_refused_and_left_alone(older: Database):
    await older.fill_first()
    before = await older.older_rows()
    with pytest.raises(StoreUnavailableError, match="cllm db upgrade"):
        await older.load(FIRST_ID)
    assert await older.older_rows() == before
