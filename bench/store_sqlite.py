"""Measures the SQLite store, compared with plain sqlite3 that reads and writes the same rows.

A durable turn (start, load 40 messages, finish) in a short and in a long conversation, a list page,
a search, and the bytes of a message. Rounds are interleaved. Plain sqlite3 gets the values that it
writes, including the terms of the search index, and reads the 40 messages in each turn. The store
reads them only if another process has written to the file ("without cached turns"). Other libraries
that store conversations run in a separate environment (`store_peer.py`).
"""

import argparse
import asyncio
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.conversation import WindowRecord
from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation, TurnStart
from cllm.core.reply import Usage
from cllm.stores.search import build_index_terms, owner_term
from cllm.stores.sql.rows import encode_message
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.reader import SQLITE_CODEC
from cllm.stores.sqlite.store import SqliteStore
from cllm.wire.path_digest import digest_path
from measurement import Cost, Limits, interleave, measure_call, print_table
from sample_conversations import (
    COMMON_WORD,
    OWNER,
    RARE_WORD,
    SampleConversations,
    fill_sqlite,
    make_text,
    run_turns,
)

REPEATS = 25
LOADED_MESSAGES = 40
SHORT, LONG = 100, 10_000
COMPARED_CONVERSATIONS = 500


def now() -> datetime:
    return datetime.now(UTC)


TEXTS = [make_text(random.Random(number)) for number in range(100)]  # noqa: S311
QUESTIONS = [plain_message("user", text) for text in TEXTS]
REPLIES = [plain_message("assistant", text) for text in TEXTS]
DIGESTS = [digest_path([question])[0] for question in QUESTIONS]
TERMS = [build_index_terms(question, OWNER) for question in QUESTIONS]


