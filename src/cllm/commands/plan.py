"""What runs: argument lists joined by pipes, one pipeline after another. Values only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

SHELL = "/bin/sh"

Condition = Literal["always", "success", "failure"]
Output = Literal["output", "discard"]
ErrorOutput = Literal["error", "output", "discard"]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where commands run: the folder and the environment."""

    directory: Path
    environment: Mapping[str, str]


class RefusedError(ValueError):
    """A command may not run. The text is the reason, as the model reads it."""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One program with its arguments. `path` is the file that is executed."""

    path: str
    arguments: tuple[str, ...]
    stdout: Output = "output"
    stderr: ErrorOutput = "error"


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Programs joined by pipes, and the status of the pipeline before on which they run."""

    invocations: tuple[Invocation, ...]
    condition: Condition = "always"


Plan = tuple[Pipeline, ...]


def shell_plan(line: str) -> Plan:
    """A plan that has a shell run the line."""
    return (Pipeline(invocations=(Invocation(path=SHELL, arguments=("sh", "-c", line)),)),)
