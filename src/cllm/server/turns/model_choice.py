"""Which model a request is for: the name it gives, by the headers and the operator's settings.

The first that applies decides: `X-Provider`, the provider in the model's name, the operator's
routes, the lists of the providers, the default provider if it has the model. What none of them
knows goes by the table of known names. Looks up, and asks nobody.
"""

from collections.abc import Iterable

from cllm.core.errors import ModelNotFoundError
from cllm.providers.registry import LOCAL, ROWS, has_model, no_such_model
from cllm.server.http.errors import RefusedError
from cllm.server.serving import Serving
from cllm.server.turns.headers import PROVIDER
from cllm.settings.trust import is_model_file
from cllm.wire.malformed import FieldError

MOST_CHOICES = 1000
LONGEST_NAME = 2048


def chosen_model(name: str, provider: str | None, serving: Serving) -> str:
    """The model with its provider where somebody named one; else as it is, to be looked up."""
    known = serving.choices.get((name, provider))
    if known is None:
        _check_name(name)
        known = _chosen(name, provider, serving)
        if len(serving.choices) >= MOST_CHOICES:
            serving.choices.clear()
        serving.choices[name, provider] = known
    return known


def _check_name(name: str) -> None:
    """FieldError for what cannot be a name: it is kept, counted and logged by whole names."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise FieldError(
            "model", f"a model has a name of at most {LONGEST_NAME} printable characters"
        )


def _chosen(name: str, provider: str | None, serving: Serving) -> str:
    if provider is not None:
        return _checked(_at(provider, name, serving), serving)
    prefix, slash, _ = name.partition("/")
    if slash and prefix in _providers(serving):
        return _checked(name, serving)
    routes = serving.settings.routes
    if name in routes:
        return routes[name]
    if any(name in models for models in _lists(serving)):
        return name
    default = serving.settings.default_provider
    if default is not None and has_model(name, serving.app.catalogue(default)):
        return f"{default}/{name}"
    return name


def _at(provider: str, name: str, serving: Serving) -> str:
    known = _providers(serving)
    if provider not in known:
        raise RefusedError(
            "invalid_header",
            f"{PROVIDER} names a provider that is not configured here; there are "
            f"{', '.join(sorted(known))}.",
            param=PROVIDER,
        )
    prefix, slash, _ = name.partition("/")
    if slash and prefix == provider:
        return name
    if slash and prefix in known:
        raise RefusedError(
            "invalid_header",
            f"{PROVIDER} says {provider}, but the model is {prefix}'s; leave one of them out.",
            param=PROVIDER,
        )
    return f"{provider}/{name}"


def _checked(model: str, serving: Serving) -> str:
    """The model, if its provider is not known to be without it."""
    provider, _, name = model.partition("/")
    settings = serving.app.settings
    if is_model_file(model) and model not in (serving.app.model, *settings.fallbacks):
        raise ModelNotFoundError(
            "A model file is asked for over HTTP only if the server's settings name it.",
            model=model,
        )
    if provider == LOCAL:
        return model
    catalogue = serving.app.catalogue(provider)
    if has_model(name, catalogue) is False:
        raise no_such_model(name, catalogue)
    return model


def _providers(serving: Serving) -> set[str]:
    return {LOCAL, *ROWS, *serving.app.settings.providers}


def _lists(serving: Serving) -> Iterable[tuple[str, ...]]:
    return (row.models for row in serving.app.settings.providers.values())
