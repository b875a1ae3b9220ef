"""A connection for the rare work on a database as a whole: migrations, and looking at its shape.

The stores have connections of their own. In SQLite whoever works here keeps all others from
writing, and what is deleted is overwritten; in PostgreSQL an advisory lock keeps two from
migrating at once.
"""

import asyncio
import sqlite3
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from cllm.core.extras import needs_extra

T = TypeVar("T")

MIGRATION_LOCK = 0x636C6C6D
SQLITE_PATIENCE = 60.0


def with_sqlite(path: Path, work: Callable[[sa.Connection], T]) -> T:
    """Do the work in one transaction on a SQLite file, which nobody else can write meanwhile."""
    own = sqlite3.connect(path, timeout=SQLITE_PATIENCE, isolation_level=None)
    try:
        own.execute("PRAGMA secure_delete = ON")
        return with_open_sqlite(own, work)
    finally:
        own.close()


def with_open_sqlite(own: sqlite3.Connection, work: Callable[[sa.Connection], T]) -> T:
    """The same on a connection that is open, in autocommit mode or in such a transaction."""

    def begin(bind: sa.Connection) -> None:
        if not own.in_transaction:
            bind.exec_driver_sql("BEGIN IMMEDIATE")

    engine = sa.create_engine("sqlite://", creator=lambda: own, poolclass=StaticPool)
    sa.event.listen(engine, "begin", begin)
    with engine.begin() as bind:
        return work(bind)


def erase_deleted(path: Path) -> None:
    """Write the file anew, so that nothing is left in it of what was deleted."""
    own = sqlite3.connect(path, timeout=SQLITE_PATIENCE, isolation_level=None)
    try:
        own.execute("PRAGMA secure_delete = ON")
        own.execute("VACUUM")
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        own.close()


def with_postgres(url: str, work: Callable[[sa.Connection], T]) -> T:
    """Do the work in one transaction on a PostgreSQL database, which nobody else migrates.

    An event loop of its own in a thread of its own does it, so that it can be called anywhere.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="cllm-migration") as pool:
        return pool.submit(lambda: asyncio.run(_with_postgres(url, work))).result()


async def _with_postgres(url: str, work: Callable[[sa.Connection], T]) -> T:
    with needs_extra("postgres", feature="A database in PostgreSQL"):
        import_module("greenlet")  # SQLAlchemy's asyncio engine needs it
        import asyncpg  # noqa: PLC0415
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

        from cllm.stores.sql.postgres_errors import FAILURES, our_error  # noqa: PLC0415
        from cllm.stores.sql.postgres_pool import split_url  # noqa: PLC0415

    target, _ = split_url(url)
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(target, statement_cache_size=0),
        # Behind a pooler the name of a statement may be taken by somebody else's.
        connect_args={"prepared_statement_name_func": lambda: f"cllm_{uuid.uuid4().hex}"},
        poolclass=sa.pool.NullPool,
    )
    try:
        async with engine.begin() as connection:
            await connection.execute(
                sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK}
            )
            return await connection.run_sync(work)
    except sa.exc.DBAPIError as error:
        raise our_error(getattr(error.orig, "__cause__", None) or error) from error
    except FAILURES as error:
        raise our_error(error) from error
    finally:
        await engine.dispose()
