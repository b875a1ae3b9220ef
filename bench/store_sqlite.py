"""Measures the SQLite store, compared with plain sqlite3 that reads and writes the same rows.

A durable turn (start, load 40 messages, finish) in a short and in a long conversation, a list page,
a search, and the bytes of a message. Rounds are interleaved. Plain sqlite3 gets the values that it
writes, including the terms of the search index, and reads the 40 messages in each turn. The store
reads them only if another process has written to the file ("without cached turns").
"""

import asyncio
import random
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from cllm.core.message import Message, plain_message
from cllm.stores.search import build_index_terms, owner_term
from cllm.stores.sql.rows import encode_message
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.reader import SQLITE_CODEC
from cllm.stores.sqlite.store import SqliteStore
from cllm.wire.path_digest import digest_path
from measurement import Cost, Sample, interleave, measure_call, measure_repeated, print_table
from results import SIZE, Results, make_parser
from sample_conversations import (
    COMMON_WORD,
    MESSAGES,
    OWNER,
    RARE_WORD,
    WINDOW_MESSAGES,
    SampleConversations,
    fill_sqlite,
    make_conversation,
    make_text,
    run_turn,
    run_turns,
)

REPEATS = 25
SHORT, LONG = 100, 10_000
COMPARED_CONVERSATIONS = 500
PLAIN, PLAIN_SQL = "plain sqlite3", "plain SQL"
QUERIES = ("list page", "search for a common word", "search for a rare word")


def now() -> datetime:
    return datetime.now(UTC)


TEXTS = [make_text(random.Random(number)) for number in range(100)]  # noqa: S311
QUESTIONS = [plain_message("user", text) for text in TEXTS]
REPLIES = [plain_message("assistant", text) for text in TEXTS]
DIGESTS = [digest_path([question])[0] for question in QUESTIONS]
TERMS = [build_index_terms(question, OWNER) for question in QUESTIONS]


