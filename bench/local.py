"""What a turn with the local model costs: early and late in a conversation, and two at once.

Drives the real command in a temporary home. Processor time is that of the command and of its
child. Targets: with slot files turn 30 costs at most twice turn 3, in processor time and by the
clock; two commands at once both finish within four times one alone. Exits 1 if one is missed.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cllm.providers.local.fetch import Fetcher, fetch_known_model
from cllm.providers.local.models import DEFAULT_MODEL, KNOWN_MODELS, CachePaths

EARLY, LATE = 3, 30
MOST_FOR_LATE = 2.0
MOST_FOR_TWO = 4.0
SAID = (
    "This is message number {number}. Yesterday my cat Luna sat by the window, looked at the birds "
    "in the garden, and would not come to eat before it was dark. What should I do?"
)


class Cost(NamedTuple):
    """Seconds: by the clock, and of processor."""

    wall: float
    processor: float


class Home:
    """A temporary home with the model in its cache."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root = root
        self.cache = root / "caches" / "cllm"
        (self.cache / "models").mkdir(parents=True)
        (self.cache / "models" / model.name).symlink_to(model)
        (root / ".cllm").mkdir()
        self.errors = (root / "errors").open("ab")
        self.environ = {
            "HOME": str(root),
            "XDG_CACHE_HOME": str(root / "caches"),
            "PATH": os.environ["PATH"],
            "CLLM_MODEL": f"local/{DEFAULT_MODEL}",
        }

    def start(self, said: str, conversation: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "cllm", said, "--conversation", conversation),
                *("--temperature", "0", "--max-tokens", "16"),
            ],
            env=self.environ,
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )

    def turn(self, number: int, conversation: str = "bench") -> Cost:
        """Take one turn and wait for it; the processor time includes the child's."""
        began = time.perf_counter()
        process = self.start(SAID.format(number=number), conversation)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit((self.root / "errors").read_text(encoding="utf-8"))
        return Cost(wall, used.ru_utime + used.ru_stime)

    def save(self, name: str) -> None:
        shutil.copytree(self.root / ".cllm", self.root / name / "conversations")
        shutil.copytree(self.cache / "slots", self.root / name / "slots")

    def restore(self, name: str, *, slots: bool) -> None:
        shutil.rmtree(self.root / ".cllm")
        shutil.rmtree(self.cache / "slots")
        shutil.copytree(self.root / name / "conversations", self.root / ".cllm")
        if slots:
            shutil.copytree(self.root / name / "slots", self.cache / "slots")
        else:
            (self.cache / "slots").mkdir(mode=0o700)


def median(costs: Iterable[Cost]) -> Cost:
    walls, processors = zip(*costs, strict=True)
    return Cost(statistics.median(walls), statistics.median(processors))


def measure_turns(home: Home, repeats: int) -> dict[tuple[int, bool], Cost]:
    """The cost of an early and of a late turn, with slot files and without."""
    for number in range(1, LATE):
        if number == EARLY:
            home.save(str(EARLY))
        home.turn(number)
    home.save(str(LATE))
    costs: dict[tuple[int, bool], list[Cost]] = {}
    # Without slot files a late turn takes long, and is here for contrast only: once will do.
    for slots in [True] * repeats + [False]:
        for number in (EARLY, LATE):
            home.restore(str(number), slots=slots)
            costs.setdefault((number, slots), []).append(home.turn(number))
    return {key: median(found) for key, found in costs.items()}


def measure_two(home: Home, repeats: int) -> tuple[float, float]:
    """Seconds by the clock for one command, and for two at once."""
    alone, together = [], []
    for repeat in range(repeats):
        alone.append(home.turn(1, f"alone-{repeat}").wall)
        began = time.perf_counter()
        both = [home.start(SAID.format(number=1), f"both-{repeat}-{which}") for which in "ab"]
        codes = [process.wait() for process in both]
        if codes != [0, 0]:
            sys.exit((home.root / "errors").read_text(encoding="utf-8"))
        together.append(time.perf_counter() - began)
    return statistics.median(alone), statistics.median(together)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path(".cache/cllm"))
    options = parser.parse_args()
    fetcher = Fetcher(paths=CachePaths(root=options.cache.resolve()), environ=dict(os.environ))
    model = fetch_known_model(KNOWN_MODELS[DEFAULT_MODEL], fetcher).path
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), model)
        costs = measure_turns(home, options.repeats)
        alone, together = measure_two(home, options.repeats)
    print(f"{'':24}{'wall s':>10}{'CPU s':>10}")
    for (number, slots), cost in sorted(
        costs.items(), key=lambda item: (not item[0][1], item[0][0])
    ):
        label = f"turn {number}, {'with' if slots else 'without'} slots"
        print(f"{label:24}{cost.wall:10.2f}{cost.processor:10.2f}")
    print(f"{'one alone':24}{alone:10.2f}\n{'two at once':24}{together:10.2f}")
    met = [
        verdict("CPU, turn 30 / turn 3", costs, "processor"),
        verdict("wall, turn 30 / turn 3", costs, "wall"),
    ]
    ratio = together / alone
    met.append(ratio <= MOST_FOR_TWO)
    print(f"two at once / one alone: {ratio:.2f} (at most {MOST_FOR_TWO:g})")
    return 0 if all(met) else 1


def verdict(label: str, costs: dict[tuple[int, bool], Cost], field: str) -> bool:
    """Print the ratio with slot files, and the one without for contrast; whether it is met."""
    with_slots, without = (
        float(getattr(costs[LATE, slots], field) / getattr(costs[EARLY, slots], field))
        for slots in (True, False)
    )
    print(f"{label}: {with_slots:.2f} (at most {MOST_FOR_LATE:g}); without slots: {without:.2f}")
    return with_slots <= MOST_FOR_LATE


if __name__ == "__main__":
    sys.exit(main())
