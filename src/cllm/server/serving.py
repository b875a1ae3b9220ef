"""What every endpoint of the server stands on, and who asks. Values only; nothing is done here."""

from typing import Literal

import msgspec
from starlette.requests import Request

from cllm.app import App
from cllm.core.conversation import LOCAL_OWNER
from cllm.core.ports import Clock, NewId, ServerStore, Store
from cllm.engine.turn import Engine
from cllm.server.body_room import BodyRoom
from cllm.server.calls import CallCounter
from cllm.server.turns import RunningTurns
from cllm.settings.server import ServerSettings

Access = Literal["anyone", "caller"]
"""Who may call a route: whoever reaches the server, or those who may use it."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. `owner` is whose conversations they see, `key` the name of the key they used."""

    owner: str = LOCAL_OWNER
    key: str | None = None


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """One server: its app, its stores, what it goes by, and the turns that run in it.

    `files` is the folder of conversation files, where the server is only this person's. `choices`
    are the models that names and providers turned out to mean, `bodies` what is being read.
    """

    app: App
    store: ServerStore
    settings: ServerSettings
    engine: Engine
    turns: RunningTurns
    calls: CallCounter
    clock: Clock
    new_id: NewId
    files: Store | None = None
    bodies: BodyRoom = msgspec.field(default_factory=BodyRoom)
    choices: dict[tuple[str, str | None], str] = msgspec.field(default_factory=dict)


def serving_of(request: Request) -> Serving:
    """The server that a request came to."""
    serving: Serving = request.app.state.serving
    return serving


def caller_of(request: Request) -> Caller:
    """Who asks; known once the request was admitted."""
    caller: Caller = request.state.caller
    return caller
