"""The application, with a lane of its own for completions: past the router and all that it costs.

What stands at the edge and at the door stands here too; the routes are the same as without it.
"""

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cllm.server.door import Endpoint
from cllm.server.edge import Edge

METHOD = "POST"


class Lane:
    """Answers POST requests for some paths itself, and hands all others on."""

    def __init__(self, app: Starlette, endpoints: Mapping[str, Endpoint]) -> None:
        self._app: ASGIApp = app
        self._scope_app = app
        self._endpoints = endpoints
        self._edge = Edge(self._answer, **app.state.edge)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        straight = scope.get("path") in self._endpoints and scope.get("method") == METHOD
        await (self._edge if straight else self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self._scope_app
        response = await self._endpoints[scope["path"]](Request(scope, receive, send))
        await response(scope, receive, send)
