"""Results of a benchmark: comparisons, limits and their file."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from measurement import Cost, Sample
from results import WALL, Curve, Results, Series, make_parser, read_results


def sample(cpu: float, wall: float) -> Sample:
    return Sample(name="sample", costs=[Cost(cpu=cpu, wall=wall)])


def test_a_comparison_uses_the_median_that_its_measure_names(capsys):
    results = Results("test")
    results.compare("turn", sample(2, 9), sample(4, 3), 1, peer="llm")
    results.compare("turn", sample(2, 9), sample(4, 3), floor="python", measure=WALL)

    assert [one.ratio for one in results.comparisons] == [0.5, 3.0]
    assert [one.kind for one in results.comparisons] == ["peer", "floor"]
    assert capsys.readouterr().out.splitlines() == [
        "met     turn, CPU time: 0.5 x llm (limit 1 x)",
        "met     turn, wall time: 3 x python (no limit)",
    ]


def test_a_comparison_needs_exactly_one_baseline():
    with pytest.raises(ValueError, match="unpack"):
        Results("test").compare("turn", 1, 2)
    with pytest.raises(ValueError, match="unpack"):
        Results("test").compare("turn", 1, 2, peer="llm", floor="python")


def test_a_better_peer_is_reported_and_does_not_change_the_exit_code(capsys):
    results = Results("test")
    results.compare("turn", 3, 2, peer="llm")

    assert results.comparisons[0].is_lost
    assert results.exit_code == 0
    assert capsys.readouterr().out.startswith("LOST  ")


@pytest.mark.parametrize(("value", "code"), [(2, 0), (2.1, 1)])
def test_an_exceeded_limit_sets_the_exit_code(value, code):
    by_ratio, by_value = Results("test"), Results("test")
    by_ratio.compare("turn", value, 1, 2, floor="python")
    by_value.check("memory", value, 2, unit="MiB")

    assert (by_ratio.exit_code, by_value.exit_code) == (code, code)


def test_the_file_has_everything_and_no_path_or_host_name(tmp_path):
    results = Results("test")
    results.compare("turn", 3, 2, 4, itself="before")
    results.check("memory", 1, 2, unit="MiB")
    results.add_samples("turns", {"turn": sample(2, 9)})
    series = Series(name="cllm", kind="cllm", points=[(10, 0.123456), (100, 1)], note="ends")
    results.add_curve(
        Curve(id="a", title="A", description="B.", x_label="x", y_label="y", series=[series])
    )
    results.versions["llm"] = "0.36"
    path = tmp_path / "results" / "test.json"

    assert results.finish(path) == 0
    file = read_results(path)

    assert file.benchmark == "test"
    assert file.versions["llm"] == "0.36"
    assert file.versions["cllm"]
    assert file.machine.cores > 0
    assert (file.comparisons, file.checks) == (results.comparisons, results.checks)
    assert file.samples[0].rounds == 1
    assert file.curves[0].series[0].points == [(10, 0.1235), (100, 1)]
    assert str(Path.home()) not in path.read_text(encoding="utf-8").replace("/root", "")
    assert "/" not in path.read_text(encoding="utf-8").replace("bench/", "")


def test_without_a_path_no_file_is_written():
    options = make_parser("A benchmark.", rounds=3).parse_args([])

    assert (options.json, options.rounds) == (None, 3)
    assert Results("test").finish(options.json) == 0
