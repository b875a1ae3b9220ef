"""Measures branches of a long conversation in SQLite and PostgreSQL, compared with copies.

`Store.branch` shares the stored messages of the source; `Store.add` of the same conversation under
another ID writes them all. Each branch and each copy gets one more turn. CPU time is this
process's; for PostgreSQL the wall time includes the server.
"""

import asyncio
import random
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from cllm.core.conversation import StoredConversation
from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation, Store
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sqlite.store import SqliteStore
from measurement import Cost, measure_call
from results import SIZE, Results, make_parser
from sample_conversations import make_conversation, make_text, run_turn
from store_postgres import TABLES_SIZE, start_server

MESSAGES = 1000
SOURCE = "source"
MEBIBYTE = 2**20
Add = Callable[[str], Awaitable[object]]
Measured = tuple[Cost, int]
"""The cost of one branch or copy with its turn, and its bytes."""


def now() -> datetime:
    return datetime.now(UTC)


def make_messages(number: int) -> tuple[Message, Message]:
    chance = random.Random(number)  # noqa: S311
    return plain_message("user", make_text(chance)), plain_message("assistant", make_text(chance))


def make_source() -> StoredConversation:
    return make_conversation(SOURCE, map(make_messages, range(MESSAGES // 2)))


async def repeat(store: Store, add: Add, times: int) -> None:
    for _ in range(times):
        ref = str(uuid.uuid4())
        await add(ref)
        await run_turn(store, ref, make_messages(MESSAGES))


def measure_store(
    store: Store, size: Callable[[], Coroutine[Any, Any, int]], times: int, copies: int
) -> tuple[Measured, Measured]:
    """Measure branches, then copies."""
    source = make_source()

    async def branch(ref: str) -> None:
        await store.branch(SOURCE, NewConversation(id=ref))

    async def copy(ref: str) -> None:
        await store.add(msgspec.structs.replace(source, id=ref))

    def measure(loop: asyncio.Runner, add: Add, count: int) -> Measured:
        before = loop.run(size())
        cost = measure_call(lambda: loop.run(repeat(store, add, count)))
        return cost / count, (loop.run(size()) - before) // count

    with asyncio.Runner() as loop:
        loop.run(store.add(source))
        loop.run(repeat(store, branch, 1))
        measured = measure(loop, branch, times), measure(loop, copy, copies)
        loop.run(store.close())
    return measured


def report(results: Results, engine: str, measured: tuple[Measured, Measured]) -> None:
    (branch, branch_bytes), (copy, copy_bytes) = measured
    for name, cost, size in (("branch", branch, branch_bytes), ("copy", copy, copy_bytes)):
        print(
            f"{engine}, {name} of {MESSAGES} messages and a turn: {cost.cpu * 1e3:.1f} ms CPU, "
            f"{cost.wall * 1e3:.1f} ms, {size / MEBIBYTE:.3f} MiB"
        )
    quantity = f"{engine}: branch of {MESSAGES:,} messages, and a turn"
    results.compare(
        quantity, branch_bytes, copy_bytes, 0.2, itself="copy", measure=SIZE, unit="bytes"
    )
    results.compare(quantity, branch.cpu, copy.cpu, 0.5, itself="copy")


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--branches", type=int, default=100)
    parser.add_argument("--copies", type=int, default=10)
    options = parser.parse_args()
    results = Results("branches")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"

        async def file_size() -> int:
            with closing(sqlite3.connect(path)) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return path.stat().st_size

        store = SqliteStore(path, clock=now)
        measured = measure_store(store, file_size, options.branches, options.copies)
        report(results, "SQLite", measured)
    with start_server() as url:

        async def table_size() -> int:
            db = await asyncpg.connect(url)
            try:
                return int(await db.fetchval(TABLES_SIZE))
            finally:
                await db.close()

        postgres = PostgresStore(url, clock=now)
        measured = measure_store(postgres, table_size, options.branches, options.copies)
        report(results, "PostgreSQL", measured)
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