class Bench:
    """A store, a plain connection to a copy of its file, and an event loop for the store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.loop = asyncio.Runner()
        self.store = SqliteStore(self.path, clock=now)
        self.count = 0
        for ref, messages in (("short", SHORT), ("long", LONG)):
            self.run_turns(ref, messages // 2)
        self.plain = copy_database(self.path, folder / "plain.db")

    def run_turns(self, ref: str, times: int, *, cached: bool = True) -> None:
        """Run turns one after another. Without `cached` each reads its messages from the file."""

        async def run() -> None:
            for _ in range(times):
                if not cached:
                    self.store._cache.clear()  # noqa: SLF001
                await self.turn(ref)

        self.loop.run(run())

    def next_messages(self) -> tuple[Message, Message]:
        index = self.count % len(TEXTS)
        return QUESTIONS[index], REPLIES[index]

    async def turn(self, ref: str) -> None:
        """Run one durable turn that loads the newest 40 messages."""
        self.count += 1
        question, reply = self.next_messages()
        lease = await self.store.begin_turn(
            ref,
            TurnStart(id=f"turn-{self.count:08}", messages=(question,), model="m"),
            create=NewConversation(id=ref),
            tail=LOADED_MESSAGES,
        )
        turn = msgspec.structs.replace(
            lease.turn,
            state="complete",
            messages=(question, reply),
            usage=Usage(input=1000, output=200),
            cost=0.001,
            ended_at=now(),
            window=WindowRecord(first_sequence=1, sent_messages=LOADED_MESSAGES),
        )
        await self.store.finish_turn(lease, turn)

    def plain_turn(self, ref: str) -> None:
        """Read and write the same rows with plain SQL."""
        self.count += 1
        db, key = self.plain, (OWNER, ref)
        question, reply = self.next_messages()
        terms = TERMS[self.count % len(TEXTS)]
        digest = DIGESTS[self.count % len(TEXTS)]
        time = SQLITE_CODEC.encode_time(now())
        db.execute("BEGIN IMMEDIATE")
        row = db.execute(sql.FIND, key).fetchone()
        number = db.execute(sql.NEWEST_TURN, key).fetchone()[0] + 1
        total = row[-1]
        db.execute(sql.PATH, (*key, number - LOADED_MESSAGES // 2)).fetchall()
        db.execute(sql.MESSAGES_SINCE, (*key, number - LOADED_MESSAGES // 2)).fetchall()
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
                await self.store.load(ref, tail=LOADED_MESSAGES)

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
MESSAGES = """
SELECT owner, message_group, ordinal, role, dialect, raw, imported
FROM messages ORDER BY owner, message_group, ordinal
"""
ALL_ROWS = (
    ("SELECT * FROM conversations ORDER BY owner, id", ()),
    ("SELECT * FROM turns ORDER BY owner, conversation_id, number", ()),
    (MESSAGES, ()),
    (SEARCH_RESULTS, (f'"{COMMON_WORD}"',)),
)


def measure_repeated(work: Callable[[], object], times: int = REPEATS) -> Callable[[], Cost]:
    def run() -> None:
        for _ in range(times):
            work()

    return lambda: measure_call(run)


def measure_repeated_async(
    loop: asyncio.Runner, call: Callable[[], Coroutine[Any, Any, object]], times: int
) -> Callable[[], Cost]:
    async def run() -> None:
        for _ in range(times):
            await call()

    return lambda: measure_call(lambda: loop.run(run()))


def measure_turns(bench: Bench, limits: Limits, rounds: int) -> None:
    samples = interleave(
        {
            "plain sqlite3, turn": measure_repeated(lambda: bench.plain_turn("short")),
            "store, turn": lambda: measure_call(lambda: bench.run_turns("short", REPEATS)),
            "store, turn without cached turns": lambda: measure_call(
                lambda: bench.run_turns("short", REPEATS, cached=False)
            ),
            "store, turn after 10,000 messages": lambda: measure_call(
                lambda: bench.run_turns("long", REPEATS)
            ),
            "store, load 40 messages": lambda: measure_call(lambda: bench.load("short", REPEATS)),
            "store, load 40 of 10,000 messages": lambda: measure_call(
                lambda: bench.load("long", REPEATS)
            ),
        },
        rounds=rounds,
    )
    print_table(samples, baseline="plain sqlite3, turn")
    turn = samples["store, turn"].cpu
    print(f"(each row: {REPEATS} repetitions) one durable turn: {turn / REPEATS * 1e6:.0f} µs CPU")
    ratio = turn / samples["plain sqlite3, turn"].cpu
    limits.check("durable turn: store / plain sqlite3, CPU time", ratio, 2)
    ratio = samples["store, turn after 10,000 messages"].cpu / turn
    limits.check("durable turn after 10,000 messages / after 100, CPU time", ratio, 1.3)
    ratio = (
        samples["store, load 40 of 10,000 messages"].cpu / samples["store, load 40 messages"].cpu
    )
    limits.check("load 40 of 10,000 messages / of 100, CPU time", ratio, 1.3)


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


def compare_fill(folder: Path, many: SampleConversations, limits: Limits) -> None:
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
    limits.check("queries that differ between bulk loading and turns", differing, 0, unit="queries")
    ratio = real.stat().st_size / bulk.stat().st_size
    limits.check("file size after turns / after bulk loading", ratio, 1.1)
    bulk_db.close()
    real_db.close()


def measure_lists(folder: Path, limits: Limits, rounds: int, conversations: int) -> None:
    path = folder / "wide.db"
    many = SampleConversations()
    compare_fill(folder, many, limits)
    text = fill_file(path, many, conversations)
    store = SqliteStore(path, clock=now)
    loop = asyncio.Runner()
    db = sqlite3.connect(path, isolation_level=None)
    page, search = sql.LIST["active"], sql.SEARCH["active"]

    def plain_search(word: str) -> None:
        db.execute(search, (f'"{word}" AND "{owner_term(OWNER)}"', OWNER)).fetchall()

    samples = interleave(
        {
            "plain SQL, list page": measure_repeated(
                lambda: db.execute(page, (OWNER, 0, None, 101, 0)).fetchall(), 20
            ),
            "store, list page": measure_repeated_async(loop, store.list_conversations, 20),
            "plain SQL, search for a common word": measure_repeated(
                lambda: plain_search(COMMON_WORD), 5
            ),
            "store, search for a common word": measure_repeated_async(
                loop, lambda: store.search(COMMON_WORD), 5
            ),
            "plain SQL, search for a rare word": measure_repeated(
                lambda: plain_search(RARE_WORD), 5
            ),
            "store, search for a rare word": measure_repeated_async(
                loop, lambda: store.search(RARE_WORD), 5
            ),
        },
        rounds=rounds,
    )
    print_table(samples, baseline="plain SQL, list page")
    for query in ("list page", "search for a common word", "search for a rare word"):
        ratio = samples[f"store, {query}"].cpu / samples[f"plain SQL, {query}"].cpu
        limits.check(f"{query}: store / plain SQL, CPU time", ratio, 3)
    limits.check("bytes of the file / bytes of text", path.stat().st_size / text, 2)
    messages = conversations * 10
    print(
        f"file size: {path.stat().st_size / messages:.0f} bytes per message ({messages:,} messages)"
    )
    loop.run(store.close())
    loop.close()
    db.close()


def print_peers(python: Path, folder: Path) -> None:
    """Print the cost of one more turn in conversations that other libraries store."""
    runs = [("langgraph", 50), ("langgraph", 500), ("agents", 50), ("agents", 5000)]
    lines = "".join(f"{name} {turns} {folder}\n" for name, turns in runs)
    done = subprocess.run(
        [python, Path(__file__).parent / "store_peer.py"],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    for (name, turns), line in zip(runs, done.stdout.splitlines(), strict=True):
        seconds, size = map(float, line.split())
        print(
            f"{name}, turn after {turns * 2} messages of 1 KB: {seconds * 1e6:.0f} µs CPU, "
            f"database {size / 2**20:.1f} MiB"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds")
    parser.add_argument("--conversations", type=int, default=100_000, help="for lists and searches")
    parser.add_argument("--peers", type=Path, help="Python with LangGraph and the Agents SDK")
    options = parser.parse_args()
    limits = Limits()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        measure_turns(bench, limits, options.rounds)
        bench.close()
        if options.peers is not None:
            print_peers(options.peers, Path(name))
        measure_lists(Path(name), limits, options.rounds, options.conversations)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
