"""Values that every endpoint uses: `ServerState`, and `ApiRequest` with its `Caller`."""

import ipaddress
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

import cllm.providers.http.aiohttp_transport  # noqa: F401 - slow to import: not in the first request
from cllm.app import App, new_id, now, open_configured_store
from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import UsageError
from cllm.core.ports import Clock, NewId, ServerStore, Store
from cllm.engine.turn import Engine
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL
from cllm.server.http.limits import BodyQuota
from cllm.server.http.request_log import SCOPE_KEY, RequestRecord
from cllm.server.http.routes import Protocol
from cllm.server.turns.registry import TurnRegistry, UsageCounter
from cllm.settings.load import JSON, Settings, file_store, server_store
from cllm.settings.sections import ServerSettings


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    owner: str = LOCAL_OWNER
    key: str | None = None
    is_admin: bool = False


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one server. `files` is the folder of conversation files, if served."""

    app: App
    store: ServerStore
    settings: ServerSettings
    engine: Engine
    turns: TurnRegistry
    usage_counter: UsageCounter
    body_quota: BodyQuota
    clock: Clock
    new_id: NewId
    files: Store | None = None


class ApiRequest(Request):
    """`error_headers` are added to an error response.

    `protocol` is that of the response, if it differs from that of the route.
    """

    caller: Caller
    protocol: Protocol | None = None
    error_headers: Mapping[str, str]

    def __init__(self, scope: Scope, receive: Receive, send: Send, state: ServerState) -> None:
        super().__init__(scope, receive, send)
        self.server = state
        self.record: RequestRecord = scope[SCOPE_KEY]
        self.error_headers = {}

    @property
    def has_anthropic_version(self) -> bool:
        """Whether it is from a client of Anthropic's, on routes that both protocols have."""
        return "anthropic-version" in self.headers


def open_server_state(settings: Settings) -> ServerState:
    """Open the store and the engine; the caller closes `app`."""
    check_public_access(settings.server)
    _check_default_provider(settings)
    app = App(replace(settings, store=server_store(settings)))
    # Without a configured model, choose one at the start and not during a request.
    _ = app.model
    store: ServerStore = app.store  # type: ignore[assignment]
    return ServerState(
        app=app,
        store=store,
        settings=settings.server,
        engine=app.engine(),
        turns=TurnRegistry(),
        usage_counter=UsageCounter(store),
        body_quota=BodyQuota(settings.server.limits),
        clock=now,
        new_id=new_id,
        files=_open_files(settings),
    )


def check_public_access(server: ServerSettings) -> None:
    """Raise UsageError if other machines can reach the server and it has no API keys."""
    if not server.keys and not _is_loopback(server.host):
        raise UsageError(
            f"Other machines could use this server on {server.host} without an API key; "
            "configure server.keys, or listen on 127.0.0.1."
        )


def exposes_keys(server: ServerSettings) -> bool:
    """Whether API keys reach the server unencrypted, from other machines and through no proxy."""
    is_encrypted = server.tls_cert is not None or bool(server.trusted_proxies)
    return bool(server.keys) and not _is_loopback(server.host) and not is_encrypted


async def check_store(store: ServerStore) -> None:
    """Raise StoreError if the store cannot be read. The first use creates its files or tables."""
    await store.list_conversations(owner=LOCAL_OWNER, limit=1)


def _check_default_provider(settings: Settings) -> None:
    name, names = settings.server.default_provider, {LOCAL, *BUILTIN_PROVIDERS, *settings.providers}
    if name is not None and name not in names:
        raise UsageError(
            f"server.default_provider names '{name}', which is not a provider; use one of "
            f"{', '.join(sorted(names))}."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _open_files(settings: Settings) -> Store | None:
    if settings.server.keys or not _is_loopback(settings.server.host):
        return None
    is_json = settings.store.startswith(JSON)
    url = settings.store if is_json else file_store(settings.history_folder)
    return open_configured_store(url, settings)
