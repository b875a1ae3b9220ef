"""Opens a store by its URL: `json:PATH`, `sqlite:PATH`, `postgresql://…` or `memory:`.

Imports only the module of that store.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus, urlsplit

from cllm.core.errors import SettingsError, StoreUnavailableError
from cllm.core.extras import require_extra
from cllm.core.ports import Clock, Store

if TYPE_CHECKING:
    from cllm.stores.json.store import Offload


def normalize_url(url: str) -> str:
    """Return the URL with the home folder in place of `~`, if it is of a file or folder."""
    scheme, _, location = url.partition(":")
    if scheme not in PATH_SCHEMES:
        return url
    if location.startswith("//") and location[2:3] not in ("", "/"):
        raise SettingsError(
            f"the store URL '{url}' has a host; write {scheme}:PATH, for example {scheme}:cats or "
            f"{scheme}:/home/ann/cats."
        )
    if not location.startswith("~"):
        return url
    try:
        return f"{scheme}:{Path(location).expanduser()}"
    except RuntimeError as error:
        raise SettingsError(
            f"the home folder in the store URL '{url}' is unknown; write an absolute path."
        ) from error


def _open_json(
    folder: str, clock: Clock, cache: Path | None, offload: "Offload | None" = None
) -> Store:
    from cllm.stores.json.store import JsonFileStore, run_inline  # noqa: PLC0415

    if not folder:
        raise SettingsError("the store 'json:' needs the path of a folder: json:PATH.")
    return JsonFileStore(folder, clock=clock, cache=cache, offload=offload or run_inline)


def _open_memory(_location: str, clock: Clock, _cache: Path | None) -> Store:
    from cllm.stores.memory import MemoryStore  # noqa: PLC0415

    return MemoryStore(clock=clock)


def _open_postgresql(location: str, clock: Clock, _cache: Path | None) -> Store:
    with require_extra("postgres", feature="A store in PostgreSQL"):
        from cllm.stores.postgres.store import PostgresStore  # noqa: PLC0415

    return PostgresStore(f"postgresql:{location}", clock=clock)


def _open_sqlite(
    location: str, clock: Clock, _cache: Path | None, read_seconds: float | None = None
) -> Store:
    from cllm.stores.sqlite.store import SqliteStore, parse_location  # noqa: PLC0415

    path, synchronous = parse_location(location)
    return SqliteStore(path, clock=clock, synchronous=synchronous, read_seconds=read_seconds)


SCHEME_ALIASES = {"postgres": "postgresql", "postgresql+asyncpg": "postgresql"}
PATH_SCHEMES = ("json", "sqlite")
LOCKED_SECONDS = 1.0
SYNCHRONOUS_SCHEMES = ("json", "memory")
SECRET_PARAMETERS = frozenset(
    {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)
"""Those of asyncpg and libpq, in the query of a PostgreSQL URL."""
# The settings replace the variables that are set.
_UNSET_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_PARAMETER = re.compile(r"([?&]([^?&=]+)=)[^&]*")
SCHEMES: dict[str, Callable[[str, Clock, Path | None], Store]] = {
    "json": _open_json,
    "memory": _open_memory,
    "postgresql": _open_postgresql,
    "sqlite": _open_sqlite,
}


def open_store(url: str, *, clock: Clock, cache: Path | None = None) -> Store:
    """Open the store of the URL; its first use creates files or tables.

    `cache`: the folder for the index of conversation files; None: the index is in memory.
    """
    unset = _UNSET_VARIABLE.search(url)
    if unset is not None:
        raise SettingsError(
            f"the store URL contains {unset[0]}, but that environment variable is not set."
        )
    scheme, colon, location = normalize_url(url).partition(":")
    opener = SCHEMES.get(SCHEME_ALIASES.get(scheme, scheme))
    if not colon or opener is None:
        *others, last = (f"{name}:" for name in SCHEMES)
        raise SettingsError(
            f"the store URL '{redact_password(url)}' must start with {', '.join(others)} or "
            f"{last}; for example sqlite:cats.db."
        )
    return opener(location, clock, cache)


def open_other_store(url: str, *, clock: Clock, cache: Path | None) -> Store:
    """Open a store whose conversations are shown with others; it hardly waits for a locked file."""
    scheme, _, location = url.partition(":")
    if scheme == "sqlite":
        return _open_sqlite(location, clock, cache, read_seconds=LOCKED_SECONDS)
    return open_store(url, clock=clock, cache=cache)


def open_file_store(url: str, *, clock: Clock, cache: Path | None, offload: "Offload") -> Store:
    """Open the folder of a URL `json:PATH`; `offload` runs what reads and writes files."""
    return _open_json(url.partition(":")[2], clock, cache, offload)


def store_exists(url: str) -> bool:
    """Return False for a missing SQLite file, which a read would create."""
    scheme, _, location = normalize_url(url).partition(":")
    return scheme != "sqlite" or Path(location.partition("?")[0]).exists()


def check_store_exists(url: str) -> None:
    """Raise StoreUnavailableError for a missing SQLite file, which a read would create."""
    if not store_exists(url):
        path = store_location(url).partition("?")[0]
        raise StoreUnavailableError(f"{path} does not exist; check the store URL.", path=path)


def redact_password(url: str) -> str:
    """Return the store URL with its passwords, also those in the query, replaced by `***`."""
    if url.partition(":")[0] not in PATH_SCHEMES:
        url = _PARAMETER.sub(_redact_parameter, url)
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    if not separator or not at:
        return url
    user, colon, _ = credentials.partition(":")
    return f"{scheme}://{user}:***@{host}" if colon else url


def _redact_parameter(parameter: re.Match[str]) -> str:
    name = unquote_plus(parameter[2]).lower()
    return f"{parameter[1]}***" if name in SECRET_PARAMETERS else parameter[0]


def list_passwords(url: str) -> list[str]:
    """Return the passwords in a store URL, those in the query too; none of an invalid URL.

    An escaped one is returned in all its forms, because a message can have each.
    """
    try:
        address = urlsplit(url).password
    except ValueError:
        return []
    query = [
        found[0].removeprefix(found[1])
        for found in _PARAMETER.finditer(url)
        if unquote_plus(found[2]).lower() in SECRET_PARAMETERS
    ]
    passwords = [password for password in (address, *query) if password]
    unescaped = (decode(one) for one in passwords for decode in (unquote, unquote_plus))
    return list(dict.fromkeys([*passwords, *unescaped]))


def store_location(url: str) -> str:
    """Return the store as people read it: a path, or the URL without its password."""
    scheme, _, path = url.partition(":")
    return path if scheme in PATH_SCHEMES else redact_password(url)


def is_synchronous(url: str) -> bool:
    """Whether reads of the store never suspend and need no event loop."""
    return url.partition(":")[0] in SYNCHRONOUS_SCHEMES
