"""The ASGI application: the routes of the table, behind one middleware."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cllm.core.errors import CllmError
from cllm.server.http.auth import LOCAL_CALLER, ApiKeys, find_caller, read_keyring
from cllm.server.http.errors import report_error, to_anthropic, to_openai
from cllm.server.http.metrics import Metrics, find_tracing
from cllm.server.http.middleware import RequestMiddleware, read_host_rules
from cllm.server.http.request_log import log_in_thread
from cllm.server.http.routes import ROUTES, HttpRoute
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.registry import swept
from cllm.wire.errors import MalformedError

ENCODERS = {"openai": to_openai, "anthropic": to_anthropic}


class Endpoint:
    """A route as an ASGI application."""

    def __init__(self, row: HttpRoute, serving: ServerState, keyring: ApiKeys) -> None:
        module, _, name = row.endpoint.partition(":")
        self._function = getattr(import_module(f"cllm.server.{module}"), name)
        self._row = row
        self._serving = serving
        self._keyring = keyring
        self._needs_key = row.access != "anyone" and bool(keyring.keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = ApiRequest(scope, receive, send, self._serving)
        row, record = self._row, request.record
        record.route = row.path
        try:
            caller = find_caller(request, self._keyring) if self._needs_key else LOCAL_CALLER
            request.caller = caller
            record.owner, record.key = caller.owner, caller.key
            response: Response = await self._function(request)
        except (CllmError, MalformedError) as error:
            record.outcome = report_error(error).code
            status, headers, body = ENCODERS[row.protocol](error)
            response = Response(body, status, {**headers, **request.error_headers})
        await response(scope, receive, send)


def build(serving: ServerState) -> Starlette:
    """Return the application, which closes the server when it ends."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        sweeping = swept(
            serving.store, clock=serving.clock, keep_seconds=serving.settings.events_seconds
        )
        with log_in_thread():
            async with sweeping:
                yield
            await serving.turns.stop(within=serving.settings.limits.stop_seconds)
            await serving.calls.flush()
            await serving.app.close()

    keyring = read_keyring(serving.settings.keys)
    routes = [
        Route(row.path, Endpoint(row, serving, keyring), methods=[row.method]) for row in ROUTES
    ]
    app = _App(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.metrics = Metrics()
    app.state.server = serving
    return app


class _App(Starlette):
    """Starlette with one middleware, which also handles all errors."""

    def build_middleware_stack(self) -> ASGIApp:
        serving: ServerState = self.state.server
        return RequestMiddleware(
            self.router,
            rules=read_host_rules(serving.settings),
            metrics=self.state.metrics,
            new_id=serving.new_id,
            begin_span=find_tracing(),
        )
