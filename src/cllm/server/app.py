"""The server as an ASGI application: the table of routes behind one door.

It puts the parts together and decides nothing: who comes in is the door's business, what is
answered the endpoints'.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from cllm.server.auth import read_keyring
from cllm.server.door import Endpoint, behind_door
from cllm.server.edge import Edge, answer_unrouted
from cllm.server.hosts import read_host_rules
from cllm.server.metrics import Metrics
from cllm.server.request_log import log_in_thread
from cllm.server.routes import ROUTES, Row
from cllm.server.serving import Serving
from cllm.server.sweeping import swept
from cllm.server.tracing import find_tracing


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
