"""Plots the prompts of a long conversation and their cost by window strategy, as SVG.

Writes docs/images/window-*.svg for docs/explanation/window-and-caching.md. The cuts come from
cllm's planner, the costs from the model in `window_cost.py`. Nothing is measured: the same versions
of cllm and matplotlib write the same bytes. Needs cllm and matplotlib, which are in different
environments:

    PYTHONPATH=$(echo .venv-bench/lib/python*/site-packages) .venv/bin/python bench/window_curves.py
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from cllm.window.plan import plan_window
from cllm.window.strategies import CLAUDE, NOVA, OPENAI_EARLIER, UNCACHED, ByTokens, ByTurns
from cllm.window.turn_index import IndexedMessage, TurnIndex
from window_cost import PRICES, Cuts, Workload, cut_never, make_even, make_uneven

IMAGES = Path(__file__).parent.parent / "docs" / "images"
MAX_TURNS = 19
MAX_TOKENS = 16_000
PRICE_LISTS = {
    "Claude, GPT-5.6": CLAUDE,
    "Nova": NOVA,
    "earlier OpenAI": OPENAI_EARLIER,
    "no cache": UNCACHED,
}
STYLE = {
    "axes.edgecolor": "#57606a",
    "axes.grid": True,
    "axes.labelcolor": "#24292f",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.color": "#d8dee4",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "cllm",
    "text.color": "#24292f",
    "xtick.color": "#57606a",
    "ytick.color": "#57606a",
}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The prompts of a conversation with one strategy: tokens and cost of each turn."""

    label: str
    colour: str
    line: str
    cuts: Cuts
    tokens: Sequence[int]
    costs: Sequence[float]


def plan_cuts(workload: Workload, strategy: ByTokens | ByTurns) -> Cuts:
    """Return the first turn of each prompt; the planner is called as by the engine."""
    index = TurnIndex()
    cuts: list[int] = []
    start: int | None = None
    for tokens, is_cold in zip(workload.turns, workload.cold, strict=True):
        index.append(IndexedMessage(role="user", tokens=tokens))
        idle = workload.prices.lifetime + 1 if is_cold else 0.0
        start = plan_window(index, strategy, window_start=start, idle=idle).window_start
        cuts.append((start - 1) // 2)
        index.append(IndexedMessage(role="assistant", tokens=0))
    return cuts


def make_curve(workload: Workload, label: str, colour: str, line: str, cuts: Cuts) -> Curve:
    sums = list(accumulate(workload.turns, initial=0))
    totals = [workload.cost(cuts[:count]) for count in range(len(cuts) + 1)]
    return Curve(
        label=label,
        colour=colour,
        line=line,
        cuts=cuts,
        tokens=[workload.system + sums[turn + 1] - sums[cut] for turn, cut in enumerate(cuts)],
        costs=[after - before for before, after in pairwise(totals)],
    )


def make_curves(workload: Workload) -> list[Curve]:
    by_turns = ByTurns(max_turns=MAX_TURNS)
    by_tokens = ByTokens(max_tokens=MAX_TOKENS, prices=workload.prices)
    return [
        make_curve(workload, "no trimming", "#6e7781", "--", cut_never(workload)),
        make_curve(
            workload,
            f"by turns, {MAX_TURNS}",
            "#bc4c00",
            "-",
            plan_cuts(workload, by_turns),
        ),
        make_curve(
            workload,
            f"in blocks, {MAX_TOKENS:,} tokens",
            "#0969da",
            "-",
            plan_cuts(workload, by_tokens),
        ),
    ]


def plot(
    curves: Sequence[Curve], values: Sequence[Sequence[float]], path: Path, title: str
) -> None:
    """Write a plot with one value per turn and curve, in thousands."""
    matplotlib: Any = import_module("matplotlib")
    figures: Any = import_module("matplotlib.figure")
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for curve, series in zip(curves, values, strict=True):
            thousands = [round(value / 1000, 3) for value in series]
            turns = range(1, len(thousands) + 1)
            axes.plot(turns, thousands, curve.line, color=curve.colour, label=curve.label)
        axes.set(xlabel="turn", ylabel="thousands", xlim=(0, len(values[0])), ylim=(0, None))
        axes.set_title(title, loc="left", fontsize="medium")
        figure.legend(loc="outside lower center", ncols=len(curves))
        metadata = {"Creator": None, "Date": None, "Title": title}
        figure.savefig(path, format="svg", metadata=metadata)


def print_table(workload: Workload, curves: Sequence[Curve]) -> None:
    print(f"\n{workload.name}: {len(workload.turns)} turns, {sum(workload.turns):,} tokens")
    for curve in curves:
        moves = len(set(curve.cuts)) - 1
        print(
            f"  {curve.label:28} {sum(curve.tokens):10,} tokens sent, longest prompt "
            f"{max(curve.tokens):7,}, cut moved {moves:3} times, cost {sum(curve.costs):10,.0f}"
        )


def print_prices(workload: Workload) -> None:
    """Compare the strategies at other cache prices, with the same minimum window for both."""
    print("\nby cache prices: no trimming, by turns, in blocks with the same minimum")
    for name, prices in PRICE_LISTS.items():
        priced = replace(workload, prices=prices)
        by_tokens = ByTokens(max_tokens=1_000_000, floor=workload.floor, prices=prices)
        by_turns = priced.cost(plan_cuts(priced, ByTurns(max_turns=MAX_TURNS)))
        in_blocks = priced.cost(plan_cuts(priced, by_tokens))
        never = priced.cost(cut_never(priced))
        share = in_blocks / by_turns
        print(f"  {name:16} {never:10,.0f} {by_turns:10,.0f} {in_blocks:10,.0f}  {share:.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=IMAGES, help="folder of the SVG files")
    folder = parser.parse_args().folder
    workload = make_even()
    curves = make_curves(workload)
    tokens = [curve.tokens for curve in curves]
    costs = [curve.costs for curve in curves]
    totals = [list(accumulate(series)) for series in costs]
    unit = f"input tokens (cache: read {PRICES.read}, write {PRICES.write})"
    plot(curves, tokens, folder / "window-tokens.svg", "Tokens sent per turn")
    plot(curves, costs, folder / "window-cost.svg", f"Cost per turn, in prices of {unit}")
    plot(curves, totals, folder / "window-total.svg", f"Cost so far, in prices of {unit}")
    print_table(workload, curves)
    uneven = make_uneven(1)
    print_table(uneven, make_curves(uneven))
    print_prices(workload)


if __name__ == "__main__":
    main()
