"""A schema is read from where it is: written out, a file, or an address.

Says nothing about whether it is a schema; that is `check.py`.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.errors import SchemaError, SchemaUnavailableError, StoreUnavailableError
from cllm.core.notice import Notice
from cllm.files import CacheFolder, NotOrdinaryError, TooLargeError, read_ordinary
from cllm.schemas.fetch import check_address, fetch, shown
from cllm.schemas.source import SchemaRules, SchemaSource
from cllm.schemas.strict_json import NotJsonError, decode, shape_problem

MAX_FILES = 256
LARGEST_FILE = 256 * 1024 * 1024


class CachedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The response of an address, and its time in seconds since 1970."""

    address: str
    fetched_at: float
    text: str


class SchemaCache:
    """Fetched schemas, one file each. They save a request, and are the only source offline."""

    def __init__(self, folder: Path, *, max_files: int = MAX_FILES) -> None:
        self.folder = folder
        self._files = CacheFolder(folder=folder, max_files=max_files, max_bytes=LARGEST_FILE)

    def read(self, address: str) -> CachedSchema | None:
        try:
            cached = msgspec.json.decode(self._files.read(address) or b"", type=CachedSchema)
        except (ValueError, msgspec.DecodeError):
            return None
        return cached if cached.address == address else None

    def write(self, cached: CachedSchema) -> None:
        self._files.write(cached.address, msgspec.json.encode(cached))

    def clear(self) -> int:
        """Delete all schemas, and return how many there were."""
        try:
            return self._files.clear()
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise StoreUnavailableError(
                f"The cached schemas in {self.folder} cannot be deleted ({reason}).",
                path=str(self.folder),
            ) from error


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema that was read. `source` is what a person knows it by."""

    content: dict[str, Any]
    source: str
    notices: tuple[Notice, ...] = ()


class SchemaReader(msgspec.Struct, frozen=True, kw_only=True):
    """Reads schemas by the rules, and keeps those it fetched in the cache."""

    rules: SchemaRules
    cache: SchemaCache
    clock: Callable[[], float] = time.time
    fetch: Callable[[str, SchemaRules], bytes] = fetch

    def read(self, source: SchemaSource) -> Schema:
        if source.address is not None:
            return self._from_address(source.address)
        if source.file is not None:
            path = source.folder / source.file
            return _parsed(_read_file(path, source, self.rules.max_bytes), source.file)
        if isinstance(source.inline, str):
            data = source.inline.encode("utf-8", "replace")
            if len(data) > self.rules.max_bytes:
                raise too_large(source.name, self.rules.max_bytes)
            return _parsed(data, source.name)
        return _made(source.inline, source.name)

    def _from_address(self, address: str) -> Schema:
        """The schema of an address: cached and young enough, fetched, or cached and old."""
        check_address(address, self.rules)
        cached = self._cached(address)
        if self.rules.offline:
            if cached is None:
                raise SchemaError(
                    "CLLM_OFFLINE_MODE is on and it was never fetched; fetch it once with: "
                    "cllm --validate-schema --json-schema-file ADDRESS",
                    source=shown(address),
                )
            return _parsed(cached.text.encode(), shown(address))
        if cached is not None and 0 <= self.clock() - cached.fetched_at < self.rules.ttl:
            return _parsed(cached.text.encode(), shown(address))
        try:
            return self._fetched(address)
        except SchemaUnavailableError as error:
            if cached is None:
                raise
            schema = _parsed(cached.text.encode(), shown(address))
            return msgspec.structs.replace(schema, notices=(_stale(error),))

    def _cached(self, address: str) -> CachedSchema | None:
        cached = self.cache.read(address)
        if cached is None or len(cached.text.encode()) > self.rules.max_bytes:
            return None
        return cached

    def _fetched(self, address: str) -> Schema:
        data = self.fetch(address, self.rules)
        schema = _parsed(data, shown(address))
        self.cache.write(
            CachedSchema(address=address, fetched_at=self.clock(), text=data.decode("utf-8-sig"))
        )
        return schema


def too_large(source: str, limit: int) -> SchemaError:
    return SchemaError(
        f"it is larger than {limit} bytes; CLLM_MAX_SCHEMA_SIZE sets the limit.", source=source
    )


def _read_file(path: Path, source: SchemaSource, limit: int) -> bytes:
    """The file's bytes; a pipe, a device or a large file is refused without reading it."""
    name = source.file or source.name
    try:
        if source.confined and not path.resolve().is_relative_to(source.folder.resolve()):
            raise SchemaError(
                "it is a link that leads out of its Cllmfile's folder; name the file itself.",
                source=name,
            )
        return read_ordinary(path, limit=limit)
    except NotOrdinaryError as error:
        raise SchemaError("it is not an ordinary file.", source=name) from error
    except TooLargeError as error:
        raise too_large(name, limit) from error
    except (OSError, ValueError) as error:
        reason = os.strerror(getattr(error, "errno", None) or 0).lower()
        said = "that is no path" if isinstance(error, ValueError) else reason
        raise SchemaError(f"it cannot be read ({said}).", source=name) from error


def _parsed(data: bytes, source: str) -> Schema:
    try:
        return _made(decode(data.decode("utf-8-sig")), source)
    except UnicodeDecodeError as error:
        raise SchemaError("it is not UTF-8 text.", source=source) from error
    except NotJsonError as error:
        raise SchemaError(f"{error}.", source=source) from error


def _made(content: Any, source: str) -> Schema:
    if not isinstance(content, dict):
        raise SchemaError(
            'it must be a JSON object, such as {"type": "object"}.', source=source, place="$"
        )
    problem = shape_problem(content)
    if problem is not None:
        raise SchemaError(f"{problem}.", source=source)
    return Schema(content=content, source=source)


def _stale(error: SchemaUnavailableError) -> Notice:
    return Notice(
        code="schema_stale",
        path=error.source,
        message=f"The JSON schema of {error.source} is an older copy: {error.problem}",
    )
