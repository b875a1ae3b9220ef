"""Writes the growth curves of `bench/results` as `docs/images/bench-*.svg`.

Runs in the environment of the peers, which has matplotlib. The same results give the same bytes.
Colours are readable on light and dark backgrounds, and the background is transparent.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
IMAGES = ROOT / "docs" / "images"
GREY = "#757c86"
# Lines of cllm are solid, those of peers dashed, those of floors dotted.
COLOURS = {
    "cllm": ("#1f78d1", "#8250df", "#0f9d8f", "#b8459b"),
    "peer": ("#d9730d", "#d1495b", "#b08900"),
    "floor": ("#757c86", "#4f9d4f"),
}
STYLES = {"cllm": "-", "peer": "--", "floor": ":"}
MARKERS = "osD^vX"
MANY_DECADES = 300
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cllm",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GREY,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
}
# The factor of the axis, and the names of its ticks.
UNITS = {"s": (1.0, ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))), "bytes": (2**20, ((1.0, "MiB"),))}


def format_tick(value: float, unit: str) -> str:
    _, names = UNITS[unit]
    factor, name = next((each for each in names if value >= each[0] * 0.999), names[-1])
    return f"{value / factor:g} {name}"


def draw_curve(curve: dict[str, Any], path: Path) -> None:
    pyplot, ticker = import_module("matplotlib.pyplot"), import_module("matplotlib.ticker")
    unit = curve.get("unit", "s")
    figure, axes = pyplot.subplots(figsize=(7.2, 3.9), layout="constrained")
    counts = dict.fromkeys(COLOURS, 0)
    for number, series in enumerate(curve["series"]):
        kind = series["kind"]
        xs, ys = zip(*((x, y / UNITS[unit][0]) for x, y in series["points"]), strict=True)
        colours = COLOURS[kind]
        axes.plot(
            xs,
            ys,
            STYLES[kind],
            label=series["name"].replace("`", "")
            + (" (ends early)" if ends_early(series, curve) else ""),
            color=colours[counts[kind] % len(colours)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4.5,
            linewidth=1.8,
        )
        counts[kind] += 1
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(curve["x_label"])
    axes.set_ylabel(curve["y_label"])
    ticks = sorted({x for series in curve["series"] for x, _ in series["points"]})
    axes.set_xticks(ticks, [f"{x:,.0f}" for x in ticks])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    values = [y / UNITS[unit][0] for series in curve["series"] for _, y in series["points"]]
    widen(axes, values)
    steps = (1,) if max(values) / min(values) > MANY_DECADES else (1, 2, 5)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=steps, numticks=20))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: format_tick(y, unit)))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.grid(visible=True, which="major")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def ends_early(series: dict[str, Any], curve: dict[str, Any]) -> bool:
    last = max(x for each in curve["series"] for x, _ in each["points"])
    return bool(series["points"][-1][0] < last)


def widen(axes: Any, values: list[float]) -> None:
    """Show at least two decades, so that noise does not look like growth."""
    low, high = min(values), max(values)
    middle = (low * high) ** 0.5
    axes.set_ylim(min(low / 1.6, middle / 10), max(high * 1.6, middle * 10))


def main() -> None:
    matplotlib = import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams.update(SETTINGS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    written = set()
    for file in sorted(RESULTS.glob("*.json")):
        for curve in json.loads(file.read_text(encoding="utf-8"))["curves"]:
            path = IMAGES / f"bench-{curve['id']}.svg"
            draw_curve(curve, path)
            written.add(path)
    for path in set(IMAGES.glob("bench-*.svg")) - written:
        path.unlink()
    print(f"Wrote {len(written)} pictures.")


if __name__ == "__main__":
    main()
