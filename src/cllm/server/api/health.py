"""Health checks, which need no key.

GET /ready also checks the store.
"""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import StoreUnavailableError
from cllm.server.api.views import json_response
from cllm.server.state import ApiRequest, check_store

STORE_SECONDS = 5
"""Timeout of GET /ready."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`ok` or `ready`."""

    status: str


async def get_health(_request: Request) -> Response:
    """GET /health."""
    return json_response(Status(status="ok"))


async def get_readiness(request: ApiRequest) -> Response:
    """GET /ready."""
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await check_store(request.server.store)
    except TimeoutError as error:
        raise StoreUnavailableError(
            f"The store did not respond within {STORE_SECONDS} s; check that the database runs."
        ) from error
    return json_response(Status(status="ready"))
