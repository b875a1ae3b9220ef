"""Context commands in real shells: parallel, ordered, with timeouts, without leftovers."""

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
    env = CommandEnvironment(directory=tmp_path, environment=os.environ)

    async def run(*lines: str, timeout: float = 20):
        commands = [
            ContextCommand(name=f"c{n}", command=line, template=line, timeout=timeout)
            for n, line in enumerate(lines)
        ]
        return await run_commands(commands, env)

    return run


async def test_outcomes_are_in_the_order_of_the_commands(run):
    outcomes = await run("sleep 0.3; echo slow", "echo quick")

    assert [outcome.output for outcome in outcomes] == ["slow", "quick"]
    assert [outcome.state for outcome in outcomes] == ["ok", "ok"]


async def test_commands_run_in_parallel(run):
    """Each waits for the files of all the others; one after the other none would end."""
    wait = "touch f{n}; until [ -e f0 ] && [ -e f1 ] && [ -e f2 ]; do sleep 0.02; done; echo {n}"

    outcomes = await run(*(wait.format(n=n) for n in range(3)))

    assert [outcome.output for outcome in outcomes] == ["0", "1", "2"]


async def test_standard_error_follows_standard_output(run):
    (outcome,) = await run("echo wrong >&2; echo right")

    assert outcome.output == "right\nwrong"


@pytest.mark.parametrize("code", [1, 3, 127])
async def test_a_nonzero_exit_code_is_a_failure(run, code):
    (outcome,) = await run(f"echo before; exit {code}")

    assert (outcome.state, outcome.exit_code, outcome.output) == ("failed", code, "before")


async def test_a_command_runs_in_the_directory_with_empty_input(run, tmp_path):
    here, heard = await run("pwd", "cat")

    assert Path(here.output) == tmp_path.resolve()
    assert (heard.state, heard.output) == ("ok", "")


async def test_a_timeout_ends_a_command_and_its_children(run, tmp_path):
    line = "sh -c 'echo $$ > child; exec sleep 600' & echo said; wait"

    (outcome,) = await run(line, timeout=0.5)

    assert (outcome.state, outcome.exit_code, outcome.output) == ("timed_out", None, "said")
    assert is_gone(int((tmp_path / "child").read_text(encoding="utf-8")))


async def test_background_processes_are_killed_without_waiting(run, tmp_path):
    (outcome,) = await run("sleep 600 & echo $! > child; echo done")

    assert (outcome.state, outcome.output) == ("ok", "done")
    assert is_gone(int((tmp_path / "child").read_text(encoding="utf-8")))


async def test_endless_output_is_truncated(run):
    (outcome,) = await run("echo first; yes")

    assert outcome.state == "cut"
    assert outcome.succeeded
    assert outcome.output.startswith("first\ny\ny")
    assert len(outcome.output) <= MAX_OUTPUT_BYTES


async def test_output_of_a_detached_process_is_ignored(run):
    """It writes as fast as it can while another command still runs."""
    talker = "setsid sh -c 'timeout 3 yes' & sleep 0.1"

    first, second = await run(talker, "sleep 1.5; echo done")

    assert first.succeeded
    assert second.output == "done"
    assert len(first.output) <= MAX_OUTPUT_BYTES


async def test_a_cancellation_ends_the_commands(run, tmp_path):
    task = asyncio.ensure_future(run("echo $$ > child; exec sleep 600"))
    file = tmp_path / "child"
    await wait_until_async(lambda: file.exists() and file.read_text(encoding="utf-8").strip())

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert is_gone(int(file.read_text(encoding="utf-8")))


async def test_binary_output_is_decoded_with_replacements(run):
    (outcome,) = await run(r"printf '\377\000ok'")

    assert outcome.output == "�ok"


@pytest.mark.parametrize("line", ["echo a\0b", "echo " + "x" * 3_000_000])
async def test_an_invalid_command_is_not_started(run, line):
    (outcome,) = await run(line)

    assert outcome.state == "not_started"


async def test_a_missing_folder_starts_no_command(tmp_path):
    env = CommandEnvironment(directory=tmp_path / "gone", environment={})
    command = ContextCommand(name="x", command="echo", template="echo")

    (outcome,) = await run_commands([command], env)

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
        command = ContextCommand(name="x", command=line, template=line, timeout=timeout)
        env = CommandEnvironment(directory=tmp_path, environment=os.environ)
        return await run_plan(command, plan, env)

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
async def test_a_plan_runs_like_a_shell(run_parsed, line, output, code):
    outcome = await run_parsed(line)

    assert (outcome.output, outcome.exit_code) == (output, code)
    assert outcome.state == ("ok" if code == 0 else "failed")


async def test_a_timeout_ends_every_part_of_a_plan(run_parsed):
    outcome = await run_parsed("echo a; sleep 600 | sleep 601 | sleep 602; echo b", timeout=0.5)

    assert (outcome.state, outcome.exit_code, outcome.output) == ("timed_out", None, "a")


async def test_a_plan_with_a_missing_program_is_not_started(run_parsed):
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


async def test_without_commands_there_are_no_outcomes(run):
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
