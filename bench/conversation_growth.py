"""Measures lists, searches and turns by the number of conversations in the store.

SQLite has 1,000 to 1,000,000 conversations, PostgreSQL up to 100,000, because its search index
takes longer to fill. Each conversation has one turn with two messages of about 200 bytes; one
conversation in a thousand has the rare word, two thirds of the messages have the common word.
Conversations are loaded in bulk (`sample_conversations.py`), and the same store grows from one size
to the next. A turn continues a conversation among them.
"""

import asyncio
import itertools
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from cllm.core.message import plain_message
from cllm.core.ports import Store
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sqlite.store import SqliteStore
from measurement import Cost, Sample, interleave, measure_call
from results import CPU, WALL, Curve, Results, Series, make_parser
from sample_conversations import (
    COMMON_WORD,
    RARE_WORD,
    SampleConversations,
    fill_sqlite,
    run_turn,
)
from store_peer import TEXT
from store_postgres import fill_without_index, start_server

SIZES = {"SQLite": (1_000, 10_000, 100_000, 1_000_000), "PostgreSQL": (1_000, 10_000, 100_000)}
BYTES = 200
REPEATS = 5
MESSAGES = plain_message("user", TEXT), plain_message("assistant", TEXT)
PAGE, TURN = "list page", "one more turn"
RARE, COMMON = "search for a rare word", "search for a common word"
# A search for a common word reads at most 1,000 matches; the rare word has one per 1,000.
NOTES = {
    "SQLite": "All conversations are in one file.",
    "PostgreSQL": "Larger stores were not measured, because filling them takes too long.",
}
LIMITS = {PAGE: 1.5, TURN: 1.5, COMMON: 3.0, RARE: None}

Fill = Callable[[range], None]
Samples = dict[int, dict[str, Sample]]


def now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def open_sqlite(
    runner: asyncio.Runner, folder: Path, many: SampleConversations
) -> Iterator[tuple[Store, Fill]]:
    store = SqliteStore(folder / "store.db", clock=now)
    runner.run(store.count_conversations())
    db = sqlite3.connect(folder / "store.db", isolation_level=None)

    def fill(numbers: range) -> None:
        fill_sqlite(db, many, numbers)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    yield store, fill
    db.close()
    runner.run(store.close())


@contextmanager
def open_postgres(
    runner: asyncio.Runner, _folder: Path, many: SampleConversations
) -> Iterator[tuple[Store, Fill]]:
    with start_server() as url:
        store = PostgresStore(url, clock=now)
        runner.run(store.count_conversations())
        db = runner.run(asyncpg.connect(url))

        def fill(numbers: range) -> None:
            runner.run(fill_without_index(db, many, numbers))

        yield store, fill
        runner.run(db.close())
        runner.run(store.close())


ENGINES = {"SQLite": open_sqlite, "PostgreSQL": open_postgres}


def measure_sizes(
    engine: str, folder: Path, many: SampleConversations, *, rounds: int, most: int
) -> Samples:
    """Measure the queries at each size, in the same growing store."""
    samples: Samples = {}
    with asyncio.Runner() as runner, ENGINES[engine](runner, folder, many) as (store, fill):
        filled = 0
        for size in SIZES[engine]:
            if size > most:
                break
            fill(range(filled, size))
            filled = size
            samples[size] = interleave(make_runs(runner, store, many, size), rounds=rounds)
            for name, sample in samples[size].items():
                times = f"{sample.cpu * 1e3:9.2f} ms CPU, {sample.wall * 1e3:9.2f} ms"
                print(f"{engine}, {size:9,} conversations, {name:26}{times}", flush=True)
    return samples


def make_runs(
    runner: asyncio.Runner, store: Store, many: SampleConversations, size: int
) -> dict[str, Callable[[], Cost]]:
    # Old ones: the newest are at the end of every index and in every cache.
    numbers = itertools.count(size // 3)
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        PAGE: store.list_conversations,
        RARE: lambda: store.search(RARE_WORD),
        COMMON: lambda: store.search(COMMON_WORD),
        TURN: lambda: run_turn(store, many.id(next(numbers)), MESSAGES),
    }

    async def repeat(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        for _ in range(REPEATS):
            await call()

    def measure(call: Callable[[], Coroutine[Any, Any, object]]) -> Cost:
        return measure_call(lambda: runner.run(repeat(call))) / REPEATS

    return {name: partial(measure, call) for name, call in calls.items()}


def report(results: Results, samples: Mapping[str, Samples]) -> None:
    for engine, sizes in samples.items():
        first, last = min(sizes), max(sizes)
        for size, each in sizes.items():
            results.add_samples(f"{engine}, {size:,} conversations", each)
        for query, limit in LIMITS.items():
            results.compare(
                f"{engine}: {query}, {last:,} conversations",
                sizes[last][query],
                sizes[first][query],
                limit,
                itself=f"{first:,} conversations",
                # The client's CPU time does not include a PostgreSQL server.
                measure=CPU if engine == "SQLite" else WALL,
            )
        results.add_curve(
            Curve(
                id=f"conversations-{engine.lower()}",
                title=f"{engine}: queries by the number of conversations",
                description="A list page has the newest 100 conversations. One in a thousand "
                "conversations has the rare word, so that the number of its results grows. Two "
                "thirds of the messages have the common word; a search ranks the newest 1,000. "
                f"A turn continues a conversation that nobody used lately. {NOTES[engine]}",
                x_label="conversations in the store",
                y_label="Wall time",
                series=[
                    Series(
                        name=query,
                        kind="cllm",
                        points=[(size, each[query].wall) for size, each in sizes.items()],
                    )
                    for query in LIMITS
                ],
            )
        )


def main() -> int:
    parser = make_parser(__doc__, rounds=7)
    parser.add_argument("--conversations", type=int, default=1_000_000, help="the largest size")
    options = parser.parse_args()
    results = Results("conversation_growth")
    results.versions["SQLite"] = sqlite3.sqlite_version
    many = SampleConversations(turns=1, size=BYTES)
    samples: dict[str, Samples] = {}
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as folder:
            samples[engine] = measure_sizes(
                engine, Path(folder), many, rounds=options.rounds, most=options.conversations
            )
    report(results, samples)
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
