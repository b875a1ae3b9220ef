"""The models endpoints: local models, aliases and models in the settings.

Providers may have more.
"""

from collections.abc import Iterator

import msgspec
from starlette.responses import Response

from cllm.core.errors import ModelNotFoundError
from cllm.providers.local.models import is_runtime_installed, list_models
from cllm.providers.registry import LOCAL, is_model_file
from cllm.server.api.views import json_response
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.model_selection import select_model
from cllm.wire.errors import MalformedError


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model. `created` is always 0: the time is unknown."""

    id: str
    owned_by: str
    object: str = "model"
    created: int = 0


class ModelListView(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[ModelView, ...]
    object: str = "list"


class AnthropicModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model in Anthropic's format, which has this date for an unknown time."""

    id: str
    display_name: str
    type: str = "model"
    created_at: str = "1970-01-01T00:00:00Z"
    lifecycle: str = "active"


class AnthropicModelListView(msgspec.Struct, frozen=True, kw_only=True):
    """All models in one page."""

    data: tuple[AnthropicModelView, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


async def get_models(request: ApiRequest) -> Response:
    """GET /v1/models."""
    views = tuple(_view_models(request.server))
    if not request.has_anthropic_version:
        return json_response(ModelListView(data=views))
    data = tuple(map(_to_anthropic, views))
    ids = [view.id for view in data]
    return json_response(
        AnthropicModelListView(
            data=data, first_id=next(iter(ids), None), last_id=next(reversed(ids), None)
        )
    )


async def get_model(request: ApiRequest) -> Response:
    """GET /v1/models/{model}: a listed model, or any that a turn would accept."""
    name = request.path_params["model"]
    views = _view_models(request.server)
    view = next((view for view in views if view.id == name), None)
    view = view or _resolve_model(name, views, request.server)
    if view is None:
        names = ", ".join(view.id for view in views)
        raise ModelNotFoundError(
            f"This server does not list that model; it lists: {names}", model=name
        )
    return json_response(_to_anthropic(view) if request.has_anthropic_version else view)


def _resolve_model(name: str, views: list[ModelView], state: ServerState) -> ModelView | None:
    try:
        model = select_model(name, None, state)
        provider = state.app.provider_of(model)
    except (ModelNotFoundError, MalformedError):
        return None
    # Local models that are not listed do not exist.
    local_names = {view.id for view in views if view.owned_by == LOCAL}
    if provider == LOCAL and f"{LOCAL}/{model.removeprefix(f'{LOCAL}/')}" not in local_names:
        return None
    return ModelView(id=name, owned_by=provider)


def _to_anthropic(view: ModelView) -> AnthropicModelView:
    return AnthropicModelView(id=view.id, display_name=view.id)


def _view_models(state: ServerState) -> list[ModelView]:
    owners = dict(_iterate_models(state))
    can_run_local = is_runtime_installed()
    return [
        ModelView(id=name, owned_by=owner)
        for name, owner in owners.items()
        if owner != LOCAL or can_run_local
    ]


def _iterate_models(state: ServerState) -> Iterator[tuple[str, str]]:
    """Yield models and their owners, the default model first."""
    app = state.app
    targets = {**app.settings.aliases, **state.settings.routes}
    for name in (app.model, *app.settings.fallbacks, *targets):
        # The path of a model file is private.
        if not is_model_file(name):
            provider, slash, _ = targets.get(name, name).partition("/")
            yield name, provider if slash else "cllm"
    for provider, row in app.settings.providers.items():
        for name in row.models:
            yield f"{provider}/{name}", provider
    for local in list_models(app.cache_paths):
        yield f"{LOCAL}/{local.name}", LOCAL
