"""The cases that the runner executes: requests to a server, or runs of the command.

Cases are values, the same for both versions. `{name}` in a path, a header or a body is replaced by
a value from an earlier response of the same version (`Call.save`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fake_provider import Gate, Reply, Step

Json = dict[str, Any]


class NamedGate(Gate):
    """A gate for `Reply.hold`. Each version's provider has its own gate with this name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[type["NamedGate"], tuple[str]]:
        return NamedGate, (self.name,)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An error of the provider, in the format of the request's protocol."""

    status: int
    message: str = "No."
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Reply | Refusal | tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to the server, and the provider's responses during it.

    `save` maps a name to the location of its value in the response: `header:NAME`, `json:PATH` with
    dots, or `body`. `leave_after` closes the connection after that many events of the stream. With
    `background` the next step starts when the provider has the request or the client the first
    event; a `Join` waits for the response. `is_raw` sends `body` as the complete HTTP request.
    """

    path: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    answers: tuple[Answer, ...] = ()
    save: Mapping[str, str] = field(default_factory=dict)
    leave_after: int | None = None
    background: str | None = None
    is_raw: bool = False


@dataclass(frozen=True)
class Open:
    """Opens a gate: the provider continues with the responses that wait at it."""

    gate: str


@dataclass(frozen=True)
class Join:
    """Waits for the response to a background call."""

    call: str


@dataclass(frozen=True)
class Settle:
    """Reads a resource until none of its turns is running."""

    path: str


Action = Call | Open | Join | Settle


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests in order, with the four dimensions of the summary."""

    id: str
    protocol: str
    provider: str
    mode: str
    state: str
    steps: tuple[Action, ...]
    profile: str = "plain"

    @property
    def requests(self) -> int:
        return sum(isinstance(step, Call) for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the command. `files` are written first, in the home or the work folder.

    A variable of `environment` that is None is not set.
    """

    arguments: tuple[str, ...]
    stdin: bytes = b""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CommandCase:
    """Runs in one home directory. `settings` replaces keys of the Cllmfile; `...` removes one."""

    id: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any] | None = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return len(self.runs)
