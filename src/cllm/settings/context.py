"""`context_commands` of the settings, as values. Runs nothing and fills nothing in."""

from typing import Any

from cllm.core.context import DEFAULT_TIMEOUT, ContextCommand, OnFailure
from cllm.settings.layers import Layered

LONGEST_TIMEOUT = 3600
MOST_COMMANDS = 100
ON_FAILURE: dict[Any, OnFailure] = {"warn": "warn", "ignore": "ignore", "fail": "fail"}
FIELDS = ("name", "command", "on_failure", "timeout", "dynamic")


def read_context_commands(layered: Layered) -> tuple[ContextCommand, ...]:
    """The commands in their order; an error that says what to write where one is wrong."""
    given = layered.values.get("context_commands")
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MOST_COMMANDS:
        raise layered.wrong(
            "context_commands", f"a list of at most {MOST_COMMANDS} commands, each with `command`"
        )
    written = layered.written("context_commands")
    return tuple(
        _command(row, number, layered, written[number]) for number, row in enumerate(given)
    )


def _command(row: Any, number: int, layered: Layered, written: Any) -> ContextCommand:
    where = f"context_commands.{number}"
    if not isinstance(row, dict):
        raise layered.wrong(where, "a mapping such as {name: Git status, command: git status}")
    unknown = [key for key in row if key not in FIELDS]
    if unknown:
        raise layered.wrong(f"{where}.{unknown[0]}", f"one of {', '.join(FIELDS)}")
    command = row.get("command")
    if not isinstance(command, str) or not command.strip():
        raise layered.wrong(f"{where}.command", "a shell command")
    dynamic = row.get("dynamic") or False
    if not isinstance(dynamic, bool):
        raise layered.wrong(f"{where}.dynamic", "true or false")
    return ContextCommand(
        name=_name(row, str(written["command"]), where, layered),
        command=command,
        written=str(written["command"]),
        kind="dynamic" if dynamic else "static",
        on_failure=_on_failure(row, where, layered),
        timeout=_timeout(row, where, layered),
    )


def exec_command(command: str) -> ContextCommand:
    """A command given with `--exec`: it is its own name."""
    return ContextCommand(name=command, command=command, written=command, kind="exec")


def _name(row: dict[str, Any], written: str, where: str, layered: Layered) -> str:
    name = row.get("name") or written
    if not isinstance(name, str):
        raise layered.wrong(f"{where}.name", "a text")
    return name


def _on_failure(row: dict[str, Any], where: str, layered: Layered) -> OnFailure:
    choice = row.get("on_failure") or "warn"
    if not isinstance(choice, str) or choice not in ON_FAILURE:
        raise layered.wrong(f"{where}.on_failure", "`warn`, `ignore` or `fail`")
    return ON_FAILURE[choice]


def _timeout(row: dict[str, Any], where: str, layered: Layered) -> float:
    seconds = DEFAULT_TIMEOUT if row.get("timeout") is None else row["timeout"]
    wrong = isinstance(seconds, bool) or not isinstance(seconds, int | float)
    if wrong or not 0 < seconds <= LONGEST_TIMEOUT:
        raise layered.wrong(f"{where}.timeout", f"seconds, above 0 and at most {LONGEST_TIMEOUT}")
    return float(seconds)
