"""Selects the provider and model of a request by its model name and X-Provider header.

Calls no provider: a name is checked with the settings and the catalogue.
"""

from cllm.core.errors import ModelNotFoundError
from cllm.providers.registry import (
    BUILTIN_PROVIDERS,
    LOCAL,
    has_model,
    is_model_file,
    model_not_found_error,
)
from cllm.server.http.errors import ApiError
from cllm.server.state import ServerState
from cllm.server.turns.headers import PROVIDER
from cllm.wire.errors import FieldError

MAX_MODEL_LENGTH = 2048
"""In characters."""


def select_model(name: str, provider: str | None, state: ServerState) -> str:
    """Return `provider/model`, or a model name for the app to resolve."""
    if len(name) > MAX_MODEL_LENGTH or not name.isprintable():
        raise FieldError(
            "model", f"the name of a model has at most {MAX_MODEL_LENGTH} printable characters"
        )
    if provider is not None:
        return _check_model(_join_provider(provider, name, state), state)
    prefix, slash, _ = name.partition("/")
    if slash and prefix in _provider_names(state):
        return _check_model(name, state)
    settings, route = state.app.settings, state.settings.routes.get(name)
    if route is not None or name in settings.aliases:
        return settings.expand_alias(route or name)
    if any(name in row.models for row in settings.providers.values()):
        return name
    default = state.settings.default_provider
    if default is not None and has_model(name, state.app.catalogue(default)):
        return f"{default}/{name}"
    check_model_file(name, state)
    return name


def _join_provider(provider: str, name: str, state: ServerState) -> str:
    names = _provider_names(state)
    if provider not in names:
        raise ApiError(
            "invalid_header",
            f"{PROVIDER} names a provider that is not configured; use one of "
            f"{', '.join(sorted(names))}.",
            param=PROVIDER,
        )
    prefix, slash, _ = name.partition("/")
    if slash and prefix == provider:
        return name
    if slash and prefix in names:
        raise ApiError(
            "invalid_header",
            f"{PROVIDER} is '{provider}', but the model name starts with '{prefix}/'; remove one.",
            param=PROVIDER,
        )
    return f"{provider}/{name}"


def _check_model(model: str, state: ServerState) -> str:
    """Return the model; raise ModelNotFoundError if the provider's catalogue lacks it."""
    provider, _, name = model.partition("/")
    check_model_file(model, state)
    if provider == LOCAL:
        return model
    catalogue = state.app.catalogue(provider)
    if has_model(name, catalogue) is False:
        raise model_not_found_error(name, catalogue)
    return model


def check_model_file(model: str, state: ServerState) -> None:
    """Raise ModelNotFoundError for a model file that the settings do not name."""
    settings = state.app.settings
    named = (*settings.fallbacks, *settings.aliases.values(), *state.settings.routes.values())
    if is_model_file(model) and model not in (state.app.model, *named):
        raise ModelNotFoundError(
            "A model file can be used over HTTP only if the server's settings name it.",
            model=model,
        )


def _provider_names(state: ServerState) -> set[str]:
    return {LOCAL, *BUILTIN_PROVIDERS, *state.app.settings.providers}
