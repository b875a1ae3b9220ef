"""`server` of the settings: where `cllm serve` listens, who may call it, and its limits."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cllm.settings.layers import Layered

MEGABYTE = 1024 * 1024
DEFAULT_PROVIDER = "DEFAULT_PROVIDER"

Text = Annotated[str, Meta(description="a text")]
Texts = Annotated[tuple[str, ...], Meta(description="a list of texts")]
Count = Annotated[int, Meta(ge=1, description="a whole number from 1 on")]
Port = Annotated[int, Meta(ge=0, description="a whole number from 1 on")]
Seconds = Annotated[float, Meta(gt=0, description="a number of seconds above 0")]


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A key that callers may use, and the owner whose conversations it opens.

    Either its SHA-256 in hexadecimal, or the key itself (from a variable, as `${NAME}`).
    """

    name: str
    owner: str
    hash: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"KeySettings(name={self.name!r}, owner={self.owner!r})"


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that a request may have, and how many seconds each step may take."""

    body_bytes: Count = 32 * MEGABYTE
    bodies_bytes: Count = 256 * MEGABYTE
    messages: Count = 10_000
    parts: Count = 10_000
    depth: Count = 64
    head_bytes: Count = 64 * 1024
    head_seconds: Seconds = 30
    body_seconds: Seconds = 60
    queue_seconds: Seconds = 60
    turn_seconds: Seconds = 3600
    stop_seconds: Seconds = 10


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of `cllm serve`.

    After `silence_seconds` without output a client gets a sign of life. Responses to requests
    with an idempotency key are stored for `idempotency_seconds`, the events of a stream for
    `events_seconds` after its end.
    """

    host: Text = "127.0.0.1"
    port: Port = 3000
    workers: Count = 1
    store: Text | None = None
    default_provider: Text | None = None
    routes: Annotated[dict[str, str], Meta(description="a mapping of model names to models")] = (
        msgspec.field(default_factory=dict)
    )
    system_prefix: Text | None = None
    on_disconnect: Annotated[
        Literal["complete", "continue", "cancel"], Meta(description="`complete` or `cancel`")
    ] = "complete"
    keys: Annotated[
        tuple[KeySettings, ...],
        Meta(description="a list of mappings such as {name: ci, owner: ci, key: '${CI_KEY}'}"),
    ] = ()
    allowed_hosts: Texts = ()
    allowed_origins: Texts = ()
    silence_seconds: Seconds = 15
    idempotency_seconds: Seconds = 24 * 3600
    events_seconds: Seconds = 600
    limits: Limits = Limits()


def read_server(layered: Layered, environment: Mapping[str, str]) -> ServerSettings:
    """The server's settings of the files, with the environment over them."""
    given = layered.values.get("server")
    server = layered.decode({} if given is None else given, ServerSettings, "server")
    provider = environment.get(DEFAULT_PROVIDER, "").strip()
    return msgspec.structs.replace(server, default_provider=provider) if provider else server
