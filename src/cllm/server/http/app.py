"""The server as an ASGI application: the table of routes behind one door.

It puts the parts together and decides nothing: who comes in is the door's business, what is
answered the endpoints'.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cllm.core.errors import CllmError
from cllm.server.http.auth import admit, read_keyring
from cllm.server.http.errors import report_error, to_anthropic, to_openai
from cllm.server.http.metrics import Metrics, find_tracing
from cllm.server.http.middleware import Edge, answer_unrouted, read_host_rules
from cllm.server.http.request_log import log_in_thread, record_of
from cllm.server.http.routes import ROUTES, Protocol, Row
from cllm.server.serving import Serving
from cllm.server.turns.registry import swept
from cllm.wire.malformed import MalformedError

Endpoint = Callable[[Request], Awaitable[Response]]
TELLERS = {"openai": to_openai, "anthropic": to_anthropic}


def behind_door(row: Row, endpoint: Endpoint) -> Endpoint:
    """The endpoint for those who may call it, with errors told in its protocol's words."""

    async def answered(request: Request) -> Response:
        try:
            request.state.caller = admit(request, row)
            return await endpoint(request)
        except (CllmError, MalformedError) as error:
            record_of(request).outcome = report_error(error).code
            answer = told(error, row.protocol)
            answer.headers.update(getattr(request.state, "told_with", {}))
            return answer

    return answered


def told(error: CllmError | MalformedError, protocol: Protocol) -> Response:
    """An error as an answer."""
    status, headers, body = TELLERS[protocol](error)
    return Response(body, status, headers, media_type="application/json")


def build(serving: Serving) -> Starlette:
    """The application for one server; it closes what it stands on when it ends."""

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

    metrics = Metrics()
    edge = Middleware(
        Edge,
        rules=read_host_rules(serving.settings),
        metrics=metrics,
        new_id=serving.new_id,
        begin_span=find_tracing(),
    )
    app = Starlette(
        routes=[
            Route(row.path, behind_door(row, _endpoint(row)), methods=[row.method])
            for row in ROUTES
        ],
        middleware=[edge],
        exception_handlers={HTTPException: answer_unrouted},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.serving = serving
    app.state.keyring = read_keyring(serving.settings.keys)
    app.state.metrics = metrics
    return app


def _endpoint(row: Row) -> Endpoint:
    module, _, name = row.endpoint.partition(":")
    endpoint: Endpoint = getattr(import_module(module), name)
    return endpoint
