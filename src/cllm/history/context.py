"""Context commands and their outcomes, as values."""

from typing import Literal

import msgspec

OnFailure = Literal["warn", "ignore", "fail"]
ContextKind = Literal["static", "dynamic", "exec"]
OutcomeState = Literal["ok", "cut", "failed", "timed_out", "not_started"]

DEFAULT_TIMEOUT = 10.0


class ContextCommand(msgspec.Struct, frozen=True, kw_only=True):
    """`written` is the command before variables were filled in.

    `static` runs with the first turn of a conversation, `dynamic` with every turn.
    """

    name: str
    command: str
    written: str
    kind: ContextKind = "static"
    on_failure: OnFailure = "warn"
    timeout: float = DEFAULT_TIMEOUT


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`output` is standard output, then standard error; `cut` is one that was too long."""

    command: ContextCommand
    state: OutcomeState
    output: str = ""
    exit_code: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.state in ("ok", "cut")
