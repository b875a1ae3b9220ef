"""The ASGI application: the table of routes behind one middleware."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cllm.core.errors import CllmError
from cllm.server.api.imports import delete_expired_imports, stop_imports
from cllm.server.http.auth import LOCAL_CALLER, ApiKeys, authenticate, load_api_keys
from cllm.server.http.errors import (
    ApiError,
    EncodedResponse,
    RequestError,
    anthropic_error_response,
    openai_error_response,
    report_error,
    responses_error_response,
)
from cllm.server.http.metrics import Metrics
from cllm.server.http.middleware import RequestMiddleware, read_host_rules
from cllm.server.http.request_log import log_in_thread
from cllm.server.http.routes import OPENAI_ID, PAGE_ROUTES, ROUTES, HttpRoute
from cllm.server.http.tracing import find_span_starter
from cllm.server.page.errors import page_error_response
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.registry import delete_expired_events
from cllm.wire.errors import MalformedError
from cllm.wire.responses.ids import CONVERSATION_ID


class _OpenAIIdConvertor(StringConvertor):
    regex = CONVERSATION_ID.pattern


register_url_convertor(OPENAI_ID, _OpenAIIdConvertor())

ERROR_ENCODERS = {
    "openai": openai_error_response,
    "anthropic": anthropic_error_response,
    "responses": responses_error_response,
    "page": page_error_response,
}


class Endpoint:
    """A route as an ASGI application."""

    def __init__(self, row: HttpRoute, state: ServerState, api_keys: ApiKeys) -> None:
        module, _, name = row.endpoint.partition(":")
        self._function = getattr(import_module(f"cllm.server.{module}"), name)
        self._row = row
        self._state = state
        self._api_keys = api_keys
        self._needs_key = row.access != "anyone" and bool(api_keys.keys)
        self._needs_admin = row.access == "admin" and api_keys.has_several_owners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = ApiRequest(scope, receive, send, self._state)
        row, record = self._row, request.record
        record.route = row.path
        try:
            caller = authenticate(request, self._api_keys) if self._needs_key else LOCAL_CALLER
            request.caller = caller
            if row.access != "anyone":
                record.owner, record.key = caller.owner, caller.key
            if self._needs_admin and not caller.is_admin:
                raise ApiError(
                    "admin_key_required",
                    "This route shows the figures of all owners; use a key with `admin: true`.",
                )
            response: Response = await self._function(request)
        except (CllmError, MalformedError) as error:
            record.outcome = report_error(error).code
            record.record_error(error)
            status, headers, body = self._find_encoder(request)(error)
            response = Response(body, status, {**headers, **request.error_headers})
        await response(scope, receive, send)

    def _find_encoder(self, request: ApiRequest) -> Callable[[RequestError], EncodedResponse]:
        protocol = request.protocol or self._row.protocol
        if protocol == "either":
            protocol = "anthropic" if request.has_anthropic_version else "openai"
        return ERROR_ENCODERS[protocol]


def build_app(state: ServerState) -> Starlette:
    """Return the application, which closes the state at shutdown."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        cleanup = delete_expired_events(
            state.store, clock=state.clock, keep_seconds=state.settings.events_seconds
        )
        await delete_expired_imports(state)
        with log_in_thread():
            async with cleanup:
                yield
            await state.turns.stop(within=state.settings.limits.stop_seconds)
            await stop_imports(state)
            await state.usage_counter.flush()
            await state.app.close()

    api_keys = load_api_keys(state.settings.keys)
    routes = [
        Route(path, endpoint, methods=[row.method])
        for row in (*ROUTES, *PAGE_ROUTES)
        for endpoint in [Endpoint(row, state, api_keys)]
        for path in (row.path, *row.aliases)
    ]
    app = _App(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.metrics = Metrics()
    app.state.server = state
    return app


class _App(Starlette):
    """Starlette with one middleware, which also handles all errors."""

    def build_middleware_stack(self) -> ASGIApp:
        state: ServerState = self.state.server
        return RequestMiddleware(
            self.router,
            rules=read_host_rules(state.settings),
            metrics=self.state.metrics,
            new_id=state.new_id,
            start_span=find_span_starter(),
        )
