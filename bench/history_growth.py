"""Measures one more turn by the length of the history: 10 to 100,000 messages of 1 KB.

In the process: the stores of cllm and two libraries that store conversations (`store_peer.py`).
Each turn saves the question, loads the newest 40 messages and saves the reply; no store has the
conversation in a cache. With the command: one turn of `cllm` and of `llm -c` against a provider on
loopback. A line ends at the length where one turn takes more than `MAX_SECONDS` of CPU time.
"""

import asyncio
import itertools
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from cllm.core.conversation import StoredConversation
from cllm.core.message import plain_message
from cllm.core.ports import Store
from cllm.library.stores import open_store
from cllm.stores.json.store import JsonFileStore
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sqlite.store import SqliteStore
from loopback import run_provider
from machine import package_versions
from measurement import Cost, Sample, interleave, measure_for, run_command
from peer_process import PeerProcess, start_peers
from results import WALL, Curve, Results, Series, SeriesKind, make_parser, program
from sample_conversations import make_conversation, run_turn
from startup import QUESTION, make_environment, prepare_home
from store_peer import MAX_TURNS, MEASURED_SECONDS, TEXT
from store_postgres import drop_search_index, start_server

LENGTHS = (10, 100, 1_000, 10_000, 100_000)
SHORT = 100
# A conversation grows with each turn, so that short ones are measured in several copies.
COPIES = {10: 40, 100: 8}
MAX_SECONDS = 2.0
MAX_LLM_MESSAGES = 1_000
GROWTH_LIMIT = 1.5
MESSAGES = plain_message("user", TEXT), plain_message("assistant", TEXT)
SQLITE, POSTGRES, JSON = "cllm, SQLite", "cllm, PostgreSQL", "cllm, JSON files"
LANGGRAPH, AGENTS, LLM = "LangGraph checkpointer", "Agents SDK session", "`llm -c`"
KINDS: dict[str, SeriesKind] = dict.fromkeys((LANGGRAPH, AGENTS, LLM), "peer")
FILL_LLM = """
import sys
import llm, sqlite_utils
from llm.migrations import migrate

class Model(llm.Model):
    model_id = "fake"

    def execute(self, prompt, stream, response, conversation=None):
        yield prompt.prompt

database = sqlite_utils.Database(sys.argv[1])
migrate(database)
conversation = Model().conversation()
for number in range(int(sys.argv[2]) // 2):
    response = conversation.prompt(f"{number} {sys.argv[3]}")
    response.text()
    response.log_to_db(database)
"""

Prepare = Callable[[int], Callable[[], Cost]]
"""Fills conversations of a length and returns the measurement of one more turn."""
Add = Callable[[Store, list[StoredConversation]], Coroutine[Any, Any, None]]
Samples = dict[int, dict[str, Sample]]


def now() -> datetime:
    return datetime.now(UTC)


async def add_conversations(store: Store, conversations: list[StoredConversation]) -> None:
    for conversation in conversations:
        await store.add(conversation)


async def add_to_postgres(url: str, store: Store, conversations: list[StoredConversation]) -> None:
    db = await asyncpg.connect(url)
    # The migrations of the store create the index.
    await store.count_conversations()
    async with drop_search_index(db):
        await add_conversations(store, conversations)
    await db.close()


