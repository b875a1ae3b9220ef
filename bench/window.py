"""Measures the window: input cost compared with the lowest possible, CPU time with other libraries.

cllm reads from SQLite the messages that can be sent, and selects those of the turn. The libraries
get the whole conversation in memory, because they have no store.

Run it with `make bench-window`, which installs the other libraries in a separate environment.
"""

import asyncio
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.core.ports import Provider
from cllm.core.prompt import Prompt
from cllm.engine.request import ModelRoute, TurnInput, TurnRequest, TurnStorage, TurnTarget
from cllm.engine.turn import Engine
from cllm.stores.sqlite.store import SqliteStore
from cllm.window.strategies import ByTokens
from machine import package_versions
from measurement import Cost, Sample, interleave, measure_repeated, print_table
from peer_process import start_peers
from results import Results, make_parser
from sample_conversations import make_conversation
from window_cost import (
    Workload,
    cut_in_blocks,
    cut_never,
    cut_one_turn,
    cut_to_last_tokens,
    lowest_cost,
    make_even,
    make_uneven,
)
from window_peer import BUDGET, TEXT

SHORT, TURNS = 200, 20_000
CONVERSATIONS = 30
COST_LIMIT = 1.04
MAX_SHARE_OF_ONE_TURN_COST = 0.4
TIME_LIMIT = 0.04
GROWTH_LIMIT = 1.5
REPEATS = 20
MODEL, REF = "openai/gpt-4o", "conversation"
BLOCKS, ONE_TURN = "cllm, in blocks", "one turn out per turn"
STRATEGIES = {
    "never trimmed": cut_never,
    ONE_TURN: cut_one_turn,
    "last 8,000 tokens": cut_to_last_tokens,
    BLOCKS: cut_in_blocks,
}
EVEN, UNEVEN = "even turns", "lognormal turns with pauses"
SHORT_WINDOW, LONG_WINDOW = f"cllm, {SHORT} turns", f"cllm, {TURNS:,} turns"


def now() -> datetime:
    return datetime.now(UTC)


def compare_costs(results: Results, name: str, workloads: list[Workload]) -> None:
    """Compare each strategy with the lowest possible cost of the same conversations."""
    lowest = [lowest_cost(workload) for workload in workloads]
    print(f"\n{name} (200 turns, conversations: {len(workloads)}): input cost in token prices")
    print(f"  {'lowest possible':22} {sum(lowest):14,.0f}")
    totals = {}
    for strategy, cut in STRATEGIES.items():
        costs = [workload.cost(cut(workload)) for workload in workloads]
        totals[strategy] = sum(costs)
        ratio = totals[strategy] / sum(lowest)
        worst = max(cost / best for cost, best in zip(costs, lowest, strict=True))
        print(f"  {strategy:22} {sum(costs):14,.0f}  {ratio:6.3f} x, worst {worst:.3f} x")
    cost = {"measure": "input cost", "unit": "tokens"}
    results.compare(name, totals[BLOCKS], sum(lowest), COST_LIMIT, floor="lowest possible", **cost)
    for strategy in (ONE_TURN, "last 8,000 tokens"):
        limit = MAX_SHARE_OF_ONE_TURN_COST if strategy == ONE_TURN else None
        results.compare(name, totals[BLOCKS], totals[strategy], limit, itself=strategy, **cost)


class NoProvider:
    """The provider of a prompt that is not sent."""

    name = "openai"


