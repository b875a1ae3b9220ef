"""`tests/surface` says what a user can notice: commands, settings, routes, fields, names."""

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "surface"
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


def test_the_surface_is_the_recorded_one(tmp_path: Path):
    generator = [sys.executable, "-m", "tests.surface_generator", str(tmp_path)]
    done = subprocess.run(
        generator, check=False, cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr

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
