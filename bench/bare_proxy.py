"""A minimal gateway, the baseline of `server.py`: Starlette and aiohttp, without any inspection.

Forwards the body of a request and returns the response. `bare_proxy.py PORT UPSTREAM`.
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
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        app.state.session = session
        yield


async def forward(request: Request) -> Response:
    body = await request.body()
    session: aiohttp.ClientSession = request.app.state.session
    response = await session.post(
        UPSTREAM + request.url.path, data=body, headers={"Content-Type": "application/json"}
    )
    content_type = response.headers["Content-Type"]
    if content_type != "text/event-stream":
        content = await response.read()
        return Response(content, response.status, media_type=content_type)

    async def iterate_chunks() -> AsyncIterator[bytes]:
        async with response:
            async for chunk in response.content.iter_any():
                yield chunk

    return StreamingResponse(iterate_chunks(), response.status, media_type=content_type)


app = Starlette(
    routes=[Route("/v1/{rest:path}", forward, methods=["POST"])],
    lifespan=lifespan,
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
