"""Values that every endpoint uses: `ServerState`, and `ApiRequest` with its `Caller`."""

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

import cllm.providers.http.aiohttp_transport  # noqa: F401 - slow to import: not in the first request
from cllm.app import App, find_cache, new_id, now
from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import UsageError
from cllm.core.ports import Clock, NewId, ServerStore, Store
from cllm.engine.turn import Engine
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL
from cllm.server.http.limits import BodyQuota
from cllm.server.http.request_log import SCOPE_KEY, RequestRecord
from cllm.server.http.routes import Protocol
from cllm.server.turns.registry import TurnRegistry, UsageCounter
from cllm.settings.load import JSON, Settings, file_store, server_store, use_single_store
from cllm.settings.sections import ServerSettings
from cllm.stores.registry import open_file_store

if TYPE_CHECKING:
    from cllm.server.api.conversation_feed import ConversationFeed


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    owner: str = LOCAL_OWNER
    key: str | None = None
    is_admin: bool = False


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one server.

    `files` is the folder of conversation files, if served; `lists_files`: lists contain them.
    `feeds` are those with listeners, by owner.
    `imports` are the uploads that this process created, with the task of a running import.
    """

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
    files_url: str | None = None
    lists_files: bool = False
    feeds: "dict[str, ConversationFeed]" = msgspec.field(default_factory=dict)
    imports: dict[str, "asyncio.Task[None] | None"] = msgspec.field(default_factory=dict)


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
    app = App(use_single_store(settings, server_store(settings)))
    # Without a configured model, choose one at the start and not during a request.
    _ = app.model
    store: ServerStore = app.store  # type: ignore[assignment]
    files_url = _find_files(settings)
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
        files=None if files_url is None else _open_files(files_url, settings),
        files_url=files_url,
        lists_files=files_url is not None and not settings.is_single_store,
    )


def check_public_access(server: ServerSettings) -> None:
    """Raise UsageError if other machines can reach the server and it has no API keys."""
    if not server.keys and not _is_loopback(server.host):
        raise UsageError(
            f"Other machines could use this server on {server.host} without an API key; "
            "configure server.keys, or listen on 127.0.0.1."
        )


def check_trusted_proxies(server: ServerSettings) -> None:
    """Raise UsageError for an entry that no address of a client would match."""
    for entry in server.trusted_proxies:
        try:
            ipaddress.ip_network(entry)
        except ValueError as error:
            if entry != "*":
                raise UsageError(
                    f"server.trusted_proxies: '{entry}' is no address or network; write for "
                    "example 127.0.0.1 or 10.0.0.0/8."
                ) from error


def exposes_keys(server: ServerSettings) -> bool:
    """Whether API keys reach the server unencrypted, from other machines and through no proxy."""
    is_encrypted = server.tls_cert is not None or bool(server.trusted_proxies)
    return bool(server.keys) and not _is_loopback(server.host) and not is_encrypted


async def check_store(store: ServerStore) -> None:
    """Raise StoreError if the store cannot be read or written.

    The first use creates its files or tables.
    """
    await store.list_conversations(owner=LOCAL_OWNER, limit=1)
    await store.check_writable()


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


def _find_files(settings: Settings) -> str | None:
    """Return the URL of the folder of conversation files; None if other owners could read them."""
    if settings.server.keys or not _is_loopback(settings.server.host):
        return None
    is_json = settings.store.startswith(JSON)
    return settings.store if is_json else file_store(settings.files_folder)


def _open_files(url: str, settings: Settings) -> Store:
    """Open the folder; a list that reads thousands of files does not block other requests."""
    return open_file_store(
        url, clock=now, cache=find_cache(settings.env), offload=asyncio.to_thread
    )
