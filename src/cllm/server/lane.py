"""The application, with a lane of its own for completions: past the router and all that it costs.

What stands at the edge and at the door stands here too; the routes are the same as without it.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cllm.server.door import Endpoint
from cllm.server.edge import Edge


class Lane:
    """Answers `method` requests for one path itself, and hands all others on."""

    def __init__(self, app: Starlette, *, path: str, method: str, endpoint: Endpoint) -> None:
        self._app: ASGIApp = app
        self._scope_app = app
        self._path = path
        self._method = method
        self._endpoint = endpoint
        self._edge = Edge(self._answer, **app.state.edge)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        straight = scope.get("path") == self._path and scope.get("method") == self._method
        await (self._edge if straight else self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self._scope_app
        response = await self._endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
