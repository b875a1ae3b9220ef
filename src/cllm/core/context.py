"""Context commands, and what became of them. Values only; running one is the work of `commands`."""

from typing import Literal

import msgspec

OnFailure = Literal["warn", "ignore", "fail"]
ContextKind = Literal["static", "dynamic", "exec"]
OutcomeState = Literal["ok", "cut", "failed", "timed_out", "not_started"]

DEFAULT_TIMEOUT = 10.0


class ContextCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command whose output the model is to know.

    `static` runs once, when a conversation is created; `dynamic` for every turn; `exec` was given
    with this turn, and is static if the turn creates the conversation. `written` is the command
    as it stands in the settings, before variables were filled in.
    """

    name: str
    command: str
    written: str
    kind: ContextKind = "static"
    on_failure: OnFailure = "warn"
    timeout: float = DEFAULT_TIMEOUT


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did. `output` is its standard output, then its standard error.

    `cut` is a command that was stopped because it said too much; what it said first is kept.
    """

    command: ContextCommand
    state: OutcomeState
    output: str = ""
    exit_code: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.state in ("ok", "cut")
