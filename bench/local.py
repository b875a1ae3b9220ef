"""Measures turns with the local model: early and late in a conversation, and two in parallel.

Runs the real command in a temporary home directory. CPU time includes the child process. Limits:
with slot files turn 30 costs at most twice turn 3, in CPU and wall time; two parallel commands take
at most four times as long as one. Exits 1 if a limit is exceeded.
"""

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
from machine import package_versions
from results import CPU, WALL, Results, make_parser

EARLY, LATE = 3, 30
LATE_TURN_LIMIT = 2.0
PARALLEL_LIMIT = 4.0
MESSAGE = (
    "This is message number {number}. Yesterday my cat Luna sat by the window, looked at the birds "
    "in the garden, and would not come to eat before it was dark. What should I do?"
)


class TurnCost(NamedTuple):
    """Wall-clock seconds and CPU seconds."""

    wall: float
    cpu: float


class Home:
    """A temporary home directory whose cache contains the model."""

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

    def start(self, message: str, conversation: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "cllm", message, "--conversation", conversation),
                *("--temperature", "0", "--max-tokens", "16"),
            ],
            env=self.environ,
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )

    def turn(self, number: int, conversation: str = "bench") -> TurnCost:
        """Run one turn and return its cost. CPU time includes the child process."""
        start = time.perf_counter()
        process = self.start(MESSAGE.format(number=number), conversation)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit((self.root / "errors").read_text(encoding="utf-8"))
        return TurnCost(wall, usage.ru_utime + usage.ru_stime)

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


def median(costs: Iterable[TurnCost]) -> TurnCost:
    walls, cpus = zip(*costs, strict=True)
    return TurnCost(statistics.median(walls), statistics.median(cpus))


def measure_turns(home: Home, rounds: int) -> dict[tuple[int, bool], TurnCost]:
    """Return the costs by turn number and whether the slot files exist."""
    for number in range(1, LATE):
        if number == EARLY:
            home.save(str(EARLY))
        home.turn(number)
    home.save(str(LATE))
    costs: dict[tuple[int, bool], list[TurnCost]] = {}
    # Without slot files a late turn is slow and only for comparison: measure it once.
    for slots in [True] * rounds + [False]:
        for number in (EARLY, LATE):
            home.restore(str(number), slots=slots)
            costs.setdefault((number, slots), []).append(home.turn(number))
    return {key: median(values) for key, values in costs.items()}


def measure_parallel(home: Home, rounds: int) -> tuple[float, float]:
    """Return the wall-clock seconds of one command, and of two in parallel."""
    alone, together = [], []
    for number in range(rounds):
        alone.append(home.turn(1, f"alone-{number}").wall)
        start = time.perf_counter()
        both = [home.start(MESSAGE.format(number=1), f"both-{number}-{which}") for which in "ab"]
        codes = [process.wait() for process in both]
        if codes != [0, 0]:
            sys.exit((home.root / "errors").read_text(encoding="utf-8"))
        together.append(time.perf_counter() - start)
    return statistics.median(alone), statistics.median(together)


def main() -> int:
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--cache", type=Path, default=Path(".cache/cllm"))
    options = parser.parse_args()
    results = Results("local")
    results.versions |= package_versions(sys.executable, ["xllamacpp"])
    fetcher = Fetcher(paths=CachePaths(root=options.cache.resolve()), environ=dict(os.environ))
    model = fetch_known_model(KNOWN_MODELS[DEFAULT_MODEL], fetcher).path
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), model)
        costs = measure_turns(home, options.rounds)
        alone, together = measure_parallel(home, options.rounds)
    print(f"{'median of one turn':32}{'wall s':>10}{'CPU s':>10}")
    for (number, slots), cost in sorted(
        costs.items(), key=lambda item: (not item[0][1], item[0][0])
    ):
        label = f"turn {number}, {'with' if slots else 'without'} slot files"
        print(f"{label:32}{cost.wall:10.2f}{cost.cpu:10.2f}")
    print(f"{'one command':32}{alone:10.2f}\n{'two parallel commands':32}{together:10.2f}")
    early, late, no_slots = costs[EARLY, True], costs[LATE, True], costs[LATE, False]
    name = f"local model, turn {LATE}"
    for measure, field in ((CPU, "cpu"), (WALL, "wall")):
        times = [float(getattr(cost, field)) for cost in (late, early, no_slots)]
        results.compare(
            name, times[0], times[1], LATE_TURN_LIMIT, itself=f"turn {EARLY}", measure=measure
        )
        results.compare(name, times[0], times[2], itself="without slot files", measure=measure)
    results.compare(
        *("two parallel commands", together, alone, PARALLEL_LIMIT),
        itself="one command",
        measure=WALL,
    )
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