class CllmWindow:
    """A conversation in SQLite, and the engine that selects the messages of its next turn."""

    def __init__(self, runner: asyncio.Runner, path: Path, turns: int) -> None:
        self.runner = runner
        self.store = SqliteStore(path, clock=now)
        self.engine = Engine(
            store=self.store,
            find_route=lambda model: ModelRoute(provider=cast(Provider, NoProvider()), model=model),
            clock=now,
            new_id=lambda: str(uuid.uuid4()),
        )
        self.request = TurnRequest(
            input=TurnInput(messages=(plain_message("user", TEXT),)),
            target=TurnTarget(model=MODEL),
            storage=TurnStorage(ref=REF, window=lambda _: ByTokens(max_tokens=BUDGET)),
        )
        pair = plain_message("user", TEXT), plain_message("assistant", TEXT)
        conversation = make_conversation(REF, [pair] * turns, model=MODEL)
        *earlier, last = conversation.turns
        plain = [msgspec.structs.replace(one, window=None, usage=None) for one in earlier]
        self.add(conversation, [*plain, msgspec.structs.replace(last, window=None, usage=None)])
        # The last turn has the window that the engine selects, as after a real turn.
        window = self.call().window
        runner.run(self.store.delete(REF))
        self.add(conversation, [*plain, msgspec.structs.replace(last, window=window, usage=None)])

    def add(self, conversation: StoredConversation, turns: Sequence[Turn]) -> None:
        self.runner.run(self.store.add(msgspec.structs.replace(conversation, turns=tuple(turns))))

    def call(self) -> Prompt:
        """Read the messages that can be sent, and select those of the next turn."""
        self.store._cache.clear()  # noqa: SLF001
        _, prompt = self.runner.run(self.engine.preview_prompt(self.request))
        return prompt

    def measure(self) -> Cost:
        return measure_repeated(self.call, REPEATS)

    def close(self) -> None:
        self.runner.run(self.store.close())


@contextmanager
def open_windows(turns: int = TURNS) -> Iterator[dict[str, Callable[[], Cost]]]:
    """Yield the measurements of a short conversation and of one with this many turns."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        windows = {
            name: CllmWindow(runner, Path(folder) / f"{name}.db", count)
            for name, count in ((SHORT_WINDOW, SHORT), (LONG_WINDOW, turns))
        }
        yield {name: window.measure for name, window in windows.items()}
        for window in windows.values():
            window.close()


def compare_lengths(results: Results, samples: Mapping[str, Sample]) -> None:
    both = samples[LONG_WINDOW], samples[SHORT_WINDOW]
    results.compare(f"window after {TURNS:,} turns", *both, GROWTH_LIMIT, itself="after 200 turns")


def compare_times(results: Results, python: str, rounds: int) -> None:
    with start_peers(python, "window_peer.py") as peers, open_windows() as windows:
        samples = interleave(
            {
                **windows,
                "LangChain, 200 turns": lambda: peers.measure("langchain", 200),
                f"LangChain, {TURNS:,} turns": lambda: peers.measure("langchain", TURNS),
                "LiteLLM, 200 turns": lambda: peers.measure("litellm", 200),
                "LlamaIndex, 200 turns": lambda: peers.measure("llama_index", 200),
            },
            rounds=rounds,
        )
    print_table(samples, baseline=SHORT_WINDOW)
    results.add_samples("trimming", samples)
    for peer in ("LangChain", "LiteLLM", "LlamaIndex"):
        both = samples[SHORT_WINDOW], samples[f"{peer}, 200 turns"]
        results.compare("window after 200 turns", *both, peer=peer)
    both = samples[LONG_WINDOW], samples[f"LangChain, {TURNS:,} turns"]
    results.compare(f"window after {TURNS:,} turns", *both, TIME_LIMIT, peer="LangChain")
    compare_lengths(results, samples)


def main() -> int:
    parser = make_parser(__doc__, rounds=7)
    parser.add_argument("--peers", help="Python with the libraries to compare with")
    options = parser.parse_args()
    results = Results("window")
    compare_costs(results, EVEN, [make_even()])
    compare_costs(results, UNEVEN, [make_uneven(seed) for seed in range(CONVERSATIONS)])
    if options.peers:
        packages = ["langchain-core", "litellm", "llama-index-core"]
        results.versions |= package_versions(options.peers, packages)
        compare_times(results, options.peers, options.rounds)
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
