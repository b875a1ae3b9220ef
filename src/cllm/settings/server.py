"""`server` of the settings: where `cllm serve` listens, who may call it, and how much it takes."""

from collections.abc import Mapping
from typing import Any, Literal, get_type_hints

import msgspec

from cllm.settings.layers import Layered

KEY = "server"
ANY_PORT = f"{KEY}.port"
MEGABYTE = 1024 * 1024
DEFAULT_PROVIDER = "DEFAULT_PROVIDER"


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A key that callers may use, and whose conversations it opens.

    Either its SHA-256 in hexadecimal, or the key itself (from a variable, as `${NAME}`).
    """

    name: str
    owner: str
    hash: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"KeySettings(name={self.name!r}, owner={self.owner!r})"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a request may have, and how many seconds things may take."""

    body_bytes: int = 32 * MEGABYTE
    bodies_bytes: int = 256 * MEGABYTE
    messages: int = 10_000
    parts: int = 10_000
    depth: int = 64
    head_bytes: int = 64 * 1024
    head_seconds: float = 30
    body_seconds: float = 60
    queue_seconds: float = 60
    turn_seconds: float = 3600
    stop_seconds: float = 10


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `cllm serve` goes by.

    `silence_seconds` is after how much silence a client is sent a sign of life. Answers to requests
    with an idempotency key are kept for `idempotency_seconds`, the events of a stream for
    `events_seconds` after its end.
    """

    host: str = "127.0.0.1"
    port: int = 3000
    workers: int = 1
    store: str | None = None
    default_provider: str | None = None
    routes: dict[str, str] = msgspec.field(default_factory=dict)
    system_prefix: str | None = None
    on_disconnect: Literal["complete", "continue", "cancel"] = "complete"
    keys: tuple[KeySettings, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    silence_seconds: float = 15
    idempotency_seconds: float = 24 * 3600
    events_seconds: float = 600
    limits: Limits = Limits()


def read_server(layered: Layered, environment: Mapping[str, str]) -> ServerSettings:
    """The server's settings as the files have them, and the environment over them."""
    given = layered.values.get(KEY)
    fields = {} if given is None else _read(given, ServerSettings, KEY, layered)
    if environment.get(DEFAULT_PROVIDER, "").strip():
        fields["default_provider"] = environment[DEFAULT_PROVIDER].strip()
    if "limits" in fields:
        fields["limits"] = Limits(**_read(fields["limits"], Limits, f"{KEY}.limits", layered))
    return ServerSettings(**fields)


EXPECTED: dict[Any, str] = {
    int: "a whole number from 1 on",
    float: "a number of seconds above 0",
    str: "a text",
    str | None: "a text",
    dict[str, str]: "a mapping of model names to models",
    tuple[str, ...]: "a list of texts",
    tuple[KeySettings, ...]: "a list of mappings such as {name: ci, owner: ci, key: '${CI_KEY}'}",
}


def _read(given: Any, kind: type[msgspec.Struct], where: str, layered: Layered) -> dict[str, Any]:
    """The fields of a mapping, each as its type."""
    if not isinstance(given, dict):
        raise layered.wrong(where, "a mapping")
    types = get_type_hints(kind)
    fields = {}
    for name, value in given.items():
        if name not in types:
            raise layered.wrong(f"{where}.{name}", f"one of {', '.join(types)}")
        if value is None:
            continue
        fields[name] = _field(value, types[name], f"{where}.{name}", layered)
    return fields


def _field(value: Any, form: Any, where: str, layered: Layered) -> Any:
    if form is Limits:
        return value
    expected = EXPECTED.get(form, "`complete` or `cancel`")
    try:
        read = msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise layered.wrong(where, expected) from error
    if form in (int, float) and not (read > 0 or (read == 0 and where == ANY_PORT)):
        raise layered.wrong(where, expected)
    return read
