"""Context commands in real shells: together, in order, in time, and ended with all they started."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.waits import wait_until, wait_until_async

from cllm.commands.command_line import CommandEnvironment, Invocation, Pipeline, parse_line
from cllm.commands.run import MAX_OUTPUT_BYTES, run_commands, run_plan
from cllm.history.context import ContextCommand


@pytest.fixture
def run(tmp_path):
    """Runs shell lines as context commands."""
    place = CommandEnvironment(directory=tmp_path, environment=os.environ)

    async def run(*lines: str, timeout: float = 20):
        commands = [
            ContextCommand(name=f"c{n}", command=line, written=line, timeout=timeout)
            for n, line in enumerate(lines)
        ]
        return await run_commands(commands, place)

    return run


async def test_outcomes_come_in_the_order_given_whichever_ends_first(run):
    outcomes = await run("sleep 0.3; echo slow", "echo quick")

    assert [outcome.output for outcome in outcomes] == ["slow", "quick"]
    assert [outcome.state for outcome in outcomes] == ["ok", "ok"]


async def test_commands_run_at_the_same_time(run):
    """Each waits for the files of all the others; one after the other none would end."""
    wait = "touch f{n}; until [ -e f0 ] && [ -e f1 ] && [ -e f2 ]; do sleep 0.02; done; echo {n}"

    outcomes = await run(*(wait.format(n=n) for n in range(3)))

    assert [outcome.output for outcome in outcomes] == ["0", "1", "2"]


async def test_standard_error_comes_after_standard_output(run):
    (outcome,) = await run("echo wrong >&2; echo right")

    assert outcome.output == "right\nwrong"


@pytest.mark.parametrize("code", [1, 3, 127])
async def test_an_exit_code_is_a_failure_that_is_known(run, code):
    (outcome,) = await run(f"echo before; exit {code}")

    assert (outcome.state, outcome.exit_code, outcome.output) == ("failed", code, "before")


async def test_a_command_runs_where_cllm_runs_and_hears_nothing(run, tmp_path):
    here, heard = await run("pwd", "cat")

    assert Path(here.output) == tmp_path.resolve()
    assert (heard.state, heard.output) == ("ok", "")


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(run, tmp_path):
    line = "sh -c 'echo $$ > child; exec sleep 600' & echo said; wait"

    (outcome,) = await run(line, timeout=0.5)

    assert (outcome.state, outcome.exit_code, outcome.output) == ("timed_out", None, "said")
    assert is_gone(int((tmp_path / "child").read_text(encoding="utf-8")))


async def test_what_a_command_leaves_running_is_neither_waited_for_nor_left(run, tmp_path):
    (outcome,) = await run("sleep 600 & echo $! > child; echo done")

    assert (outcome.state, outcome.output) == ("ok", "done")
    assert is_gone(int((tmp_path / "child").read_text(encoding="utf-8")))


async def test_a_command_that_never_stops_talking_is_cut(run):
    (outcome,) = await run("echo first; yes")

    assert outcome.state == "cut"
    assert outcome.succeeded
    assert outcome.output.startswith("first\ny\ny")
    assert len(outcome.output) <= MAX_OUTPUT_BYTES


async def test_one_that_left_its_group_and_talks_on_is_not_heard(run):
    """It writes as fast as it can while another command still runs."""
    talker = "setsid sh -c 'timeout 3 yes' & sleep 0.1"

    first, second = await run(talker, "sleep 1.5; echo done")

    assert first.succeeded
    assert second.output == "done"
    assert len(first.output) <= MAX_OUTPUT_BYTES


async def test_commands_end_when_nobody_waits_for_them_any_more(run, tmp_path):
    task = asyncio.ensure_future(run("echo $$ > child; exec sleep 600"))
    file = tmp_path / "child"
    await wait_until_async(lambda: file.exists() and file.read_text(encoding="utf-8").strip())

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert is_gone(int(file.read_text(encoding="utf-8")))


async def test_output_that_is_not_text_does_no_harm(run):
    (outcome,) = await run(r"printf '\377\000ok'")

    assert outcome.output == "�ok"


@pytest.mark.parametrize("line", ["echo a\0b", "echo " + "x" * 3_000_000])
async def test_a_command_that_no_shell_takes_is_not_started(run, line):
    (outcome,) = await run(line)

    assert outcome.state == "not_started"


async def test_a_folder_that_is_gone_starts_nothing(tmp_path):
    place = CommandEnvironment(directory=tmp_path / "gone", environment={})
    command = ContextCommand(name="x", command="echo", written="echo")

    (outcome,) = await run_commands([command], place)

    assert outcome.state == "not_started"


@pytest.fixture
def run_parsed(tmp_path):
    """Runs the argument lists of a line, without a shell."""

    async def run_parsed(line: str, timeout: float = 20):
        plan = tuple(
            Pipeline(
                condition=pipeline.condition,
                invocations=tuple(
                    Invocation(
                        path=shutil.which(command.words[0].text) or command.words[0].text,
                        arguments=tuple(word.text for word in command.words),
                        stdout=command.stdout,
                        stderr=command.stderr,
                    )
                    for command in pipeline.commands
                ),
            )
            for pipeline in parse_line(line)
        )
        command = ContextCommand(name="x", command=line, written=line, timeout=timeout)
        place = CommandEnvironment(directory=tmp_path, environment=os.environ)
        return await run_plan(command, plan, place)

    return run_parsed


@pytest.mark.parametrize(
    ("line", "output", "code"),
    [
        ("echo a", "a", 0),
        ("echo a; echo b", "a\nb", 0),
        ("true && echo yes", "yes", 0),
        ("false && echo no", "", 1),
        ("false || echo yes", "yes", 0),
        ("true || echo no", "", 0),
        ("false && echo no || echo yes", "yes", 0),
        ("true || echo no && echo yes", "yes", 0),
        ("false; true", "", 0),
        ("printf 'b\\na\\n' | sort | head -1", "a", 0),
        ("false | true", "", 0),
        ("true | false", "", 1),
        ("yes | head -2", "y\ny", 0),
        ("echo '$HOME' '*' ';'", "$HOME * ;", 0),
        ("ls nothing 2>/dev/null", "", 2),
        ("ls nothing 2>&1 | grep -c nothing", "1", 0),
        ("echo a > /dev/null", "", 0),
        ("cat", "", 0),
    ],
)
async def test_a_plan_runs_as_a_shell_would_run_it(run_parsed, line, output, code):
    outcome = await run_parsed(line)

    assert (outcome.output, outcome.exit_code) == (output, code)
    assert outcome.state == ("ok" if code == 0 else "failed")


async def test_a_plan_that_takes_too_long_is_ended_with_every_part(run_parsed):
    outcome = await run_parsed("echo a; sleep 600 | sleep 601 | sleep 602; echo b", timeout=0.5)

    assert (outcome.state, outcome.exit_code, outcome.output) == ("timed_out", None, "a")


async def test_a_plan_whose_program_is_gone_is_not_started(run_parsed):
    outcome = await run_parsed("echo a; /no/such/program; echo b")

    assert (outcome.state, outcome.output) == ("not_started", "a")


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_plan_leaves_no_open_files(run_parsed):
    await run_parsed("echo a | cat")
    before = count_open_files()

    for line in ("echo a | cat; echo b", "/no/such/program | cat", "sleep 9 | cat"):
        await run_parsed(line, timeout=0.2)

    assert count_open_files() == before


async def test_no_commands_are_no_outcomes(run):
    assert await run() == ()


def is_gone(process: int) -> bool:
    """Whether the process has ended, within a moment."""

    def has_ended() -> bool:
        try:
            state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1]
        except FileNotFoundError:
            return True
        return state.split()[0] == "Z"

    return wait_until(has_ended, 2)
