"""The runner of the benchmarks names missing programs and continues after a failure."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from runner import Outcome, find_missing, print_outcomes, run_benchmark
from suite import BENCHMARKS, Benchmark

SERVER = next(one for one in BENCHMARKS if one.name == "server")
WRITES = """
import sys
from pathlib import Path
sys.path.append({bench!r})
from results import Results, make_parser
results = Results("fake")
results.compare("turn", 3, 1, 2, floor="python")
sys.exit(results.finish(make_parser("").parse_args().json))
"""


@pytest.fixture
def benchmark(tmp_path):
    return Benchmark(
        name="fake", title="Fake", intro="Nothing.", scripts=tmp_path, results=tmp_path
    )


def test_a_missing_program_is_named_with_what_to_do(tmp_path):
    programs = {**dict.fromkeys(SERVER.programs), "litellm": tmp_path / "litellm", "node": tmp_path}

    assert find_missing([SERVER], programs) == [
        "litellm is not installed; run the benchmarks with `make`, which installs it.",
        "nginx is not installed; install the package nginx.",
        "portkey is not installed; run the benchmarks with `make`, which installs it.",
    ]
    assert find_missing([SERVER], dict.fromkeys(SERVER.programs, tmp_path)) == []


def test_a_result_is_stored_and_its_exceeded_limits_counted(benchmark):
    bench = str(Path(__file__).parents[3] / "bench")
    benchmark.script.write_text(WRITES.format(bench=bench), encoding="utf-8")

    assert run_benchmark(benchmark, {}).missed == 1
    assert benchmark.result.exists()


def test_a_failed_benchmark_keeps_its_old_result(benchmark):
    benchmark.script.write_text("raise SystemExit('broken')", encoding="utf-8")
    benchmark.result.write_text("old", encoding="utf-8")

    assert run_benchmark(benchmark, {}).missed is None
    assert benchmark.result.read_text(encoding="utf-8") == "old"


def test_the_summary_says_how_each_benchmark_ended(capsys):
    print_outcomes(
        [
            Outcome(name="startup", seconds=25, missed=0),
            Outcome(name="wire", seconds=74, missed=2),
            Outcome(name="page", seconds=1, missed=None),
        ]
    )

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == [
        *("startup 25 limits met", "wire 74 2 limits exceeded", "page 1 failed", "total 100")
    ]
