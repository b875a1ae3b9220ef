"""Whose the tables are, and who may use them, is the same after a revision that makes them anew."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from tests.postgres import Server

from cllm.stores.sql import migrate
from cllm.stores.sql.connection import with_postgres

BEFORE = "0004"
OWNER, USER = "cllm_owner", "cllm_user"
TABLES = ("conversations", "turns", "messages")
RIGHTS = """
SELECT relname, pg_get_userbyid(relowner), (
    SELECT array_agg(concat_ws(' ', a.grantee::regrole, a.privilege_type, a.is_grantable)
        ORDER BY a.grantee, a.privilege_type) FROM aclexplode(relacl) a)
FROM pg_class WHERE relname IN ('conversations', 'turns', 'messages') ORDER BY relname
"""
ONE_TURN = """
WITH made AS (INSERT INTO conversations (owner, id, created_at, updated_at, metadata, message_count)
    VALUES ('local', 'demo', now(), now(), '{}', 0))
INSERT INTO turns (owner, conversation_id, number, id, place, position, state, started_at)
VALUES ('local', 'demo', 1, 't1', 't1', 1, 'failed', now())
"""
LOOKED_AT = "SELECT DISTINCT tablename FROM pg_stats WHERE schemaname = 'public'"


class Database:
    """A database at the revision before, whose tables belong to one role and serve another."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name

    async def run(self, sql: str) -> list[Any]:
        return await self._server.execute(sql, database=self._name)

    async def upgrade(self, to: str = "head") -> None:
        await self._do(partial(migrate.upgrade, to=to))

    async def downgrade(self) -> None:
        await self._do(partial(migrate.downgrade, to=BEFORE))

    async def _do(self, step: Callable[[sa.Connection], None]) -> None:
        await asyncio.to_thread(with_postgres, self._server.url(self._name), step)


@pytest.fixture
async def shared(postgres_server: Server, empty_database: str) -> AsyncIterator[Database]:
    found = Database(postgres_server, empty_database)
    await found.upgrade(BEFORE)
    for role in (OWNER, USER):
        await found.run(f"CREATE ROLE {role}")
    for table in TABLES:
        await found.run(f"ALTER TABLE {table} OWNER TO {OWNER}")
        await found.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {USER}")
    await found.run(f"GRANT SELECT ON turns TO {USER} WITH GRANT OPTION")
    await found.run("GRANT SELECT ON turns TO PUBLIC")
    yield found
    for role in (USER, OWNER):
        await found.run(f"DROP OWNED BY {role} CASCADE")
        await found.run(f"DROP ROLE {role}")


async def test_who_could_use_the_tables_before_an_upgrade_can_afterwards(shared: Database):
    before = await shared.run(RIGHTS)

    await shared.upgrade()
    after = await shared.run(RIGHTS)
    await shared.downgrade()
    back = await shared.run(RIGHTS)

    assert [(row[0], row[1]) for row in before] == [(name, OWNER) for name in sorted(TABLES)]
    assert after == before
    assert back == before


async def test_the_database_knows_the_tables_that_an_upgrade_made(shared: Database):
    await shared.run(ONE_TURN)
    await shared.upgrade()
    assert "turns" in {row[0] for row in await shared.run(LOOKED_AT)}
