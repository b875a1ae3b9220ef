"""Endpoints about the server: models, usage, health and readiness.

Lists the local models and those that the settings name; providers have more.
"""

import asyncio
from collections.abc import Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import ModelNotFoundError, StoreUnavailableError
from cllm.providers.local.models import list_models
from cllm.providers.registry import LOCAL, is_model_file
from cllm.server.api.views import json_response, view_usage_sums
from cllm.server.http.parameters import UsageQuery, read_query, read_timestamp
from cllm.server.state import ApiRequest, ServerState

STORE_SECONDS = 5


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One model; nobody here knows when it was made."""

    id: str
    owned_by: str
    object: str = "model"
    created: int = 0


class ModelListView(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[ModelView, ...]
    object: str = "list"


async def models(request: ApiRequest) -> Response:
    """GET /v1/models."""
    return json_response(ModelListView(data=tuple(_view_models(request.server))))


async def model(request: ApiRequest) -> Response:
    """GET /v1/models/{model}."""
    wanted = request.path_params["model"]
    known = _view_models(request.server)
    for view in known:
        if view.id == wanted:
            return json_response(view)
    names = ", ".join(view.id for view in known)
    raise ModelNotFoundError(
        f"This server does not list that model; it lists: {names}", model=wanted
    )


def _view_models(state: ServerState) -> list[ModelView]:
    owners = dict(_iterate_models(state))
    return [ModelView(id=name, owned_by=owner) for name, owner in owners.items()]


def _iterate_models(state: ServerState) -> Iterator[tuple[str, str]]:
    """Yield models and their owners, the default first."""
    app, routes = state.app, state.settings.routes
    for name in (app.model, *app.settings.fallbacks, *routes):
        # The path of a model file is private.
        if not is_model_file(name):
            provider, slash, _ = routes.get(name, name).partition("/")
            yield name, provider if slash else "cllm"
    for provider, row in app.settings.providers.items():
        for name in row.models:
            yield f"{provider}/{name}", provider
    for local in list_models(app.cache_paths):
        yield f"{LOCAL}/{local.name}", LOCAL


async def usage(request: ApiRequest) -> Response:
    """GET /v1/usage."""
    query = read_query(request, UsageQuery)
    await request.server.calls.flush()
    sums = await request.server.store.usage(
        owner=request.caller.owner,
        since=read_timestamp(query.since, field="from"),
        until=read_timestamp(query.until, field="to", end=True),
        by=query.by,
    )
    return json_response(view_usage_sums(sums, by=query.by))


async def health(_request: Request) -> Response:
    """GET /health."""
    return json_response({"status": "ok"})


async def ready(request: ApiRequest) -> Response:
    """GET /ready."""
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await request.server.store.list_conversations(owner=request.caller.owner, limit=1)
    except TimeoutError as error:
        raise StoreUnavailableError("The store does not answer.") from error
    return json_response({"status": "ready"})
