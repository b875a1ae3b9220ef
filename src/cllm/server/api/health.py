"""Whether the server is there, and whether it can do its work."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import StoreUnavailableError
from cllm.server.http.responses import answer
from cllm.server.serving import caller_of, serving_of

STORE_SECONDS = 5


async def health(_request: Request) -> Response:
    """GET /health: the process answers."""
    return answer({"status": "ok"})


async def ready(request: Request) -> Response:
    """GET /ready: the store answers as well; its error is the answer if it does not."""
    owner = caller_of(request).owner
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await serving_of(request).store.list_conversations(owner=owner, limit=1)
    except TimeoutError as error:
        raise StoreUnavailableError("The store does not answer.") from error
    return answer({"status": "ready"})
