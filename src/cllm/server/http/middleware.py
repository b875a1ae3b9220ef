"""The middleware of every request: host and origin checks, CORS, request ID, log line.

Only this module turns an unexpected exception into a response. It reads no body.
"""

import re
import time
import traceback
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cllm.core.errors import CllmError
from cllm.core.ports import NewId
from cllm.logs import TRACE, describe_exception, log
from cllm.server.http.errors import (
    UNEXPECTED,
    ApiError,
    ApiErrorCode,
    EncodedResponse,
    RequestError,
    anthropic_error_response,
    openai_error_response,
    report_error,
)
from cllm.server.http.metrics import Metrics
from cllm.server.http.request_log import (
    DISCONNECTED,
    MAX_TEXT_LENGTH,
    SCOPE_KEY,
    RequestRecord,
    log_request,
)
from cllm.server.http.tracing import StartSpan
from cllm.settings.sections import ServerSettings

API_PATH = "/v1/"
MESSAGES_PATH = "/v1/messages"
HTML = "text/html"
REQUEST_ID = b"x-request-id"
CLIENT_CLOSED_REQUEST = 499
"""In the log and the metrics, as in those of nginx: the client disconnected before the response."""
PREFLIGHT = "access-control-request-method"
WITHOUT_HOST = "1.0"
"""In this version of HTTP a request needs no Host header."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_NAME = "*"
EXPOSED_HEADERS = (
    b"X-Conversation-ID, X-Turn-ID, X-CLLM-Notice, X-Request-ID, Retry-After, Upload-Offset, "
    b"x-should-retry"
)
METHODS = b"GET, POST, PATCH, DELETE"
PREFLIGHT_SECONDS = b"600"
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]*)?")

RawHeaders = tuple[tuple[bytes, bytes], ...]


class HostRules(msgspec.Struct, frozen=True, kw_only=True):
    """The allowed host names and origins; None allows any name."""

    names: frozenset[str] | None
    origins: frozenset[str] = frozenset()

    def check(self, hosts: Sequence[str], origin: str | None, *, needs_host: bool) -> None:
        name = host_name(hosts[0]) if len(hosts) == 1 else ""
        if not name and (hosts or needs_host):
            raise ApiError(
                "invalid_request",
                "Send exactly one Host header with the name of the server.",
                param="Host",
            )
        if self.names is not None and name not in self.names:
            raise ApiError(
                "host_not_allowed",
                "The host name is not allowed; the operator of the server can add it to "
                "server.allowed_hosts.",
            )
        # Pages of the server itself may call it.
        if (
            origin is not None
            and not self.allows_origin(origin)
            and _origin_host(origin) not in hosts
        ):
            raise ApiError(
                "origin_not_allowed",
                "The origin is not allowed; the operator of the server can add it to "
                "server.allowed_origins.",
            )

    def allows_origin(self, origin: str) -> bool:
        """Whether CORS lets pages of the origin read responses."""
        return ANY_NAME in self.origins or origin in self.origins


def read_host_rules(settings: ServerSettings) -> HostRules:
    """With keys and no listed hosts, allow any host."""
    listed = frozenset(name.lower() for name in settings.allowed_hosts)
    allows_any = ANY_NAME in listed or (settings.keys and not listed)
    names = None if allows_any else listed | LOOPBACK_NAMES
    origins = frozenset(origin.rstrip("/") for origin in settings.allowed_origins)
    return HostRules(names=names, origins=origins)


def host_name(host: str) -> str:
    """Return the name without the port, in lower case; empty if malformed."""
    match = HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2]).lower().rstrip(".")


def _origin_host(origin: str) -> str | None:
    """Return host and port of a web origin."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") else None


def _cors_headers(origin: str) -> RawHeaders:
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED_HEADERS),
        (b"vary", b"Origin"),
    )


