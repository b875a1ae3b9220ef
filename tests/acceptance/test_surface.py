"""`tests/surface` says what a user can notice: commands, settings, routes, fields, names."""

import difflib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "surface"
LONGEST = 540
"""Seconds after which a run on a very busy machine is given up; it takes about 25 on two cores."""
ADVICE = "The surface has changed; run `make surface` and look at the diff."


def read(folder: Path) -> dict[str, list[str]]:
    return {
        path.name: path.read_text(encoding="utf-8").splitlines() for path in folder.glob("*.txt")
    }


def difference(recorded: dict[str, list[str]], found: dict[str, list[str]]) -> list[str]:
    return [
        line
        for name in sorted({*recorded, *found})
        for line in difflib.unified_diff(
            recorded.get(name, []),
            found.get(name, []),
            f"recorded/{name}",
            f"now/{name}",
            lineterm="",
        )
    ]


def generate(folder: Path) -> None:
    """Write the surface as it is now, as `make surface` does, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.surface_generator", str(folder)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=LONGEST)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    assert process.returncode == 0, said


@pytest.mark.long
@pytest.mark.timeout(LONGEST + 60)
def test_the_surface_is_the_recorded_one(tmp_path: Path):
    generate(tmp_path)

    changed = difference(read(RECORDED), read(tmp_path))
    if changed:
        pytest.fail("\n".join([ADVICE, *changed]), pytrace=False)


def test_a_difference_names_the_file_and_the_line():
    recorded = {"help.txt": ["--model", "--raw"], "gone.txt": ["x"]}
    found = {"help.txt": ["--model", "--rare"]}

    assert difference(recorded, found) == [
        "--- recorded/gone.txt",
        "+++ now/gone.txt",
        "@@ -1 +0,0 @@",
        "-x",
        "--- recorded/help.txt",
        "+++ now/help.txt",
        "@@ -1,2 +1,2 @@",
        " --model",
        "---raw",
        "+--rare",
    ]
