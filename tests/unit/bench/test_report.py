"""The report of the benchmarks says where cllm loses, and is the committed page."""

import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from machine import Machine
from readme_table import README, START, replace_comparison
from report import (
    PAGE,
    describe_growth,
    make_cells,
    make_rows,
    print_report,
    read_all,
    render_page,
)
from results import Check, Comparison, Curve, ResultFile, Series
from suite import BENCHMARKS, TOOLS
from tables import SPACE, format_number, format_value

TURN = Comparison(
    quantity="turn", value=0.002, kind="peer", baseline="llm", baseline_value=0.004, limit=0.6
)
FLOOR = Comparison(
    quantity="turn", value=0.002, kind="floor", baseline="json", baseline_value=0.001
)


def make_file(*comparisons: Comparison, **fields) -> ResultFile:
    return ResultFile(
        **{
            "benchmark": "startup",
            "date": "2026-11-18",
            "seconds": 90,
            "load": 0.5,
            "machine": Machine(
                cpu="A processor", cores=2, memory_gib=24, system="Linux 6.1", python="3.11.7"
            ),
            "versions": {"cllm": "1.0", "llm": "0.36"},
            "comparisons": list(comparisons),
            "checks": [],
            "curves": [],
            "samples": [],
            **fields,
        }
    )


def change(one: Comparison, **fields) -> Comparison:
    return msgspec.structs.replace(one, **fields)


def render(files: list[ResultFile]) -> str:
    return render_page(files).replace(SPACE, " ")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0012345, "s", "1.23 ms"),
        (2.5e-7, "s", "0.250 µs"),
        (12, "s", "12.0 s"),
        (3 * 2**20, "bytes", "3.00 MiB"),
        (100, "bytes", "100 bytes"),
        (415_245, "tokens", "415,245 tokens"),
        (0, "streams", "0 streams"),
    ],
)
def test_values_have_three_digits_and_a_readable_unit(value, unit, text):
    assert format_value(value, unit).replace(SPACE, " ") == text


def test_small_ratios_have_no_exponent():
    assert format_number(0.000297) == "0.000297"
    assert format_number(1234.5) == "1,234"


def test_a_row_has_the_peers_and_the_floor():
    slower = change(TURN, baseline="litellm", baseline_value=0.04, limit=0.1)

    (row,) = make_rows(make_file(slower, TURN, FLOOR))

    assert [cell.replace(SPACE, " ") for cell in make_cells(row)] == [
        "turn, CPU time",
        *("2.00 ms", "llm: 4.00 ms; litellm: 40.0 ms", "0.500; 0.0500", "json: 1.00 ms", "2.00"),
        *("llm 0.600; litellm 0.100", ""),
    ]


def test_a_second_floor_has_its_own_row():
    rows = make_rows(make_file(TURN, FLOOR, change(FLOOR, baseline="msgspec")))

    assert [row.floor and row.floor.baseline for row in rows] == ["json", "msgspec"]
    assert rows[1].peers == ()


def test_a_lost_row_says_so_in_the_table_and_at_the_top():
    page = render([make_file(change(TURN, baseline_value=0.001, limit=None))])

    assert "**slower than llm** (2.00 x)" in page
    assert "A peer needs less than cllm for:" in page
    assert "| turn, CPU time | 2.00 ms | llm: 1.00 ms | 2.00 |\n" in page
    assert "All limits are met." in page


def test_an_exceeded_limit_says_so_in_the_table_and_at_the_top():
    check = Check(quantity="memory", value=140, unit="MiB", limit=135)
    page = render([make_file(change(TURN, limit=0.4), checks=[check])])

    assert "**exceeds its limit** (0.500 x llm)" in page
    assert "These limits are exceeded:" in page
    assert "| memory | 140 MiB |  |  | 135 MiB |\n" in page
    assert "No measured peer needs less than cllm." in page