class RequestMiddleware:
    def __init__(
        self,
        app: ASGIApp,
        *,
        rules: HostRules,
        metrics: Metrics,
        new_id: NewId,
        start_span: StartSpan | None = None,
    ) -> None:
        self._app = app
        self._rules = rules
        self._metrics = metrics
        self._new_id = new_id
        self._start_span = start_span

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        record = self._start_record(scope, headers)
        scope[SCOPE_KEY] = record
        end_span = None if self._start_span is None else self._start_span(headers)
        sender = _Sender(record, send)
        self._metrics.start_request()
        try:
            await self._handle(scope, receive, sender, headers)
        finally:
            record.seconds = time.monotonic() - record.started
            if not sender.is_complete and not sender.is_aborted and record.fault is None:
                record.outcome = DISCONNECTED
                record.status = record.status or CLIENT_CLOSED_REQUEST
            self._metrics.end_request(record)
            log_request(record)
            if end_span is not None:
                end_span(record)

    def _start_record(self, scope: Scope, headers: Headers) -> RequestRecord:
        client, user_agent = scope.get("client"), headers.get("user-agent")
        return RequestRecord(
            request=self._new_id(),
            method=scope["method"],
            started=time.monotonic(),
            path=scope["path"][:MAX_TEXT_LENGTH],
            client=None if client is None else client[0],
            user_agent=None if user_agent is None else user_agent[:MAX_TEXT_LENGTH],
        )

    async def _handle(
        self, scope: Scope, receive: Receive, sender: "_Sender", headers: Headers
    ) -> None:
        origin, record = headers.get("origin"), sender.record
        if origin is not None and self._rules.allows_origin(origin):
            sender.extra_headers += _cors_headers(origin)
        needs_host = scope["http_version"] != WITHOUT_HOST
        try:
            self._rules.check(headers.getlist("host"), origin, needs_host=needs_host)
        except ApiError as error:
            record.outcome = error.code
            await sender.send_response(_encode_error(scope, error))
            return
        try:
            if scope["method"] == "OPTIONS" and origin is not None and PREFLIGHT in headers:
                await sender.send_preflight(origin, headers)
            else:
                await self._app(scope, receive, sender.send)
        except ClientDisconnect:
            pass
        except HTTPException as error:
            await sender.send_response(_encode_routing_error(Request(scope), error.status_code))
        except Exception as error:  # noqa: BLE001 - bugs end here
            if sender.is_started and isinstance(error, CllmError):
                # The data of the response is deleted or damaged.
                record.outcome = report_error(error).code
                record.record_error(error)
                sender.is_aborted = True
                return
            record.outcome = UNEXPECTED.code
            record.fault = describe_exception(error)
            text = "".join(traceback.format_exception(error))
            log("server", TRACE, "unexpected error", traceback=text)
            if not sender.is_started:
                await sender.send_response(_encode_error(scope, CllmError()))


class _Sender:
    """Adds headers to the response and records its progress."""

    def __init__(self, record: RequestRecord, send: Send) -> None:
        self.record = record
        self.is_started = False
        self.is_complete = False
        self.is_aborted = False
        self.extra_headers: RawHeaders = ((REQUEST_ID, record.request.encode()),)
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_started = True
            self.record.status = message["status"]
            self.record.first_byte = time.monotonic() - self.record.started
            message = {**message, "headers": [*message.get("headers", ()), *self.extra_headers]}
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    async def send_response(self, response: EncodedResponse) -> None:
        status, headers, body = response
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        encoded.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})

    async def send_preflight(self, origin: str, headers: Headers) -> None:
        requested = headers.get("access-control-request-headers", "")
        added = [pair for pair in _cors_headers(origin) if pair not in self.extra_headers]
        added += [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", requested.encode("latin-1")),
            (b"access-control-max-age", PREFLIGHT_SECONDS),
        ]
        await self.send({"type": "http.response.start", "status": 204, "headers": added})
        await self.send({"type": "http.response.body", "body": b""})


def _encode_error(scope: Scope, error: RequestError) -> EncodedResponse:
    """Encode an error in the protocol of the path; for a browser outside of the API as HTML."""
    path = scope["path"]
    if path.startswith(MESSAGES_PATH):
        return anthropic_error_response(error)
    if not path.startswith(API_PATH) and HTML in Headers(scope=scope).get("accept", ""):
        from cllm.server.page.errors import page_error_response  # noqa: PLC0415 - only for errors

        return page_error_response(error)
    return openai_error_response(error)


def _encode_routing_error(request: Request, status: int) -> EncodedResponse:
    from cllm.server.http.route_advice import advise  # noqa: PLC0415 - only for errors

    code: ApiErrorCode = "not_found"
    message, allow = advise(request.url.path), {}
    if request.headers.get("upgrade", "").lower() == "websocket":
        code, message = "upgrade_required", "This server has no WebSockets; send a POST request."
    elif status == 405:  # noqa: PLR2004
        code, message = "method_not_allowed", "This path does not support the method; see /docs."
        allow = {"Allow": ", ".join(_allowed_methods(request))}
    request.scope[SCOPE_KEY].outcome = code
    status, headers, body = _encode_error(request.scope, ApiError(code, message))
    return status, {**headers, **allow}, body


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of the routes with exactly this path, else of all that match."""
    matches = [
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    exact = [route for route in matches if route.path == request.url.path]
    return sorted({method for route in exact or matches for method in route.methods or ()})
