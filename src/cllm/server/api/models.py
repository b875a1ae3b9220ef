"""The models endpoints: local models and those in the settings. Providers may have more."""

from collections.abc import Iterator

import msgspec
from starlette.responses import Response

from cllm.core.errors import ModelNotFoundError
from cllm.providers.local.models import list_models
from cllm.providers.registry import LOCAL, is_model_file
from cllm.server.api.views import json_response
from cllm.server.state import ApiRequest, ServerState


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model. `created` is always 0: the time is unknown."""

    id: str
    owned_by: str
    object: str = "model"
    created: int = 0


class ModelListView(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[ModelView, ...]
    object: str = "list"


async def get_models(request: ApiRequest) -> Response:
    """GET /v1/models."""
    return json_response(ModelListView(data=tuple(_view_models(request.server))))


async def get_model(request: ApiRequest) -> Response:
    """GET /v1/models/{model}."""
    name = request.path_params["model"]
    views = _view_models(request.server)
    for view in views:
        if view.id == name:
            return json_response(view)
    names = ", ".join(view.id for view in views)
    raise ModelNotFoundError(f"This server does not list that model; it lists: {names}", model=name)


def _view_models(state: ServerState) -> list[ModelView]:
    owners = dict(_iterate_models(state))
    return [ModelView(id=name, owned_by=owner) for name, owner in owners.items()]


def _iterate_models(state: ServerState) -> Iterator[tuple[str, str]]:
    """Yield models and their owners, the default model first."""
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