class Bench:
    """A store, a plain connection to a copy of its file, and an event loop for the store."""

    def __init__(self, folder: Path, *, long: int = LONG) -> None:
        self.path = folder / "store.db"
        self.loop = asyncio.Runner()
        self.store = SqliteStore(self.path, clock=now)
        self.count = 0
        for ref, messages in (("short", SHORT), ("long", long)):
            pairs = (self.next_messages() for _ in range(messages // 2))
            self.loop.run(self.store.add(make_conversation(ref, pairs)))
        self.plain = copy_database(self.path, folder / "plain.db")

    def run_turns(self, ref: str, times: int, *, cached: bool = True) -> None:
        """Run turns one after another. Without `cached` each reads its messages from the file."""

        async def run() -> None:
            for _ in range(times):
                if not cached:
                    self.store._cache.clear()  # noqa: SLF001
                await run_turn(self.store, ref, self.next_messages())

        self.loop.run(run())

    def next_messages(self) -> tuple[Message, Message]:
        self.count += 1
        index = self.count % len(TEXTS)
        return QUESTIONS[index], REPLIES[index]

    def plain_turn(self, ref: str) -> None:
        """Read and write the same rows with plain SQL."""
        db, key = self.plain, (OWNER, ref)
        question, reply = self.next_messages()
        terms = TERMS[self.count % len(TEXTS)]
        digest = DIGESTS[self.count % len(TEXTS)]
        time = SQLITE_CODEC.encode_time(now())
        db.execute("BEGIN IMMEDIATE")
        row = db.execute(sql.FIND, key).fetchone()
        number = db.execute(sql.NEWEST_TURN, key).fetchone()[0] + 1
        total = row[-1]
        db.execute(sql.PATH, (*key, number - WINDOW_MESSAGES // 2)).fetchall()
        db.execute(sql.MESSAGES_SINCE, (*key, number - WINDOW_MESSAGES // 2)).fetchall()
        values = (f"turn-{self.count:08}", f"turn-{self.count:08}", "running", "m")
        group = db.execute(sql.NEXT_GROUP, (OWNER,)).fetchone()[0]
        place = (number, number, total + 1, group)
        db.execute(sql.ADD_TURN, (*key, *place, *values, *(None,) * 12, time, None))
        db.execute(sql.PUT_LEASE, (*key, None, values[0], self.count, 0, time, None))
        message = (OWNER, group, 0, digest, *encode_message(question))
        cursor = db.execute(sql.ADD_MESSAGE, message)
        first = cursor.lastrowid
        db.execute(sql.UPDATE_MESSAGE_COUNT, (total + 1, *key))
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        db.execute(sql.DELETE_LEASE, key)
        usage = (None, 1000, 200, 0, 0, 0, 0, 0, 0.001, None, "{}", None, time, time)
        done = (values[0], "complete", "m")
        db.execute(sql.UPDATE_TURN, (*done, *usage, *key, number))
        message = (OWNER, group, 1, digest, *encode_message(reply))
        cursor = db.execute(sql.ADD_MESSAGE, message)
        db.execute(sql.INDEX, (first, terms))
        db.execute(sql.INDEX, (cursor.lastrowid, terms))
        db.execute(sql.UPDATE_AFTER_TURN, (row[3], time, total + 2, *key))
        db.execute("COMMIT")

    def load(self, ref: str, times: int) -> None:
        async def load() -> None:
            for _ in range(times):
                await self.store.load(ref, tail=WINDOW_MESSAGES)

        self.loop.run(load())

    def close(self) -> None:
        self.loop.run(self.store.close())
        self.loop.close()
        self.plain.close()


def copy_database(source: Path, target: Path) -> sqlite3.Connection:
    """Copy a file and return a connection with the store's settings to the copy."""
    original = sqlite3.connect(source)
    copy = sqlite3.connect(target, isolation_level=None, cached_statements=256)
    original.backup(copy)
    original.close()
    pragmas = (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
    )
    for pragma in pragmas:
        copy.execute(f"PRAGMA {pragma}")
    return copy


SEARCH_RESULTS = """
SELECT t.conversation_id, t.first_sequence + m.ordinal FROM message_search s
JOIN messages m ON m.number = s.rowid
JOIN turns t ON t.owner = m.owner AND t.message_group = m.message_group
WHERE message_search MATCH ? ORDER BY 1, 2
"""
ALL_MESSAGES = """
SELECT owner, message_group, ordinal, role, dialect, raw, imported
FROM messages ORDER BY owner, message_group, ordinal
"""
ALL_ROWS = (
    ("SELECT * FROM conversations ORDER BY owner, id", ()),
    ("SELECT * FROM turns ORDER BY owner, conversation_id, number", ()),
    (ALL_MESSAGES, ()),
    (SEARCH_RESULTS, (f'"{COMMON_WORD}"',)),
)


def measure_repeated_async(
    loop: asyncio.Runner, call: Callable[[], Coroutine[Any, Any, object]], times: int
) -> Callable[[], Cost]:
    async def run() -> None:
        for _ in range(times):
            await call()

    return lambda: measure_call(lambda: loop.run(run())) / times


def measure_turns(results: Results, bench: Bench, rounds: int) -> None:
    """Measure turns and loads in a short and in a long conversation."""
    names = ("turn", "turn without cached turns", "load of 40 messages")
    turn, uncached, load = (f"SQLite: {name}" for name in names)
    long_turn, long_load = (f"{name} after {LONG:,} messages" for name in (turn, load))

    def run_turns(ref: str, *, cached: bool = True) -> Callable[[], Cost]:
        run = partial(bench.run_turns, ref, REPEATS, cached=cached)
        return lambda: measure_call(run) / REPEATS

    def run_loads(ref: str) -> Callable[[], Cost]:
        return lambda: measure_call(lambda: bench.load(ref, REPEATS)) / REPEATS

    samples = interleave(
        {
            PLAIN: lambda: measure_repeated(lambda: bench.plain_turn("short"), REPEATS),
            turn: run_turns("short"),
            uncached: run_turns("short", cached=False),
            long_turn: run_turns("long"),
            load: run_loads("short"),
            long_load: run_loads("long"),
        },
        rounds=rounds,
    )
    print_table(samples, baseline=PLAIN)
    results.add_samples("SQLite, turns and loads", samples)
    after = f"after {SHORT} messages"
    results.compare(turn, samples[turn], samples[PLAIN], 2, floor=PLAIN)
    results.compare(uncached, samples[uncached], samples[PLAIN], floor=PLAIN)
    results.compare(long_turn, samples[long_turn], samples[turn], 1.3, itself=after)
    results.compare(long_load, samples[long_load], samples[load], 1.3, itself=after)


def fill_file(path: Path, many: SampleConversations, conversations: int) -> int:
    """Create a file, fill it in bulk and return the bytes of the texts."""
    with asyncio.Runner() as loop:
        store = SqliteStore(path, clock=now)
        loop.run(store.count_conversations())
        loop.run(store.close())
    db = sqlite3.connect(path, isolation_level=None)
    text = fill_sqlite(db, many, range(conversations))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return text


def compare_fill(results: Results, folder: Path, many: SampleConversations) -> None:
    """Check that bulk loading writes the same rows, search results and file size as turns."""
    bulk, real = folder / "bulk.db", folder / "real.db"
    fill_file(bulk, many, COMPARED_CONVERSATIONS)
    with asyncio.Runner() as loop:
        turns = run_turns(
            many, COMPARED_CONVERSATIONS, lambda clock: SqliteStore(real, clock=clock)
        )
        loop.run(loop.run(turns).close())
    bulk_db, real_db = sqlite3.connect(bulk), sqlite3.connect(real)
    differing = sum(
        bulk_db.execute(*query).fetchall() != real_db.execute(*query).fetchall()
        for query in ALL_ROWS
    )
    name = "SQLite: queries that differ between bulk loading and turns"
    results.check(name, differing, 0, unit="queries")
    sizes = real.stat().st_size, bulk.stat().st_size
    name = "SQLite: file after turns"
    results.compare(name, *sizes, 1.1, itself="bulk loading", measure=SIZE, unit="bytes")
    bulk_db.close()
    real_db.close()


def measure_lists(results: Results, folder: Path, rounds: int, conversations: int) -> None:
    path = folder / "wide.db"
    many = SampleConversations()
    compare_fill(results, folder, many)
    text = fill_file(path, many, conversations)
    compare_queries(results, path, rounds)
    size = path.stat().st_size
    name = f"SQLite: file with {conversations * MESSAGES:,} messages"
    results.compare(name, size, text, 2, floor="bytes of text", measure=SIZE, unit="bytes")


def compare_queries(results: Results, path: Path, rounds: int) -> None:
    samples = measure_queries(path, rounds)
    print_table(samples, baseline=f"{PLAIN_SQL}, list page")
    results.add_samples("SQLite, lists and searches", samples)
    for query in QUERIES:
        both = samples[f"store, {query}"], samples[f"{PLAIN_SQL}, {query}"]
        results.compare(f"SQLite: {query}", *both, 3, floor=PLAIN_SQL)


def bind(statement: str, *first: object, last: tuple[object, ...] = ()) -> tuple[object, ...]:
    """Return the parameters of a statement. The filters between the first and last are not set."""
    count = max(map(int, re.findall(r"\?(\d+)", statement)))
    return (*first, *[None] * (count - len(first) - len(last)), *last)


def measure_queries(path: Path, rounds: int) -> dict[str, Sample]:
    """Measure lists and searches with the store and with its SQL statements alone."""
    page, search = sql.LIST["active"], sql.SEARCH["active"]
    words = {"search for a common word": COMMON_WORD, "search for a rare word": RARE_WORD}
    store = SqliteStore(path, clock=now)
    db = sqlite3.connect(path, isolation_level=None)

    def plain_search(word: str) -> None:
        match = f'"{word}" AND "{owner_term(OWNER)}"'
        db.execute(search, bind(search, match, OWNER)).fetchall()

    with asyncio.Runner() as loop:
        runs: dict[str, Callable[[], Cost]] = {
            f"{PLAIN_SQL}, list page": lambda: measure_repeated(
                lambda: db.execute(page, bind(page, OWNER, 0, last=(101, 0))).fetchall(), 20
            ),
            "store, list page": measure_repeated_async(loop, store.list_conversations, 20),
        }
        for query, word in words.items():
            plain = partial(plain_search, word)
            runs[f"{PLAIN_SQL}, {query}"] = partial(measure_repeated, plain, 5)
            runs[f"store, {query}"] = measure_repeated_async(loop, partial(store.search, word), 5)
        samples = interleave(runs, rounds=rounds)
        loop.run(store.close())
    db.close()
    return samples


def main() -> int:
    parser = make_parser(__doc__, rounds=9)
    parser.add_argument("--conversations", type=int, default=100_000, help="for lists and searches")
    options = parser.parse_args()
    results = Results("store_sqlite")
    results.versions["SQLite"] = sqlite3.sqlite_version
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        measure_turns(results, bench, options.rounds)
        bench.close()
        measure_lists(results, Path(name), options.rounds, options.conversations)
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
