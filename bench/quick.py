"""Compares ratios with the committed ones in `bench/results/quick.json`, in under three minutes.

Needs no network and no other tools: cllm is compared with floors and with itself. Only ratios of
CPU times, measured alternately, and computed costs are compared, because they depend little on the
machine. A ratio that is worse than the committed one by more than its tolerance is measured a
second time, and fails if it is worse again. `--update` writes the file.
"""

import asyncio
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from cllm_requests import CllmClient
from gateways import CLLM, Peers, start_gateways
from measurement import interleave
from results import CPU, RESULTS, Comparison, Results, make_parser, read_results, write_results
from sample_conversations import SampleConversations
from server import (
    report_durable_turns,
    report_events,
    report_messages,
    report_responses,
    report_stateless,
)
from startup import compare_with_python, measure_startup
from stopwatch import Stopwatch
from store_sqlite import LONG, Bench, compare_queries, fill_file, measure_turns
from window import EVEN, TURNS, compare_costs, compare_lengths, open_windows
from window_cost import make_even
from wire import AT_ONCE, compare_requests, freeze_imports, make_tools, measure_requests

COMMITTED = RESULTS / "quick.json"
# Ratios of CPU times differ by a tenth between runs, and more between machines. Costs are computed.
TOLERANCES = {CPU: 1.3, "input cost": 1.001}
Key = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    rounds: int
    requests: int
    messages: int
    conversations: int
    turns: int


FULL = Sizes(rounds=15, requests=320, messages=LONG, conversations=5_000, turns=TURNS)
SMALLEST = Sizes(rounds=1, requests=16, messages=200, conversations=200, turns=200)


def measure_command(results: Results, sizes: Sizes) -> None:
    compare_with_python(results, measure_startup(None, sizes.rounds), [CPU])


def measure_store(results: Results, sizes: Sizes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), long=sizes.messages)
        measure_turns(results, bench, sizes.rounds)
        bench.close()


def measure_lists(results: Results, sizes: Sizes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        fill_file(path, SampleConversations(turns=1, size=200), sizes.conversations)
        compare_queries(results, path, sizes.rounds)


def measure_translation(results: Results, sizes: Sizes) -> None:
    watch = Stopwatch()
    freeze_imports()
    with asyncio.Runner() as runner:
        tools = make_tools(watch, CllmClient(watch, runner), None)
        samples = measure_requests(tools, "send_at_once", sizes.rounds)
    compare_requests(results, AT_ONCE, samples)


def measure_gateway(results: Results, sizes: Sizes) -> None:
    with tempfile.TemporaryDirectory() as name, start_gateways(Path(name), Peers()) as gateways:
        report_stateless(results, gateways, rounds=sizes.rounds, requests=sizes.requests)
        report_events(results, gateways, sizes.rounds, burst=True)
        report_messages(results, gateways, sizes.rounds)
        report_responses(results, gateways[CLLM], sizes.rounds)
        report_durable_turns(results, gateways, sizes.rounds, Path(name))


def measure_window(results: Results, sizes: Sizes) -> None:
    compare_costs(results, EVEN, [make_even()])
    with open_windows(sizes.turns) as windows:
        compare_lengths(results, interleave(windows, rounds=sizes.rounds))


Group = Callable[[Results, Sizes], None]
GROUPS: tuple[Group, ...] = (
    measure_command,
    measure_store,
    measure_lists,
    measure_translation,
    measure_gateway,
    measure_window,
)


def key_of(one: Comparison) -> Key:
    return one.quantity, one.measure, one.baseline


def find_worse(measured: Iterable[Comparison], committed: Iterable[Comparison]) -> list[str]:
    """Return a sentence for each ratio that is worse than the committed one."""
    old = {key_of(one): one.ratio for one in committed}
    return [
        f"{one.quantity}, {one.measure}: {one.ratio:.3g} x {one.baseline}, "
        f"committed {old[key_of(one)]:.3g} x, tolerance {TOLERANCES[one.measure]:g}"
        for one in measured
        if key_of(one) in old and one.ratio > old[key_of(one)] * TOLERANCES[one.measure]
    ]


def find_differing(measured: Iterable[Comparison], committed: Iterable[Comparison]) -> list[str]:
    """Return a sentence for each ratio that only one of the two has."""
    new, old = ({key_of(one): None for one in each} for each in (measured, committed))
    missing = [f"{', '.join(key)}: not measured" for key in old if key not in new]
    return missing + [f"{', '.join(key)}: not committed" for key in new if key not in old]


def choose_better(first: Sequence[Comparison], second: Sequence[Comparison]) -> list[Comparison]:
    """Return the lower ratio of each pair."""
    pairs = zip(first, second, strict=True)
    return [min(pair, key=lambda one: one.ratio) for pair in pairs]


def run_group(group: Group, sizes: Sizes) -> list[Comparison]:
    """Measure a group without its output, which has limits of the complete run."""
    results = Results("quick")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        group(results, sizes)
    return [one for one in results.comparisons if one.kind != "peer"]


def print_ratios(measured: Iterable[Comparison], committed: Iterable[Comparison]) -> None:
    old = {key_of(one): f"{one.ratio:.3g}" for one in committed}
    for one in measured:
        ratios = f"{one.ratio:10.3g}{old.get(key_of(one), 'none'):>10}"
        print(f"{ratios}  {one.quantity}, {one.measure} / {one.baseline}", flush=True)


def compare_groups(
    groups: Iterable[Group], sizes: Sizes, committed: Sequence[Comparison]
) -> list[str]:
    """Measure the groups, a suspicious one twice; return what is wrong."""
    measured: list[Comparison] = []
    for group in groups:
        comparisons = run_group(group, sizes)
        if worse := find_worse(comparisons, committed):
            print("Worse than committed, measuring again:", *worse, sep="\n  ")
            comparisons = choose_better(comparisons, run_group(group, sizes))
        print_ratios(comparisons, committed)
        measured += comparisons
    return find_worse(measured, committed) + find_differing(measured, committed)


def update(sizes: Sizes) -> None:
    results = Results("quick")
    for group in GROUPS:
        comparisons = run_group(group, sizes)
        print_ratios(comparisons, ())
        results.comparisons += comparisons
    write_results(COMMITTED, results.build_file())


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--update", action="store_true", help="write the committed file")
    options = parser.parse_args()
    start = time.monotonic()
    print(f"{'ratio':>10}{'committed':>10}")
    if options.update:
        update(FULL)
        print(f"\nWrote bench/results/{COMMITTED.name}.")
        return 0
    problems = compare_groups(GROUPS, FULL, read_results(COMMITTED).comparisons)
    print(f"\n{time.monotonic() - start:.0f} seconds.")
    if problems:
        print("Worse than committed, or different:", *problems, sep="\n  ")
        print("After an intended change, run `make bench-quick-update` on an idle machine.")
        return 1
    print("No ratio is worse than committed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
