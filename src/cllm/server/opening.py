"""Settings become a server: its stores, its engine, its counter. Nothing listens yet."""

import ipaddress

from msgspec.structs import replace

import cllm.providers.http_pool  # noqa: F401 - slow to import: not in the first request
from cllm.app import App, new_id, now
from cllm.core.errors import UsageError
from cllm.core.ports import ServerStore, Store
from cllm.providers.registry import LOCAL, ROWS
from cllm.server.calls import CallCounter
from cllm.server.serving import Serving
from cllm.server.turns import RunningTurns
from cllm.settings.load import Settings
from cllm.settings.places import JSON, file_store, server_store
from cllm.settings.server import ServerSettings
from cllm.stores.registry import open_store


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