def prepare_store(
    store: Store, runner: asyncio.Runner, add: Add, length: int
) -> Callable[[], Cost]:
    refs = [str(uuid.uuid4()) for _ in range(COPIES.get(length, 1))]
    runner.run(add(store, [make_conversation(ref, [MESSAGES] * (length // 2)) for ref in refs]))
    circle = itertools.cycle(refs)

    def turn() -> None:
        if isinstance(store, SqliteStore):
            store._cache.clear()  # noqa: SLF001
        runner.run(run_turn(store, next(circle), MESSAGES))

    return partial(measure_for, turn, MEASURED_SECONDS, max_times=MAX_TURNS)


def prepare_peer(peers: PeerProcess, script: str, folder: Path, length: int) -> Callable[[], Cost]:
    return partial(peers.measure, script, length, COPIES.get(length, 1), folder)


@contextmanager
def open_variants(folder: Path, python: Path) -> Iterator[dict[str, Prepare]]:
    """Yield the stores of cllm and the other libraries."""
    with (
        asyncio.Runner() as runner,
        start_server() as url,
        start_peers(python, "store_peer.py") as peers,
    ):
        stores: dict[str, tuple[Store, Add]] = {
            SQLITE: (SqliteStore(folder / "store.db", clock=now), add_conversations),
            POSTGRES: (
                # The default timeout of 30 seconds is too short to add 100,000 messages at once.
                PostgresStore(f"{url}&pool_timeout=600", clock=now),
                partial(add_to_postgres, url),
            ),
            JSON: (JsonFileStore(folder / "files", clock=now), add_conversations),
        }
        variants: dict[str, Prepare] = {
            name: partial(prepare_store, store, runner, add)
            for name, (store, add) in stores.items()
        }
        variants |= {
            name: partial(prepare_peer, peers, script, folder)
            for name, script in ((LANGGRAPH, "langgraph"), (AGENTS, "agents"))
        }
        yield variants
        for store, _ in stores.values():
            runner.run(store.close())


@contextmanager
def open_commands(folder: Path, llm: Path) -> Iterator[dict[str, Prepare]]:
    """Yield one turn of the commands. Each length has its own home directory."""
    cllm = str(Path(sys.executable).with_name("cllm"))

    def prepare(name: str, length: int) -> Callable[[], Cost]:
        home = folder / f"{name}-{length}"
        prepare_home(home, url)
        if name == LLM:
            fill = [str(llm.with_name("python")), "-c", FILL_LLM, str(home / "llm" / "logs.db")]
            subprocess.run([*fill, str(length), TEXT], check=True)
            command = [str(llm), "-m", "fake", "-c", QUESTION]
        else:
            json = home / ".cllm" / "conversations"
            store = f"json:{json}" if name == JSON else f"sqlite:{home}/store.db"
            asyncio.run(add_long_conversation(store, length))
            command = [cllm, QUESTION, "--conversation", "long", "--store", store]
        return partial(run_command, command, make_environment(home), str(home))

    with run_provider() as url:
        yield {name: partial(prepare, name) for name in (SQLITE, JSON, LLM)}


async def add_long_conversation(url: str, length: int) -> None:
    store = open_store(url)
    pairs = [MESSAGES] * (length // 2)
    await store.add(make_conversation("long", pairs, model="openai/gpt-test"))
    await store.close()


def measure_lengths(
    variants: Mapping[str, Prepare], rounds: int, *, lengths: tuple[int, ...] = LENGTHS
) -> Samples:
    """Measure all variants alternately at each length, up to the length that is too slow."""
    samples: Samples = {}
    names = list(variants)
    for length in lengths:
        runs = {name: variants[name](length) for name in names}
        samples[length] = interleave(runs, rounds=rounds)
        for name, sample in samples[length].items():
            times = f"{sample.cpu * 1e3:10.2f} ms CPU, {sample.wall * 1e3:10.2f} ms"
            print(f"{name:24} after {length:7,} messages: {times}", flush=True)
        names = [
            name
            for name in names
            if samples[length][name].cpu < MAX_SECONDS
            and not (name == LLM and length >= MAX_LLM_MESSAGES)
        ]
    return samples


def make_series(samples: Samples) -> list[Series]:
    """Return a line for each variant, with its wall times."""
    series = []
    for name in next(iter(samples.values())):
        points = [(length, each[name].wall) for length, each in samples.items() if name in each]
        note = ""
        if points[-1][0] < max(samples):
            reason = f"one turn takes {points[-1][1]:.2g} s"
            if name == LLM:
                reason = "a longer history takes `llm` minutes to write"
            note = f"ends at {points[-1][0]:,} messages, because {reason}"
        series.append(Series(name=name, kind=KINDS.get(name, "cllm"), points=points, note=note))
    return series


def name_turn(store: str, length: int) -> str:
    return f"{store.removeprefix('cllm, ')}: one more turn after {length:,} messages"


def find_last(samples: Samples, name: str) -> tuple[int, Sample]:
    """Return the greatest length at which a variant was measured, and its sample."""
    length = max(length for length, each in samples.items() if name in each)
    return length, samples[length][name]


def report_stores(results: Results, samples: Samples) -> None:
    for length, each in samples.items():
        results.add_samples(f"one more turn after {length:,} messages", each)
        for peer in (LANGGRAPH, AGENTS):
            if peer in each:
                for store in (SQLITE, JSON):
                    if store in each:
                        results.compare(
                            name_turn(store, length), each[store], each[peer], peer=peer
                        )
    for store, limit in ((SQLITE, GROWTH_LIMIT), (POSTGRES, GROWTH_LIMIT), (JSON, None)):
        length, last = find_last(samples, store)
        short = samples[SHORT][store]
        after = {"itself": f"after {SHORT} messages", "measure": WALL}
        results.compare(name_turn(store, length), last, short, limit, **after)
    results.add_curve(
        Curve(
            id="history",
            title="One more turn by the length of the history",
            description="Saves the question, loads the newest 40 messages and saves the reply, "
            "1 KB each, without a model. JSON files and LangGraph checkpoints are written whole.",
            x_label="messages in the conversation",
            y_label="Wall time of one turn",
            series=make_series(samples),
        )
    )


def report_commands(results: Results, samples: Samples) -> None:
    for length, each in samples.items():
        results.add_samples(f"command: one more turn after {length:,} messages", each)
        if LLM in each:
            for store in (SQLITE, JSON):
                name = f"command, {name_turn(store, length)}"
                results.compare(name, each[store], each[LLM], peer=LLM)
    for store in (SQLITE, JSON):
        length, last = find_last(samples, store)
        name = f"command, {name_turn(store, length)}"
        results.compare(name, last, samples[SHORT][store], itself=f"after {SHORT} messages")
    results.add_curve(
        Curve(
            id="history-command",
            title="One turn of the command by the length of the history",
            description="Starts the command, loads the conversation, calls a provider on loopback "
            "and saves the reply. cllm sends its window, `llm -c` sends all messages.",
            x_label="messages in the conversation",
            y_label="Wall time of one command",
            series=make_series(samples),
        )
    )


def main() -> int:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--peers", type=program, required=True, help="Python of the peers")
    parser.add_argument("--llm", type=program, required=True, help="the `llm` command")
    options = parser.parse_args()
    results = Results("history_growth")
    packages = ["langgraph-checkpoint-sqlite", "openai-agents"]
    results.versions |= package_versions(options.peers, packages)
    results.versions |= package_versions(options.llm.with_name("python"), ["llm"])
    with (
        tempfile.TemporaryDirectory() as folder,
        open_variants(Path(folder), options.peers) as variants,
    ):
        report_stores(results, measure_lengths(variants, options.rounds))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_commands(Path(folder), options.llm) as commands,
    ):
        report_commands(results, measure_lengths(commands, min(options.rounds, 3)))
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
