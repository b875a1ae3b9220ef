"""Context commands and their outcomes, as values."""

from typing import Literal

import msgspec

OnFailure = Literal["warn", "ignore", "fail"]
ContextKind = Literal["static", "dynamic", "exec"]
OutcomeState = Literal["ok", "cut", "failed", "timed_out", "not_started"]

DEFAULT_TIMEOUT = 10.0


class ContextCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command whose output the model gets.

    `static` runs once, when a conversation is created; `dynamic` for every turn; `exec` came with
    this turn, and is static if the turn creates the conversation. `written` is the command as in
    the settings, before variables were filled in.
    """

    name: str
    command: str
    written: str
    kind: ContextKind = "static"
    on_failure: OnFailure = "warn"
    timeout: float = DEFAULT_TIMEOUT


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did; `output` is its standard output, then its standard error.

    A `cut` command was stopped because its output was too long; the beginning is used.
    """

    command: ContextCommand
    state: OutcomeState
    output: str = ""
    exit_code: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.state in ("ok", "cut")
