"""What the window costs: tokens paid for, beside the least possible, and time, beside others.

Run it with `make bench-window`, which installs the peers in an environment of their own.
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
from measure import Cost, Targets, counted, interleave, print_table
from window_cost import Workload, even, in_blocks, last_tokens, least, never, one_pair, uneven
from window_peer import BUDGET, TEXT

TURNS = 20_000
CONVERSATIONS = 30
COST_LIMIT = 1.04
PAIR_COST = 2.5
TIME_LIMIT = 0.01
REPEATS = 100
WAYS = {
    "never trimmed": never,
    "one pair a turn": one_pair,
    "the last 8,000 tokens": last_tokens,
    "cllm, in blocks": in_blocks,
}


def compare_costs(name: str, workloads: list[Workload], targets: Targets) -> None:
    """Each way as a multiple of the least that the same conversations can cost."""
    floors = [least(workload) for workload in workloads]
    print(f"{name}, {len(workloads)} of 200 turns; the least is {sum(floors):,.0f}")
    ratios = {}
    for way, cuts in WAYS.items():
        costs = [workload.cost(cuts(workload)) for workload in workloads]
        ratios[way] = sum(costs) / sum(floors)
        worst = max(cost / floor for cost, floor in zip(costs, floors, strict=True))
        print(f"  {way:22} {sum(costs):14,.0f}  {ratios[way]:6.3f} x, worst {worst:.3f} x")
    targets.at_most(f"{name}: cllm / least", ratios["cllm, in blocks"], COST_LIMIT)
    pair = ratios["one pair a turn"]
    targets.at_most(f"{name}: {PAIR_COST} / one pair a turn", PAIR_COST / pair, 1)


class Ours:
    """A conversation as an engine holds it: messages, their ledger, and the remembered cut."""

    def __init__(self, turns: int) -> None:
        self.messages: list[Message] = []
        self.turn_index = TurnIndex()
        self.window_start: int | None = None
        for _ in range(turns):
            self.say("user")
            self.say("assistant")
        self.strategy = ByTokens(max_tokens=BUDGET)
        self.call()

    def say(self, role: Role) -> None:
        message = plain_message(role, TEXT)
        self.messages.append(message)
        self.turn_index.append(IndexedMessage(role=message.role, tokens=estimate_tokens(message)))

    def call(self) -> object:
        """One turn's work: the new messages are counted, and what is sent is chosen."""
        self.say("user")
        view = plan_window(self.turn_index, self.strategy, window_start=self.window_start)
        self.window_start = view.window_start
        sent = view.of(self.messages)
        self.say("assistant")
        return sent

    def cost(self) -> Cost:
        cost = counted(lambda: [self.call() for _ in range(REPEATS)])
        return Cost(cpu=cost.cpu / REPEATS, wall=cost.wall / REPEATS)


class Peer:
    """The process in which the others are measured."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def cost(self, name: str, turns: int) -> Cost:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, turns, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise SystemExit(f"{name} is not installed beside the benchmarks: {answer}")
        return Cost(wall=float(answer[0]), cpu=float(answer[1]))


@contextmanager
def peer(python: str) -> Iterator[Peer]:
    script = str(Path(__file__).with_name("window_peer.py"))
    with subprocess.Popen(
        [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Peer(process)
        assert process.stdin is not None
        process.stdin.close()


def compare_times(python: str, rounds: int, targets: Targets) -> None:
    short, long = Ours(200), Ours(TURNS)
    with peer(python) as others:
        samples = interleave(
            {
                "cllm, 200 turns": short.cost,
                f"cllm, {TURNS:,} turns": long.cost,
                "LangChain, 200 turns": lambda: others.cost("langchain", 200),
                f"LangChain, {TURNS:,} turns": lambda: others.cost("langchain", TURNS),
                "LiteLLM, 200 turns": lambda: others.cost("litellm", 200),
                "llama_index, 200 turns": lambda: others.cost("llama_index", 200),
                "llama_index, 2,000 turns": lambda: others.cost("llama_index", 2000),
            },
            rounds=rounds,
        )
    print_table(samples, against="cllm, 200 turns")
    ours, theirs = samples[f"cllm, {TURNS:,} turns"], samples[f"LangChain, {TURNS:,} turns"]
    targets.at_most(
        f"a call at {TURNS:,} turns, cllm / LangChain", ours.cpu / theirs.cpu, TIME_LIMIT
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="the Python that has the others to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    targets = Targets()
    compare_costs("even turns", [even()], targets)
    uneven_ones = [uneven(seed) for seed in range(CONVERSATIONS)]
    compare_costs("lognormal turns with pauses", uneven_ones, targets)
    if options.peers:
        compare_times(options.peers, options.rounds, targets)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())
