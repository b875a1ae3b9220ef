"""The least that a gateway in Python can be: Starlette and aiohttp, and nothing looked at.

Passes a request's body on and its answer back. `bare_proxy.py PORT UPSTREAM`.
"""

import contextlib
import sys
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

UPSTREAM = sys.argv[2] if len(sys.argv) > 2 else ""


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        app.state.session = session
        yield


async def pass_on(request: Request) -> Response:
    body = await request.body()
    session: aiohttp.ClientSession = request.app.state.session
    answer = await session.post(
        UPSTREAM + request.url.path, data=body, headers={"Content-Type": "application/json"}
    )
    kind = answer.headers["Content-Type"]
    if kind != "text/event-stream":
        said = await answer.read()
        return Response(said, answer.status, media_type=kind)

    async def pieces() -> AsyncIterator[bytes]:
        async with answer:
            async for piece in answer.content.iter_any():
                yield piece

    return StreamingResponse(pieces(), answer.status, media_type=kind)


app = Starlette(
    routes=[Route("/v1/{rest:path}", pass_on, methods=["POST"])],
    lifespan=lifespan,
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
