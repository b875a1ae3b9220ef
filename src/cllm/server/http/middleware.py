"""The outermost step of every request: from where it may come, its id, its line in the log.

Also the one place where a mistake of ours becomes an answer. It reads no body and knows no route.
"""

import re
import time
import traceback
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cllm.core.errors import CllmError
from cllm.core.ports import NewId
from cllm.logs import EVERYTHING, describe_exception, log
from cllm.server.http.errors import (
    UNEXPECTED,
    Answer,
    RefusedError,
    RequestError,
    report_error,
    to_anthropic,
    to_openai,
)
from cllm.server.http.metrics import BeginSpan, Metrics
from cllm.server.http.request_log import SCOPE_KEY, RequestRecord, log_request
from cllm.settings.sections import ServerSettings

MESSAGES_PATH = "/v1/messages"
REQUEST_ID = b"x-request-id"
DISCONNECTED = "disconnected"
WITHOUT_HOST = "1.0"
"""The version of HTTP in which a request needs no Host header."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ANY = "*"
EXPOSED = "X-Conversation-ID, X-Turn-ID, X-CLLM-Notice, X-Request-ID, Retry-After"
METHODS = "GET, POST, PATCH, DELETE"
PREFLIGHT_SECONDS = "600"

RawHeaders = tuple[tuple[bytes, bytes], ...]


HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]*)?")


class HostRules(msgspec.Struct, frozen=True, kw_only=True):
    """The host names and the origins that are let in; no names means any."""

    names: frozenset[str] | None
    origins: frozenset[str] = frozenset()

    def check(self, hosts: Iterable[str], origin: str | None) -> None:
        """RefusedError for a request under a foreign name, or from a foreign page."""
        named = [host_name(host) for host in hosts]
        if self.names is not None and (not named or not self.names.issuperset(named)):
            raise RefusedError(
                "host_not_allowed",
                "This server does not go by that name; its operator can add it to "
                "server.allowed_hosts.",
            )
        if origin is not None and not self.allows(origin, hosts):
            raise RefusedError(
                "origin_not_allowed",
                "Pages of this origin may not call this server; its operator can add it to "
                "server.allowed_origins.",
            )

    def allows(self, origin: str, hosts: Iterable[str]) -> bool:
        """Whether a page from there may call: one of the server's own, or one that is listed."""
        return self.shares_with(origin) or urlsplit_host(origin) in set(hosts)

    def shares_with(self, origin: str) -> bool:
        """Whether a page of another origin may read the answers."""
        return ANY in self.origins or origin in self.origins

    def sharing(self, origin: str) -> RawHeaders:
        """The headers with which a browser gives an answer to a page of that origin."""
        return (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED.encode()),
            (b"vary", b"Origin"),
        )

    def preflight(self, origin: str, wanted: str) -> RawHeaders:
        """The answer to a browser that asks whether it may send such a request."""
        return (
            *self.sharing(origin),
            (b"access-control-allow-methods", METHODS.encode()),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", PREFLIGHT_SECONDS.encode()),
        )


def read_host_rules(settings: ServerSettings) -> HostRules:
    """The rules of the settings. With keys a name proves nothing, so any will do unless listed."""
    listed = frozenset(name.lower() for name in settings.allowed_hosts)
    any_will_do = ANY in listed or (settings.keys and not listed)
    names = None if any_will_do else listed | LOOPBACK_NAMES
    origins = frozenset(origin.rstrip("/") for origin in settings.allowed_origins)
    return HostRules(names=names, origins=origins)


def check_host_header(hosts: Sequence[str]) -> None:
    """RefusedError unless there is one Host header, and a name in it, as HTTP/1.1 demands."""
    if len(hosts) != 1 or not host_name(hosts[0]):
        raise RefusedError(
            "invalid_request",
            "A request needs exactly one Host header with the name of the server in it.",
            param="Host",
        )


@lru_cache(maxsize=100)
def host_name(host: str) -> str:
    """The name in a Host header, in lower case and without its port; empty if it is none."""
    found = HOST.fullmatch(host)
    return "" if found is None else (found[1] or found[2]).lower().rstrip(".")


