"""What every endpoint of the server stands on, and who asks. Values only; nothing is done here."""

import ipaddress
from typing import Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

import cllm.providers.http_pool  # noqa: F401 - slow to import: not in the first request
from cllm.app import App, new_id, now
from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import UsageError
from cllm.core.ports import Clock, NewId, ServerStore, Store
from cllm.engine.turn import Engine
from cllm.providers.registry import LOCAL, ROWS
from cllm.server.http.body_room import BodyRoom
from cllm.server.turns.registry import CallCounter, RunningTurns
from cllm.settings.load import JSON, Settings, file_store, server_store
from cllm.settings.sections import ServerSettings
from cllm.stores.registry import open_store

Access = Literal["anyone", "caller"]
"""Who may call a route: whoever reaches the server, or those who may use it."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. `owner` is whose conversations they see, `key` the name of the key they used."""

    owner: str = LOCAL_OWNER
    key: str | None = None


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one server: its app, stores, settings and running turns.

    `files` is the folder of conversation files; only a server without keys has one. `bodies` limits
    the memory that request bodies use.
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


def serving_of(request: Request) -> Serving:
    """The server that a request came to."""
    serving: Serving = request.app.state.serving
    return serving


def caller_of(request: Request) -> Caller:
    """Who asks; known once the request was admitted."""
    caller: Caller = request.state.caller
    return caller


def open_serving(settings: Settings) -> Serving:
    """A server by these settings; whoever opens it closes its app."""
    check_reach(settings.server)
    check_default_provider(settings)
    app = App(replace(settings, store=server_store(settings)))
    store: ServerStore = app.store  # type: ignore[assignment]
    return Serving(
        app=app,
        store=store,
        settings=settings.server,
        engine=app.engine(),
        turns=RunningTurns(),
        calls=CallCounter(store),
        clock=now,
        new_id=new_id,
        files=_files(settings),
    )


def check_reach(server: ServerSettings) -> None:
    """UsageError for a server that others could reach and anybody could use."""
    if not server.keys and not is_loopback(server.host):
        raise UsageError(
            f"Listening on {server.host} lets other machines in, and no keys are configured; "
            "configure server.keys first, or listen on 127.0.0.1."
        )


def check_default_provider(settings: Settings) -> None:
    """UsageError for a default that is nobody."""
    named, known = settings.server.default_provider, {LOCAL, *ROWS, *settings.providers}
    if named is not None and named not in known:
        raise UsageError(
            f"The default provider '{named}' is not one that there is; name one of "
            f"{', '.join(sorted(known))}."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _files(settings: Settings) -> Store | None:
    """The folder of conversation files, for a server that is only this person's."""
    if settings.server.keys or not is_loopback(settings.server.host):
        return None
    own = settings.store.startswith(JSON)
    url = settings.store if own else file_store(settings.history_folder)
    return open_store(url, clock=now)
