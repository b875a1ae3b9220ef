"""The tool of --allow-commands: requests, results, and confirmation."""

import os
from pathlib import Path

import pytest

from cllm.commands.command_line import CommandEnvironment
from cllm.commands.permission import CommandRules
from cllm.commands.tool import TOOL, CommandSettings, CommandTool, OfferedCommand, result_text
from cllm.core.message import ToolCall
from cllm.history.context import CommandOutcome, ContextCommand


class World:
    """Records the commands that run and the confirmations; answers as configured."""

    def __init__(self, directory: Path = Path(), *, says_yes: bool = True) -> None:
        self.directory = directory
        self.ran: list[ContextCommand] = []
        self.confirmations: list[tuple[str, str]] = []
        self.reports: list[str] = []
        self.says_yes = says_yes

    async def run(self, command, _plan, _surroundings):
        self.ran.append(command)
        return CommandOutcome(command=command, state="ok", output="out", exit_code=0)

    async def confirm(self, command: str, reason: str) -> bool:
        self.confirmations.append((command, reason))
        return self.says_yes

    def tool(self, *, on_terminal: bool = True, **settings) -> CommandTool:
        confirm = self.confirm if on_terminal else None
        return CommandTool(
            CommandSettings(**settings),
            env=CommandEnvironment(directory=self.directory, environment=os.environ),
            run=self.run,
            confirm=confirm,
            report=self.reports.append,
            secrets=["out-secret"],
        )


def call(arguments: str, name: str = TOOL) -> ToolCall:
    return ToolCall(id="c", name=name, arguments=arguments)


LS = call('{"command": "ls", "reason": "to see"}')


async def test_an_allowed_command_runs_and_its_output_is_the_result():
    world = World()

    assert await world.tool(timeout=7).use(LS) == "out"

    assert [(command.command, command.timeout) for command in world.ran] == [("ls", 7)]
    assert world.reports == ["$ ls"]
    assert world.confirmations == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ('{"command": "rm -rf y", "reason": "to clean"}', "not among the allowed"),
        ('{"command": "cat x; rm -rf y"}', "`rm -rf y`"),
        ('{"command": ""}', "Refused"),
    ],
)
async def test_a_refusal_is_a_result(arguments, word):
    world = World()

    result = await world.tool().use(call(arguments))

    assert result.startswith("Refused: ")
    assert word in result
    assert world.ran == []


@pytest.mark.parametrize("arguments", ["", "ls", "[]", "{}", '{"command": 5}', '{"command": null}'])
async def test_invalid_arguments_are_an_error_for_the_model(arguments):
    world = World()

    assert (await world.tool().use(call(arguments))).startswith("Error: the arguments")
    assert world.ran == []


async def test_an_unknown_tool_is_an_error():
    assert "no tool 'other'" in await World().tool().use(call("{}", name="other"))


async def test_the_confirmation_has_command_and_reason():
    world = World()

    await world.tool(confirm=True).use(LS)

    assert world.confirmations == [("ls", "to see")]
    assert len(world.ran) == 1


async def test_an_unconfirmed_command_does_not_run():
    world = World(says_yes=False)

    assert "did not confirm" in await world.tool(confirm=True).use(LS)
    assert world.ran == []


async def test_without_a_terminal_no_command_that_needs_confirmation_runs():
    world = World()

    assert "run cllm on a terminal or omit --confirm-commands." in await world.tool(
        confirm=True, on_terminal=False
    ).use(LS)
    assert world.ran == []


async def test_a_refused_command_is_not_confirmed():
    world = World()
    rules = CommandRules(deny=("ls",))

    await world.tool(confirm=True, rules=rules).use(LS)

    assert world.confirmations == []


def test_the_definition_lists_the_available_commands():
    offers = (
        OfferedCommand(command="git log", description="the history"),
        OfferedCommand(command="make"),
    )

    (definition,) = World().tool(offers=offers).definitions

    about = definition["function"]["description"]
    assert "- git log: the history\n- make" in about
    assert "Allowed to read" in about
    assert definition["function"]["parameters"]["required"] == ["command", "reason"]


def test_the_definition_lists_the_allowed_patterns():
    rules = CommandRules(allow=("git log*", "make"))

    (definition,) = World().tool(rules=rules).definitions

    about = definition["function"]["description"]
    assert "Allowed patterns: git log*, make." in about
    assert "Allowed to read" not in about


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("ok", 0, "out"),
        ("failed", 2, "Error: exit code 2.\nout"),
        ("timed_out", None, "Error: timed out after 30 seconds.\nout"),
        ("cut", None, "out\n(the rest was cut off)"),
        ("not_started", None, "Error: the command could not be started."),
    ],
)
def test_the_result_of_an_outcome(state, code, expected):
    command = ContextCommand(name="x", command="x", template="x", timeout=30)

    outcome = CommandOutcome(command=command, state=state, output="out", exit_code=code)

    assert result_text(outcome) == expected


def test_empty_output_is_reported():
    command = ContextCommand(name="x", command="x", template="x")

    assert result_text(CommandOutcome(command=command, state="ok", exit_code=0)) == "(no output)"


async def test_secrets_are_removed_from_a_result():
    world = World()

    async def run(command, _plan, _surroundings):
        return CommandOutcome(command=command, state="ok", output="is out-secret", exit_code=0)

    world.run = run  # type: ignore[method-assign]

    assert await world.tool().use(LS) == "is ***"
