"""Providers of other packages, found by their entry points.

A package offers one in the group `cllm.providers`:

    [project.entry-points."cllm.providers"]
    acme = "cllm_acme:open_provider"

    def open_provider(name: str, settings: ProviderAccess) -> Provider: ...

`name` is the provider's name in the settings and in names of models; the protocol `Provider` is in
`cllm.core.ports`. Entry points are not read for built-in names.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from cllm.core.errors import SettingsError
from cllm.core.ports import Provider
from cllm.core.secret import Secret

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from cllm.providers.http.transport import Timeouts

GROUP = "cllm.providers"
METHODS = ("prepare", "ask", "close")
# Exceptions that a package can raise while it is imported and called.
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def _default_timeouts() -> "Timeouts":
    from cllm.providers.http.transport import Timeouts  # noqa: PLC0415 - not needed by every user

    return Timeouts()


class ProviderAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a provider; `options` are the keys that cllm does not define."""

    api_base: str | None = None
    api_key: Secret | None = None
    headers: Mapping[str, Secret] = msgspec.field(default_factory=dict)
    timeouts: "Timeouts" = msgspec.field(default_factory=_default_timeouts)
    models: tuple[str, ...] = ()
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        """Omit options and environment, which can contain keys."""
        return f"ProviderAccess(api_base={self.api_base!r}, models={self.models!r})"


def is_offered(name: str) -> bool:
    return bool(_find_entry_points(name))


def open_offered(offer: str, *, name: str, access: ProviderAccess) -> Provider:
    """Open the provider of the entry point `offer`; SettingsError if its package cannot."""
    matches = _find_entry_points(offer)
    if not matches:
        raise SettingsError(f"no installed package provides '{offer}'; install one.")
    if len(matches) > 1:
        packages = ", ".join(sorted(map(_format_package, matches)))
        raise SettingsError(
            f"several packages provide '{offer}' ({packages}); uninstall all but one."
        )
    package = _format_package(matches[0])
    try:
        open_provider: Callable[[str, ProviderAccess], Provider] = matches[0].load()
        provider = open_provider(name, access)
    except FAULTS as error:
        raise SettingsError(
            f"provider '{offer}' of the package {package} failed to open "
            f"({type(error).__name__}: {_redact_keys(str(error), access)}); "
            f"update or uninstall {package}."
        ) from error
    has_methods = all(callable(getattr(provider, method, None)) for method in METHODS)
    if not has_methods or not isinstance(getattr(provider, "name", None), str):
        raise SettingsError(
            f"the package {package} returned {type(provider).__name__} for provider '{offer}', not "
            f"a Provider; update or uninstall {package}."
        )
    return provider


@cache
def _find_entry_points(name: str) -> "tuple[EntryPoint, ...]":
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads every installed package

    return tuple(entry_points(group=GROUP, name=name))


def _format_package(entry_point: "EntryPoint") -> str:
    return "without a name" if entry_point.dist is None else f"'{entry_point.dist.name}'"


def _redact_keys(text: str, access: ProviderAccess) -> str:
    from cllm.providers.http.provider import clean_message  # noqa: PLC0415 - only for an error

    keys = (access.api_key, *access.headers.values())
    return clean_message(text, secrets=[key.reveal() for key in keys if key is not None])
