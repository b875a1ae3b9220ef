"""How to reach providers, as the settings say it. Opens none."""

from typing import Any

import msgspec

from cllm.core.secret import Secret
from cllm.settings.layers import Layered

TOP_KEYS = ("api_base", "base_url", "api_key", "extra_headers", "timeout")
LONGEST_TIMEOUT = 1_000_000
TIMEOUT_PARTS = ("connect", "first_byte", "idle")


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one provider. What is None is for the provider's own row to say.

    `names` are names that others have for its models, with its own.
    """

    kind: str | None = None
    api_base: str | None = None
    api_key: Secret | None = None
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    timeout: float | dict[str, float] | None = None
    models: tuple[str, ...] = ()
    names: dict[str, str] = msgspec.field(default_factory=dict)
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class TopProvider(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the provider of a model, as a file says at its top level.

    It is for the model in force where it stands, never for one that a file above it names: that
    file can be somebody else's, and would choose where a key goes.
    """

    model: str | None
    settings: ProviderSettings


def read_provider(row: Any, *, where: str, layered: Layered) -> ProviderSettings:
    """A row of `providers`, or with an empty `where` what stands at the top level."""
    if not isinstance(row, dict):
        raise layered.wrong(where, "a mapping such as {api_base: …, api_key: …}")
    key = row.get("api_key")
    headers = row.get("extra_headers") or {}
    if not isinstance(headers, dict):
        raise layered.wrong(_named(where, "extra_headers"), "a mapping")
    if not all(f"{name}{value}".isprintable() for name, value in headers.items()):
        raise layered.wrong(_named(where, "extra_headers"), "of one line each")
    base = row.get("api_base") or row.get("base_url")
    if base is not None and not isinstance(base, str):
        raise layered.wrong(_named(where, "api_base"), "a text")
    models = row.get("models") or []
    if not isinstance(models, list) or not all(isinstance(name, str) for name in models):
        raise layered.wrong(_named(where, "models"), "a list of names")
    names = row.get("names") or {}
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise layered.wrong(_named(where, "names"), "a mapping of model names to its own names")
    used = {"type", "models", "names", *TOP_KEYS}
    return ProviderSettings(
        kind=row.get("type"),
        api_base=base,
        api_key=Secret(str(key)) if key else None,
        headers={name: Secret(str(value)) for name, value in headers.items()},
        timeout=_timeout(row.get("timeout"), _named(where, "timeout"), layered),
        models=tuple(models),
        names={str(name): own for name, own in names.items()},
        options={name: value for name, value in row.items() if name not in used},
    )


def _named(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _timeout(value: Any, where: str, layered: Layered) -> float | dict[str, float] | None:
    try:
        timeout = msgspec.convert(value, type=float | dict[str, float] | None)
    except msgspec.ValidationError:
        timeout = {"?": 0.0}
    parts = timeout if isinstance(timeout, dict) else {"idle": 1.0 if timeout is None else timeout}
    if not all(
        name in TIMEOUT_PARTS and 0 < seconds <= LONGEST_TIMEOUT for name, seconds in parts.items()
    ):
        raise layered.wrong(
            where,
            "seconds (above 0, at most a million), or some of {connect: …, first_byte: …, idle: …}",
        )
    return timeout
