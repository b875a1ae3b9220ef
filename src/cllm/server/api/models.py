"""The models that can be asked for here, as OpenAI's clients list them.

Those that the settings name, and the local ones. Providers serve more than they say; one of theirs
that is not listed can be asked for all the same, by its provider and name.
"""

from collections.abc import Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import ModelNotFoundError
from cllm.providers.local.models import list_models
from cllm.providers.registry import LOCAL
from cllm.server.http.responses import answer
from cllm.server.serving import Serving, serving_of
from cllm.settings.trust import is_model_file


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One model; nobody here knows when it was made."""

    id: str
    owned_by: str
    object: str = "model"
    created: int = 0


class ModelListView(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[ModelView, ...]
    object: str = "list"


async def models(request: Request) -> Response:
    """GET /v1/models."""
    return answer(ModelListView(data=tuple(_models(serving_of(request)))))


async def model(request: Request) -> Response:
    """GET /v1/models/{model}."""
    wanted = request.path_params["model"]
    known = list(_models(serving_of(request)))
    for view in known:
        if view.id == wanted:
            return answer(view)
    names = ", ".join(view.id for view in known)
    raise ModelNotFoundError(
        f"This server does not list that model; it lists: {names}", model=wanted
    )


def _models(serving: Serving) -> Iterator[ModelView]:
    for name, owner in dict(known_models(serving)).items():
        yield ModelView(id=name, owned_by=owner)


def known_models(serving: Serving) -> Iterator[tuple[str, str]]:
    """Names and whose they are: the default first, then as the settings have them."""
    app = serving.app
    for name in (app.model, *app.settings.fallbacks, *serving.settings.routes):
        # The path of a model file is this machine's own business.
        if not is_model_file(name):
            yield name, _owner(serving.settings.routes.get(name, name))
    for provider, row in app.settings.providers.items():
        for name in row.models:
            yield f"{provider}/{name}", provider
    for local in list_models(app.cache_paths):
        yield f"{LOCAL}/{local.name}", LOCAL


def _owner(name: str) -> str:
    provider, slash, _ = name.partition("/")
    return provider if slash else "cllm"
