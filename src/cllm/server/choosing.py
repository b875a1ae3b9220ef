"""Which model a request is for: the name it gives, by the operator's routes and the headers."""

from cllm.providers.registry import LOCAL, ROWS
from cllm.server.refusal import RefusedError
from cllm.server.serving import Serving
from cllm.server.wish import PROVIDER


def chosen_model(name: str, provider: str | None, serving: Serving) -> str:
    """The model with its provider where somebody named one; else as it is, to be looked up."""
    if provider is not None:
        return _at(provider, name, serving)
    prefix, slash, _ = name.partition("/")
    if slash and prefix in _providers(serving):
        return name
    routes = serving.settings.routes
    if name in routes:
        return routes[name]
    default = serving.settings.default_provider
    if default is not None and _knows(default, name, serving):
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


def _providers(serving: Serving) -> set[str]:
    return {LOCAL, *ROWS, *serving.app.settings.providers}


def _knows(provider: str, name: str, serving: Serving) -> bool:
    """Whether the provider lists the model and no other provider does."""
    listed = {other for other, row in serving.app.settings.providers.items() if name in row.models}
    return provider in listed
