"""Plans that run as subprocesses. More cases are in tests/integration/commands/test_run.py."""

import os

import pytest

from cllm.commands.command_line import CommandEnvironment, Invocation, Pipeline
from cllm.commands.run import run_commands, run_plan
from cllm.history.context import ContextCommand


@pytest.fixture
def env(tmp_path):
    return CommandEnvironment(directory=tmp_path, environment={"PATH": os.environ["PATH"]})


def command(line: str, timeout: float = 10) -> ContextCommand:
    return ContextCommand(name="test", command=line, template=line, kind="exec", timeout=timeout)


async def test_output_and_errors_are_joined_and_the_code_is_returned(env):
    (outcome,) = await run_commands([command("echo out; echo error >&2; exit 3")], env)

    assert (outcome.state, outcome.exit_code, outcome.output) == ("failed", 3, "out\nerror")
    assert outcome.error == "error"


async def test_the_error_is_the_first_line_of_standard_error(env):
    lines = [
        "printf '\\n first \\nsecond\\n' >&2; exit 1",
        "echo out; exit 1",
        "printf %0300d 1 >&2",
    ]
    outcomes = await run_commands([command(line) for line in lines], env)

    assert [outcome.error for outcome in outcomes] == ["first", "", "0" * 200]


async def test_commands_keep_their_order(env):
    outcomes = await run_commands([command("sleep 0.1; echo one"), command("echo two")], env)

    assert [outcome.output for outcome in outcomes] == ["one", "two"]


async def test_a_command_over_its_timeout_is_ended(env):
    (outcome,) = await run_commands([command("echo start; sleep 60", timeout=0.2)], env)

    assert (outcome.state, outcome.output, outcome.exit_code) == ("timed_out", "start", None)


def shell(line: str) -> Invocation:
    return Invocation(path="/bin/sh", arguments=("sh", "-c", line))


@pytest.mark.parametrize(
    ("first", "condition", "output"),
    [
        ("true", "success", "next"),
        ("false", "success", ""),
        ("false", "failure", "next"),
        ("true", "failure", ""),
        ("false", "always", "next"),
    ],
)
async def test_a_condition_depends_on_the_previous_status(env, first, condition, output):
    plan = (
        Pipeline(invocations=(shell(first),)),
        Pipeline(invocations=(shell("echo next"),), condition=condition),
    )

    assert (await run_plan(command("test"), plan, env)).output == output


async def test_a_program_that_cannot_start_is_reported(env):
    missing = Invocation(path="/missing/program", arguments=("program",))

    outcome = await run_plan(command("test"), (Pipeline(invocations=(missing,)),), env)

    assert outcome.state == "not_started"
