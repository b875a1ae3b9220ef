"""Measures the window: input cost compared with the lowest possible, CPU time with other libraries.

Run it with `make bench-window`, which installs the other libraries in a separate environment.
"""

import sys
from collections.abc import Callable, Mapping

from cllm.core.message import Message, Role, plain_message
from cllm.window.plan import plan_window
from cllm.window.strategies import ByTokens
from cllm.window.tokens import estimate_tokens
from cllm.window.turn_index import IndexedMessage, TurnIndex
from machine import package_versions
from measurement import Cost, Sample, interleave, measure_repeated, print_table
from peer_process import start_peers
from results import Results, make_parser
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

TURNS = 20_000
CONVERSATIONS = 30
COST_LIMIT = 1.04
MAX_SHARE_OF_ONE_TURN_COST = 0.4
TIME_LIMIT = 0.01
GROWTH_LIMIT = 1.5
REPEATS = 100
BLOCKS, ONE_TURN = "cllm, in blocks", "one turn out per turn"
STRATEGIES = {
    "never trimmed": cut_never,
    ONE_TURN: cut_one_turn,
    "last 8,000 tokens": cut_to_last_tokens,
    BLOCKS: cut_in_blocks,
}
EVEN, UNEVEN = "even turns", "lognormal turns with pauses"
SHORT_WINDOW, LONG_WINDOW = "cllm, 200 turns", f"cllm, {TURNS:,} turns"


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
        results.compare(name, totals[BLOCKS], totals[strategy], limit, peer=strategy, **cost)


class CllmWindow:
    """A conversation as in the engine: messages, their ledger and the current cut."""

    def __init__(self, turns: int) -> None:
        self.messages: list[Message] = []
        self.ledger = TurnIndex()
        self.window_start: int | None = None
        for _ in range(turns):
            self.add("user")
            self.add("assistant")
        self.strategy = ByTokens(max_tokens=BUDGET)
        self.call()

    def add(self, role: Role) -> None:
        message = plain_message(role, TEXT)
        self.messages.append(message)
        self.ledger.append(IndexedMessage(role=message.role, tokens=estimate_tokens(message)))

    def call(self) -> object:
        """Do the work of one turn: count the new messages and select the messages to send."""
        self.add("user")
        view = plan_window(self.ledger, self.strategy, window_start=self.window_start)
        self.window_start = view.window_start
        selected = view.select(self.messages)
        self.add("assistant")
        return selected

    def measure(self) -> Cost:
        return measure_repeated(self.call, REPEATS)


def make_windows(turns: int = TURNS) -> dict[str, Callable[[], Cost]]:
    """Return the measurements of a short conversation and of one with this many turns."""
    return {
        SHORT_WINDOW: CllmWindow(200).measure,
        LONG_WINDOW: CllmWindow(turns).measure,
    }


def compare_lengths(results: Results, samples: Mapping[str, Sample]) -> None:
    both = samples[LONG_WINDOW], samples[SHORT_WINDOW]
    results.compare(f"window after {TURNS:,} turns", *both, GROWTH_LIMIT, itself="after 200 turns")


def compare_times(results: Results, python: str, rounds: int) -> None:
    with start_peers(python, "window_peer.py") as peers:
        samples = interleave(
            {
                **make_windows(),
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
