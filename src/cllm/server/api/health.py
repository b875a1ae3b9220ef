"""Health checks: GET /health (the process responds) and GET /ready (the store responds too).

Neither needs a key, so that load balancers and container orchestrators can call them.
"""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import StoreUnavailableError
from cllm.server.api.views import json_response
from cllm.server.state import ApiRequest

STORE_SECONDS = 5


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a health check: `ok` or `ready`."""

    status: str


async def get_health(_request: Request) -> Response:
    """GET /health."""
    return json_response(Status(status="ok"))


async def get_readiness(request: ApiRequest) -> Response:
    """GET /ready."""
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await request.server.store.list_conversations(owner=request.caller.owner, limit=1)
    except TimeoutError as error:
        raise StoreUnavailableError(
            f"The store did not respond within {STORE_SECONDS} s; check that the database runs."
        ) from error
    return json_response(Status(status="ready"))