def urlsplit_host(origin: str) -> str | None:
    """Host and port of an origin as a Host header has them; None if it is no web page's."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") else None


class Edge:
    """Stands in front of the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        rules: HostRules,
        metrics: Metrics,
        new_id: NewId,
        begin_span: BeginSpan | None = None,
    ) -> None:
        self._app = app
        self._rules = rules
        self._metrics = metrics
        self._new_id = new_id
        self._begin_span = begin_span

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(
            request=self._new_id(), method=scope["method"], started=time.monotonic()
        )
        scope[SCOPE_KEY] = record
        end_span = None if self._begin_span is None else self._begin_span(Headers(scope=scope))
        passage = _Passage(record, send)
        self._metrics.running += 1
        try:
            await self._let_in(scope, receive, passage)
        finally:
            self._metrics.running -= 1
            self._end(record, passage)
            if end_span is not None:
                end_span(record)

    async def _let_in(self, scope: Scope, receive: Receive, passage: "_Passage") -> None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is not None and self._rules.shares_with(origin):
            passage.added += self._rules.sharing(origin)
        hosts = headers.getlist("host")
        try:
            if hosts or scope["http_version"] != WITHOUT_HOST:
                check_host_header(hosts)
            self._rules.check(hosts, origin)
        except RefusedError as error:
            passage.record.outcome = error.code
            await passage.answer(_answer_at(scope["path"], error))
            return
        if _is_preflight(scope, headers) and origin is not None:
            wanted = headers.get("access-control-request-headers", "")
            await passage.answer_empty(self._rules.preflight(origin, wanted))
            return
        await self._pass_on(scope, receive, passage)

    async def _pass_on(self, scope: Scope, receive: Receive, passage: "_Passage") -> None:
        try:
            await self._app(scope, receive, passage.send)
        except ClientDisconnect:
            passage.record.outcome = DISCONNECTED
        except Exception as error:  # noqa: BLE001 - the one place where a mistake of ours ends
            if passage.begun and isinstance(error, CllmError):
                # No mistake of ours: what was being told is not there any more, or not readable.
                passage.broke_off = True
                passage.record.outcome = report_error(error).code
                return
            passage.record.outcome = UNEXPECTED.code
            passage.record.fault = describe_exception(error)
            log("server", EVERYTHING, "unexpected error", traceback=_format(error))
            if not passage.begun:
                await passage.answer(_failure_at(scope["path"]))

    def _end(self, record: RequestRecord, passage: "_Passage") -> None:
        record.seconds = time.monotonic() - record.started
        if not passage.ended and not passage.broke_off and record.fault is None:
            record.outcome = DISCONNECTED
        self._metrics.observe(record)
        log_request(record)


class _Passage:
    """The way back: every answer has its request's id, and it is seen how far it came."""

    def __init__(self, record: RequestRecord, send: Send) -> None:
        self.record = record
        self.begun = False
        self.ended = False
        self.broke_off = False
        self.added: tuple[tuple[bytes, bytes], ...] = ((REQUEST_ID, record.request.encode()),)
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self.record.status = message["status"]
            self.record.first_byte = time.monotonic() - self.record.started
            message = {**message, "headers": [*message.get("headers", ()), *self.added]}
        elif message["type"] == "http.response.body":
            self.ended = not message.get("more_body", False)
        await self._send(message)

    async def answer(self, answer: Answer) -> None:
        status, headers, body = answer
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        encoded.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_empty(self, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        own = [pair for pair in headers if pair not in self.added]
        await self.send({"type": "http.response.start", "status": 204, "headers": own})
        await self.send({"type": "http.response.body", "body": b""})


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _answer_at(path: str, error: RequestError) -> Answer:
    """An error before any route is known, in the words of the protocol that the path is of."""
    return to_anthropic(error) if path.startswith(MESSAGES_PATH) else to_openai(error)


def _failure_at(path: str) -> Answer:
    return _answer_at(path, CllmError())


def _format(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


async def answer_unrouted(request: Request, error: Exception) -> Response:
    """What is said where there is no route, or not for this method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    if status == 405:  # noqa: PLR2004
        refusal = RefusedError("method_not_allowed", "This cannot be done here; see /docs.")
    else:
        refusal = RefusedError("not_found", "There is nothing here; see /docs for what there is.")
    record: RequestRecord | None = request.scope.get(SCOPE_KEY)
    if record is not None:
        record.outcome = report_error(refusal).code
    _, headers, body = _answer_at(request.url.path, refusal)
    if refusal.code == "method_not_allowed":
        headers["Allow"] = ", ".join(_methods(request))
    return Response(body, refusal.status, headers)


def _methods(request: Request) -> list[str]:
    """How this address may be called: by the routes of just this path, else by all that fit."""
    fitting = [
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    exact = [route for route in fitting if route.path == request.url.path]
    return sorted({method for route in exact or fitting for method in route.methods or ()})
