"""What the SQLite store costs beside bare sqlite3 that reads and writes the same rows.

A durable turn (begin, load 40 messages, finish), the same in a long conversation and a short one,
a page of a list, a search, and the bytes of a message. Rounds are interleaved. Bare sqlite3 is
given what it writes, down to the terms of the search index, and reads the 40 messages each time;
the store does so where another process wrote to the file ("all of it read"). Others that keep
conversations run in their own environment (`store_peer.py`).
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
from measure import Cost, Targets, counted, interleave, print_table
from store_fill import COMMON, OWNER, RARE, Many, fill_sqlite, some_text, take_turns

REPEATS = 25
LOADED = 40
SHORT, LONG = 100, 10_000
COMPARED = 500


def now() -> datetime:
    return datetime.now(UTC)


SAID = [some_text(random.Random(number)) for number in range(100)]  # noqa: S311
QUESTIONS = [plain_message("user", text) for text in SAID]
ANSWERS = [plain_message("assistant", text) for text in SAID]
TERMS = [build_index_terms(question, OWNER) for question in QUESTIONS]


class Rig:
    """A store, a bare connection to a file like its own, and a loop to run the store in."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ours.db"
        self.loop = asyncio.Runner()
        self.store = SqliteStore(self.path, clock=now)
        self.count = 0
        for ref, messages in (("short", SHORT), ("long", LONG)):
            self.fill(ref, messages)
        self.bare = bare_copy(self.path, folder / "bare.db")

    def fill(self, ref: str, messages: int) -> None:
        self.take_turns(ref, messages // 2)

    def take_turns(self, ref: str, times: int, *, anew: bool = False) -> None:
        """Turns one after another; `anew` reads what the store would know from the turn before."""

        async def take() -> None:
            for _ in range(times):
                if anew:
                    self.store._cache.clear()  # noqa: SLF001
                await self.turn(ref)

        self.loop.run(take())

    def said(self) -> tuple[Message, Message]:
        place = self.count % len(SAID)
        return QUESTIONS[place], ANSWERS[place]

    async def turn(self, ref: str) -> None:
        """One durable turn, with the newest 40 messages."""
        self.count += 1
        question, answer = self.said()
        lease = await self.store.begin_turn(
            ref,
            TurnStart(id=f"turn-{self.count:08}", messages=(question,), model="m"),
            create=NewConversation(id=ref),
            tail=LOADED,
        )
        turn = msgspec.structs.replace(
            lease.turn,
            state="complete",
            messages=(question, answer),
            usage=Usage(input=1000, output=200),
            cost=0.001,
            ended_at=now(),
            window=WindowRecord(first_sequence=1, sent_messages=LOADED),
        )
        await self.store.finish_turn(lease, turn)

    def bare_turn(self, ref: str) -> None:
        """The same rows, by hand."""
        self.count += 1
        db, key = self.bare, (OWNER, ref)
        question, answer = self.said()
        terms = TERMS[self.count % len(SAID)]
        at = SQLITE_CODEC.encode_time(now())
        db.execute("BEGIN IMMEDIATE")
        row = db.execute(sql.FIND, key).fetchone()
        number = db.execute(sql.NEWEST_TURN, key).fetchone()[0] + 1
        total = row[-1]
        db.execute(sql.PATH, (*key, number - LOADED // 2)).fetchall()
        db.execute(sql.MESSAGES_SINCE, (*key, number - LOADED // 2)).fetchall()
        values = (f"turn-{self.count:08}", f"turn-{self.count:08}", "running", "m")
        db.execute(sql.ADD_TURN, (*key, number, number, *values, *(None,) * 12, at, None))
        db.execute(sql.PUT_LEASE, (*key, None, values[0], self.count, 0, at))
        said = db.execute(sql.ADD_MESSAGE, (*key, number, 0, total + 1, *encode_message(question)))
        first = said.lastrowid
        db.execute(sql.UPDATE_MESSAGE_COUNT, (total + 1, *key))
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        db.execute(sql.DELETE_LEASE, key)
        usage = (None, 1000, 200, 0, 0, 0, 0, 0, 0.001, None, "{}", None, at, at)
        done = (values[0], "complete", "m")
        db.execute(sql.UPDATE_TURN, (*done, *usage, *key, number))
        said = db.execute(sql.ADD_MESSAGE, (*key, number, 1, total + 2, *encode_message(answer)))
        db.execute(sql.INDEX, (first, terms))
        db.execute(sql.INDEX, (said.lastrowid, terms))
        db.execute(sql.UPDATE_AFTER_TURN, (row[3], at, total + 2, *key))
        db.execute("COMMIT")

    def load(self, ref: str, times: int) -> None:
        async def load() -> None:
            for _ in range(times):
                await self.store.load(ref, tail=LOADED)

        self.loop.run(load())

    def close(self) -> None:
        self.loop.run(self.store.close())
        self.loop.close()
        self.bare.close()


def bare_copy(source: Path, target: Path) -> sqlite3.Connection:
    """A connection like the store's own, to a copy of its file."""
    own = sqlite3.connect(source)
    copy = sqlite3.connect(target, isolation_level=None, cached_statements=256)
    own.backup(copy)
    own.close()
    same = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON")
    for pragma in same:
        copy.execute(f"PRAGMA {pragma}")
    return copy


FOUND = """
SELECT m.conversation_id, m.sequence_number FROM message_search s
JOIN messages m ON m.number = s.rowid WHERE message_search MATCH ? ORDER BY 1, 2
"""
MESSAGES = """
SELECT owner, conversation_id, turn, ordinal, sequence_number, role, dialect, raw, imported
FROM messages ORDER BY owner, conversation_id, turn, ordinal
"""
ALL_ROWS = (
    ("SELECT * FROM conversations ORDER BY owner, id", ()),
    ("SELECT * FROM turns ORDER BY owner, conversation_id, number", ()),
    (MESSAGES, ()),
    (FOUND, (f'"{COMMON}"',)),
)


def repeated(work: Callable[[], object], times: int = REPEATS) -> Callable[[], Cost]:
    def run() -> None:
        for _ in range(times):
            work()

    return lambda: counted(run)


def awaited(
    loop: asyncio.Runner, ask: Callable[[], Coroutine[Any, Any, object]], times: int
) -> Callable[[], Cost]:
    async def run() -> None:
        for _ in range(times):
            await ask()

    return lambda: counted(lambda: loop.run(run()))


def measure_turns(rig: Rig, targets: Targets, rounds: int) -> None:
    samples = interleave(
        {
            "bare turn": repeated(lambda: rig.bare_turn("short")),
            "turn": lambda: counted(lambda: rig.take_turns("short", REPEATS)),
            "turn, all of it read": lambda: counted(
                lambda: rig.take_turns("short", REPEATS, anew=True)
            ),
            "turn, 10,000 messages": lambda: counted(lambda: rig.take_turns("long", REPEATS)),
            "load 40": lambda: counted(lambda: rig.load("short", REPEATS)),
            "load 40, 10,000 messages": lambda: counted(lambda: rig.load("long", REPEATS)),
        },
        rounds=rounds,
    )
    print_table(samples, against="bare turn")
    print(f"a durable turn takes {samples['turn'].cpu / REPEATS * 1e6:.0f} µs of processor time")
    ratio = samples["turn"].cpu / samples["bare turn"].cpu
    targets.at_most("a durable turn / bare sqlite3 with the same rows, cpu", ratio, 2)
    ratio = samples["turn, 10,000 messages"].cpu / samples["turn"].cpu
    targets.at_most("a turn in 10,000 messages / in 100, cpu", ratio, 1.3)
    ratio = samples["load 40, 10,000 messages"].cpu / samples["load 40"].cpu
    targets.at_most("its window / that of 100, cpu", ratio, 1.3)


def filled(path: Path, many: Many, conversations: int) -> int:
    """A file of its own, filled in bulk; the bytes of what is said in it."""
    with asyncio.Runner() as loop:
        store = SqliteStore(path, clock=now)
        loop.run(store.count_conversations())
        loop.run(store.close())
    db = sqlite3.connect(path, isolation_level=None)
    said = fill_sqlite(db, many, range(conversations))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return said


def compare_fill(folder: Path, many: Many, targets: Targets) -> None:
    """Whether bulk loading leaves what turns would: the same rows, found the same, as large."""
    bulk, real = folder / "bulk.db", folder / "real.db"
    filled(bulk, many, COMPARED)
    with asyncio.Runner() as loop:
        turns = take_turns(many, COMPARED, lambda clock: SqliteStore(real, clock=clock))
        loop.run(loop.run(turns).close())
    ours, theirs = sqlite3.connect(bulk), sqlite3.connect(real)
    differing = sum(
        ours.execute(*query).fetchall() != theirs.execute(*query).fetchall() for query in ALL_ROWS
    )
    targets.at_most("queries that differ after bulk loading and after turns", differing, 0)
    larger = real.stat().st_size / bulk.stat().st_size
    targets.at_most("a file of turns / of bulk loading", larger, 1.1)
    ours.close()
    theirs.close()


def measure_width(folder: Path, targets: Targets, rounds: int, conversations: int) -> None:
    path = folder / "wide.db"
    many = Many()
    compare_fill(folder, many, targets)
    said = filled(path, many, conversations)
    store = SqliteStore(path, clock=now)
    loop = asyncio.Runner()
    db = sqlite3.connect(path, isolation_level=None)
    page, found = sql.LIST["active"], sql.SEARCH["active"]

    def bare_search(word: str) -> None:
        db.execute(found, (f'"{word}" AND "{owner_term(OWNER)}"', OWNER)).fetchall()

    samples = interleave(
        {
            "bare list": repeated(lambda: db.execute(page, (OWNER, 101, 0)).fetchall(), 20),
            "list": awaited(loop, store.list_conversations, 20),
            "bare search, common": repeated(lambda: bare_search(COMMON), 5),
            "search, common": awaited(loop, lambda: store.search(COMMON), 5),
            "bare search, rare": repeated(lambda: bare_search(RARE), 5),
            "search, rare": awaited(loop, lambda: store.search(RARE), 5),
        },
        rounds=rounds,
    )
    print_table(samples, against="bare list")
    for what, name in (("a list page", "list"), ("a search", "search, common")):
        ratio = samples[name].cpu / samples[f"bare {name}"].cpu
        targets.at_most(f"{what} / the raw query, cpu", ratio, 3)
    ratio = samples["search, rare"].cpu / samples["bare search, rare"].cpu
    targets.at_most("a search for a rare word / the raw query, cpu", ratio, 3)
    targets.at_most("bytes of the file / of the text", path.stat().st_size / said, 2)
    messages = conversations * 10
    print(f"{messages} messages, {path.stat().st_size / messages:.0f} bytes each in the file")
    loop.run(store.close())
    loop.close()
    db.close()


def print_peers(python: Path, folder: Path) -> None:
    """What one more turn takes in conversations that others keep."""
    asked = [("langgraph", 50), ("langgraph", 500), ("agents", 50), ("agents", 5000)]
    lines = "".join(f"{name} {turns} {folder}\n" for name, turns in asked)
    done = subprocess.run(
        [python, Path(__file__).parent / "store_peer.py"],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    for (name, turns), line in zip(asked, done.stdout.splitlines(), strict=True):
        seconds, size = map(float, line.split())
        print(
            f"{name}, {turns * 2} messages of 1 KB: {seconds * 1e6:.0f} µs of processor time, "
            f"{size / 2**20:.1f} MB"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--peers", type=Path, help="the python of the peers' environment")
    options = parser.parse_args()
    targets = Targets()
    with tempfile.TemporaryDirectory() as name:
        rig = Rig(Path(name))
        measure_turns(rig, targets, options.rounds)
        rig.close()
        if options.peers is not None:
            print_peers(options.peers, Path(name))
        measure_width(Path(name), targets, options.rounds, options.conversations)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())
