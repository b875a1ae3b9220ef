"""Measures the window: input cost compared with the lowest possible, CPU time with other libraries.

Run it with `make bench-window`, which installs the other libraries in a separate environment.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cllm.core.message import Message, Role, plain_message
from cllm.window.plan import plan_window
from cllm.window.strategies import ByTokens
from cllm.window.tokens import estimate_tokens
from cllm.window.turn_index import IndexedMessage, TurnIndex
from measurement import Cost, Limits, interleave, measure_call, print_table
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
MIN_ONE_TURN_COST = 2.5
TIME_LIMIT = 0.01
REPEATS = 100
STRATEGIES = {
    "never trimmed": cut_never,
    "one turn out per turn": cut_one_turn,
    "last 8,000 tokens": cut_to_last_tokens,
    "cllm, in blocks": cut_in_blocks,
}


def compare_costs(name: str, workloads: list[Workload], limits: Limits) -> None:
    """Compare each strategy with the lowest possible cost of the same conversations."""
    lowest = [lowest_cost(workload) for workload in workloads]
    print(f"\n{name} (200 turns, conversations: {len(workloads)}): input cost in token prices")
    print(f"  {'lowest possible':22} {sum(lowest):14,.0f}")
    ratios = {}
    for strategy, cut in STRATEGIES.items():
        costs = [workload.cost(cut(workload)) for workload in workloads]
        ratios[strategy] = sum(costs) / sum(lowest)
        worst = max(cost / best for cost, best in zip(costs, lowest, strict=True))
        print(
            f"  {strategy:22} {sum(costs):14,.0f}  {ratios[strategy]:6.3f} x, worst {worst:.3f} x"
        )
    limits.check(f"{name}: cost of cllm / lowest possible", ratios["cllm, in blocks"], COST_LIMIT)
    ratio = MIN_ONE_TURN_COST / ratios["one turn out per turn"]
    limits.check(f"{name}: {MIN_ONE_TURN_COST} / ratio of one turn out per turn", ratio, 1)


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
        cost = measure_call(lambda: [self.call() for _ in range(REPEATS)])
        return Cost(cpu=cost.cpu / REPEATS, wall=cost.wall / REPEATS)


class PeerProcess:
    """The process in which other libraries are measured (`window_peer.py`)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(self, name: str, turns: int) -> Cost:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, turns, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise SystemExit(f"{name} is not installed in the environment of --peers: {answer}")
        return Cost(wall=float(answer[0]), cpu=float(answer[1]))


@contextmanager
def start_peers(python: str) -> Iterator[PeerProcess]:
    script = str(Path(__file__).with_name("window_peer.py"))
    with subprocess.Popen(
        [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield PeerProcess(process)
        assert process.stdin is not None
        process.stdin.close()


def compare_times(python: str, rounds: int, limits: Limits) -> None:
    short, long = CllmWindow(200), CllmWindow(TURNS)
    with start_peers(python) as peers:
        samples = interleave(
            {
                "cllm, 200 turns": short.measure,
                f"cllm, {TURNS:,} turns": long.measure,
                "LangChain, 200 turns": lambda: peers.measure("langchain", 200),
                f"LangChain, {TURNS:,} turns": lambda: peers.measure("langchain", TURNS),
                "LiteLLM, 200 turns": lambda: peers.measure("litellm", 200),
                "llama_index, 200 turns": lambda: peers.measure("llama_index", 200),
                "llama_index, 2,000 turns": lambda: peers.measure("llama_index", 2000),
            },
            rounds=rounds,
        )
    print_table(samples, baseline="cllm, 200 turns")
    cllm, langchain = samples[f"cllm, {TURNS:,} turns"], samples[f"LangChain, {TURNS:,} turns"]
    limits.check(
        f"window after {TURNS:,} turns: cllm / LangChain, CPU time",
        cllm.cpu / langchain.cpu,
        TIME_LIMIT,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="Python with the libraries to compare with")
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds")
    options = parser.parse_args()
    limits = Limits()
    compare_costs("even turns", [make_even()], limits)
    uneven = [make_uneven(seed) for seed in range(CONVERSATIONS)]
    compare_costs("lognormal turns with pauses", uneven, limits)
    if options.peers:
        compare_times(options.peers, options.rounds, limits)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