def test_a_page_without_losses_says_so():
    page = render([make_file(TURN, FLOOR)])

    assert "No measured peer needs less than cllm." in page
    assert "All limits are met." in page
    assert "A processor, 2 cores, 24 GiB of memory, Linux 6.1, Python 3.11.7" in page
    assert "cllm 1.0; llm 0.36" in page


def test_a_curve_has_a_picture_its_points_and_the_reason_of_its_end():
    curve = Curve(
        id="history",
        title="One more turn",
        description="Saves a turn.",
        x_label="messages",
        y_label="time",
        series=[
            Series(name="cllm", kind="cllm", points=[(10, 0.001), (1000, 0.002)]),
            Series(name="peer", kind="peer", points=[(10, 0.001)], note="ends at 10 messages"),
        ],
    )
    page = render([make_file(curves=[curve])])

    assert "![One more turn](images/bench-history.svg)" in page
    assert "| cllm | 1.00 ms | 2.00 ms | 2.00 x |\n| peer | 1.00 ms |  | 1.00 x |\n" in page
    assert "peer: ends at 10 messages." in page


def test_the_terminal_shows_the_same_rows(capsys):
    own = change(TURN, kind="self", baseline="after 100 messages", limit=0.4)
    print_report([make_file(TURN, own)])

    lines = capsys.readouterr().out.replace(SPACE, " ").splitlines()
    assert lines[1] == "Start-up of the command"
    assert "llm: 4.00 ms" in lines[3]
    assert "itself, after 100 messages: 4.00 ms" in lines[4]
    assert "exceeds its limit" in lines[4]


def test_every_benchmark_has_a_script_and_a_committed_result():
    for benchmark in BENCHMARKS:
        assert benchmark.script.exists()
        assert benchmark.result.exists(), f"run `make bench`: {benchmark.name} has no result"


def test_the_committed_results_are_of_one_run():
    files = read_all()

    assert len({file.versions["cllm"] for file in files}) == 1, "run `make bench`, without a name"
    assert len({file.machine for file in files}) == 1
    assert "changed" not in files[0].versions["cllm"]


def test_the_tools_of_the_page_are_those_of_the_results():
    described = "; ".join(tool.name for tool in TOOLS)
    peers = {one.baseline for file in read_all() for one in file.comparisons if one.kind == "peer"}

    names = {peer.strip("`").removesuffix(" -c").partition(",")[0] for peer in peers}
    assert {name for name in names if name not in described} == set()


def test_the_page_is_what_the_committed_results_give():
    assert PAGE.read_text(encoding="utf-8") == render_page(read_all()), "run `make bench-report`"


def test_a_line_that_ends_before_the_others_is_not_called_level_to_the_end():
    lines = [
        Series(name="cllm", kind="cllm", points=[(10, 0.001), (1000, 0.001)]),
        Series(name="peer", kind="peer", points=[(10, 0.001), (100, 0.001)]),
    ]
    curve = Curve(id="history", title="T", description="D", x_label="x", y_label="y", series=lines)

    assert describe_growth(curve) == "Level: cllm; peer up to 100."


def test_a_readme_without_the_comments_of_the_table_is_not_changed():
    with pytest.raises(ValueError, match="unpack"):
        replace_comparison(f"{START}\n| a table |\n\nMore.\n", read_all())


def test_the_pictures_of_the_page_exist_and_are_small():
    pictures = {path.stem.removeprefix("bench-"): path for path in list_pictures()}
    curves = {curve.id for file in read_all() for curve in file.curves}

    assert set(pictures) == curves
    assert all(path.stat().st_size < 40_000 for path in pictures.values())
    assert all("<text" in path.read_text(encoding="utf-8") for path in pictures.values())


def list_pictures() -> list[Path]:
    return sorted((PAGE.parent / "images").glob("bench-*.svg"))


def test_the_table_of_the_readme_has_the_committed_results():
    readme = README.read_text(encoding="utf-8")

    assert replace_comparison(readme, read_all()) == readme
    assert "**Agents SDK session" in readme.replace(SPACE, " ")
