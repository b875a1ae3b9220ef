"""How PostgreSQL does what the store says: by which index, and in words that Citus takes too."""

import re
from importlib import import_module
from pkgutil import iter_modules

import pytest
from tests.postgres import Server

from cllm.stores import postgres
from cllm.stores.postgres.list_statements import FIND_PATHS
from cllm.stores.postgres.request_statements import DROP_OLD_EVENTS

LONG = """
INSERT INTO conversations (owner, id, created_at, updated_at, metadata, message_count)
SELECT 'local', 'c' || n, now(), now(), '{}', 0 FROM generate_series(1, 1000) AS n;
INSERT INTO turns
    (owner, conversation, number, position, message_group, id, state, started_at, ended_at)
SELECT 'local', c.number, n, n, nextval('message_groups'), 't' || n, 'complete', now(), now()
FROM conversations c
CROSS JOIN LATERAL generate_series(1, CASE c.id WHEN 'c1' THEN 2000 ELSE 1 END) AS n;
INSERT INTO events (owner, conversation_id, turn_id, number, data)
SELECT 'local', 'c1', 't2000', n, 'x' FROM generate_series(1, 100) AS n;
"""
"""Events of the last turn of a long conversation, among many short ones."""
MESSAGES = """
INSERT INTO messages (owner, message_group, ordinal, role, dialect, raw, digest)
SELECT owner, message_group, 0, 'user', 'openai', '{}',
    sha256((conversation || '.' || number)::bytea) FROM turns
"""


@pytest.mark.parametrize("analyze", ["", "ANALYZE conversations, turns, events"])
async def test_deleting_old_events_scans_no_conversation(
    postgres_server: Server, database: str, analyze: str
):
    for statement in (*LONG.split(";")[:-1], analyze):
        await postgres_server.execute(statement, database=database)

    old = DROP_OLD_EVENTS.replace("$1", "'2020-01-01Z'")
    lines = await postgres_server.execute(f"EXPLAIN {old}", database=database)

    plan = "\n".join(row[0] for row in lines)
    assert "turns_by_id" in plan
    assert "turns_by_position" not in plan
    assert "Seq Scan on turns" not in plan


@pytest.mark.parametrize("any_ids", [False, True])
@pytest.mark.parametrize("analyze", ["", "ANALYZE conversations, turns, messages"])
async def test_paths_are_found_by_an_index(
    postgres_server: Server, database: str, analyze: str, any_ids: bool
):
    for statement in (*LONG.split(";")[:-1], MESSAGES, analyze):
        await postgres_server.execute(statement, database=database)
    text = FIND_PATHS[any_ids].replace("$1", "'local'").replace("$3", "0").replace("$4", "NULL")
    text = text.replace("$2", r"ARRAY['\x01', '\x02']")

    lines = await postgres_server.execute(f"EXPLAIN {text}", database=database)

    plan = "\n".join(row[0] for row in lines)
    assert plan.count("messages_by_digest") == 2
    assert "Seq Scan" not in plan


def _statements() -> dict[str, str]:
    """All constant texts of the store's modules."""
    modules = [
        import_module(f"{postgres.__name__}.{found.name}")
        for found in iter_modules(postgres.__path__)
    ]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, str) and not name.startswith("__")
    }


def test_no_insert_has_a_subquery_in_its_values():
    """PostgreSQL takes `VALUES (…, (SELECT …))`, Citus does not."""
    statements = _statements()
    assert any("INSERT INTO turns" in text for text in statements.values())
    pattern = re.compile(r"VALUES\s*\([^;]*\(\s*SELECT")
    assert [name for name, text in statements.items() if pattern.search(text)] == []
