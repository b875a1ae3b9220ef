"""From where a request may come: the names this server goes by, and the pages that may call it.

A server without keys would answer any web page that its person looks at, so a name that is not its
own and a page that is not its own are refused before anything else is looked at. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

from cllm.server.errors import RefusedError
from cllm.settings.server import ServerSettings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ANY = "*"
EXPOSED = "X-Conversation-ID, X-Turn-ID, X-CLLM-Notice, X-Request-ID, Retry-After"
METHODS = "GET, POST, PATCH, DELETE"
PREFLIGHT_SECONDS = "600"

Headers = tuple[tuple[bytes, bytes], ...]


HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]*)?")


class HostRules(msgspec.Struct, frozen=True, kw_only=True):
    """The host names and the origins that are let in; no names means any."""

    names: frozenset[str] | None
    origins: frozenset[str] = frozenset()

    def check(self, hosts: Iterable[str], origin: str | None) -> None:
        """RefusedError for a request under a foreign name, or from a foreign page."""
        named = [host_name(host) for host in hosts]
        if self.names is not None and (not named or not self.names.issuperset(named)):
            raise RefusedError(
                "host_not_allowed",
                "This server does not go by that name; its operator can add it to "
                "server.allowed_hosts.",
            )
        if origin is not None and not self.allows(origin, hosts):
            raise RefusedError(
                "origin_not_allowed",
                "Pages of this origin may not call this server; its operator can add it to "
                "server.allowed_origins.",
            )

    def allows(self, origin: str, hosts: Iterable[str]) -> bool:
        """Whether a page from there may call: one of the server's own, or one that is listed."""
        return self.shares_with(origin) or urlsplit_host(origin) in set(hosts)

    def shares_with(self, origin: str) -> bool:
        """Whether a page of another origin may read the answers."""
        return ANY in self.origins or origin in self.origins

    def sharing(self, origin: str) -> Headers:
        """The headers with which a browser gives an answer to a page of that origin."""
        return (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED.encode()),
            (b"vary", b"Origin"),
        )

    def preflight(self, origin: str, wanted: str) -> Headers:
        """The answer to a browser that asks whether it may send such a request."""
        return (
            *self.sharing(origin),
            (b"access-control-allow-methods", METHODS.encode()),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", PREFLIGHT_SECONDS.encode()),
        )


def read_host_rules(settings: ServerSettings) -> HostRules:
    """The rules of the settings. With keys a name proves nothing, so any will do unless listed."""
    listed = frozenset(name.lower() for name in settings.allowed_hosts)
    any_will_do = ANY in listed or (settings.keys and not listed)
    names = None if any_will_do else listed | LOOPBACK_NAMES
    origins = frozenset(origin.rstrip("/") for origin in settings.allowed_origins)
    return HostRules(names=names, origins=origins)


def check_host_header(hosts: Sequence[str]) -> None:
    """RefusedError unless there is one Host header, and a name in it, as HTTP/1.1 demands."""
    if len(hosts) != 1 or not host_name(hosts[0]):
        raise RefusedError(
            "invalid_request",
            "A request needs exactly one Host header with the name of the server in it.",
            param="Host",
        )


@lru_cache(maxsize=100)
def host_name(host: str) -> str:
    """The name in a Host header, in lower case and without its port; empty if it is none."""
    found = HOST.fullmatch(host)
    return "" if found is None else (found[1] or found[2]).lower().rstrip(".")


def urlsplit_host(origin: str) -> str | None:
    """Host and port of an origin as a Host header has them; None if it is no web page's."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") else None
