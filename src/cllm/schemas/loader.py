"""Loads a schema: inline, from a file, or from an https URL."""

import http.client
import ipaddress
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from cllm.core.errors import SchemaError, SchemaUnavailableError, StoreUnavailableError
from cllm.core.notice import Notice
from cllm.files import CacheFolder, FileTooLargeError, NotRegularFileError, read_regular_file
from cllm.schemas.source import SchemaRules, SchemaSource
from cllm.schemas.strict_json import NotJsonError, decode, shape_problem

MAX_FILES = 256
MAX_CACHE_FILE_BYTES = 256 * 1024 * 1024
READ_TIMEOUT_SECONDS = 10.0
TOTAL_SECONDS = 30.0
CHUNK_BYTES = 65536
RETRYABLE_STATUSES = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
HEADERS = {"User-Agent": "cllm", "Accept": "application/schema+json, application/json"}


def too_large_error(source: str, limit: int) -> SchemaError:
    return SchemaError(
        f"it is larger than {limit} bytes; CLLM_MAX_SCHEMA_SIZE sets the limit.", source=source
    )


def redact_url(url: str) -> str:
    """Return a URL without user name, password and query, which can be secret."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "an invalid URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def fetch(url: str, rules: SchemaRules, *, seconds: float = TOTAL_SECONDS) -> bytes:
    """Return the body at a URL; raise SchemaUnavailableError if a retry can help."""
    check_url(url, rules)
    errors: list[SchemaError] = []
    bodies: list[bytes] = []

    def work() -> None:
        try:
            bodies.append(_fetch(url, rules))
        except SchemaError as error:
            errors.append(error)

    # The socket timeout applies to each chunk, and a server can send chunks for ever.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not bodies:
        raise _unavailable_error(url, f"the download took more than {seconds:g} s")
    return bodies[0]


def check_url(url: str, rules: SchemaRules) -> None:
    problem = _url_problem(url, rules)
    if problem is not None:
        raise SchemaError(problem, source=redact_url(url))


def _url_problem(url: str, rules: SchemaRules) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "that is not a valid URL."
    if parts.scheme != "https" and not (parts.scheme == "http" and rules.allow_http):
        return "schemas are fetched over https only; CLLM_ALLOW_HTTP_SCHEMAS=true allows http."
    if parts.username is not None:
        return "remove the user name and the password from the URL."
    if not parts.hostname or not url.isprintable() or " " in url:
        return "that is not a valid URL."
    return None


def _fetch(url: str, rules: SchemaRules) -> bytes:
    opener = urllib.request.build_opener(_SafeRedirects(rules), *_proxies(urlsplit(url)))
    request = urllib.request.Request(url, headers=HEADERS)  # noqa: S310 - checked above
    try:
        with opener.open(request, timeout=READ_TIMEOUT_SECONDS) as response:
            return _read(response, url, rules.max_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        raise _status_error(url, error.code) from error
    except urllib.error.URLError as error:
        raise _connection_error(url, error.reason) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _connection_error(url, error) from error


def _proxies(parts: SplitResult) -> list[urllib.request.BaseHandler]:
    """Return a handler that uses no proxy for loopback hosts."""
    host = parts.hostname or ""
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    return [urllib.request.ProxyHandler({})] if is_loopback else []


def _read(response: Any, url: str, limit: int) -> bytes:
    content_length = str(response.headers.get("Content-Length", ""))
    error = too_large_error(redact_url(url), limit)
    if content_length.isdecimal() and (
        len(content_length) > len(str(limit)) or int(content_length) > limit
    ):
        raise error
    body = bytearray()
    while piece := response.read1(CHUNK_BYTES):
        body += piece
        if len(body) > limit:
            raise error
    if content_length.isdecimal() and len(body) < int(content_length):
        raise _unavailable_error(url, "the connection ended too early")
    return bytes(body)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to an allowed URL, and never from https to http."""

    max_redirections = 5

    def __init__(self, rules: SchemaRules) -> None:
        self._rules = rules

    def redirect_request(  # noqa: PLR0917 - the standard library's signature
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        was_secure = req.full_url.lower().startswith("https://")
        if was_secure and not newurl.lower().startswith("https://"):
            raise SchemaError(
                "it redirects from https to another scheme.", source=redact_url(req.full_url)
            )
        problem = _url_problem(newurl, self._rules)
        if problem is not None:
            raise SchemaError(
                f"it redirects to {redact_url(newurl)}, but {problem}",
                source=redact_url(req.full_url),
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _status_error(url: str, status: int) -> SchemaError:
    if status in RETRYABLE_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _unavailable_error(url, f"the server responded with status {status}")
    if status // 100 == HTTPStatus.MULTIPLE_CHOICES // 100:
        return SchemaError("it redirects too often, or without a target.", source=redact_url(url))
    return SchemaError(
        f"the server responded with status {status}; check the URL.", source=redact_url(url)
    )


def _connection_error(url: str, reason: object) -> SchemaError:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SchemaError("the server's certificate was not accepted.", source=redact_url(url))
    if isinstance(reason, TimeoutError):
        return _unavailable_error(url, f"no data for {READ_TIMEOUT_SECONDS:g} s")
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else "no connection"
    return _unavailable_error(url, text.lower())


def _unavailable_error(url: str, reason: str) -> SchemaUnavailableError:
    return SchemaUnavailableError(
        f"it cannot be fetched ({reason}); check the network and try again.",
        source=redact_url(url),
    )


class CachedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """`fetched_at` is in seconds since 1970."""

    url: str = msgspec.field(name="address")
    fetched_at: float
    text: str


class SchemaCache:
    def __init__(self, folder: Path, *, max_files: int = MAX_FILES) -> None:
        self.folder = folder
        self._files = CacheFolder(
            folder=folder, max_files=max_files, max_bytes=MAX_CACHE_FILE_BYTES
        )

    def read(self, url: str) -> CachedSchema | None:
        try:
            cached = msgspec.json.decode(self._files.read(url) or b"", type=CachedSchema)
        except (ValueError, msgspec.DecodeError):
            return None
        return cached if cached.url == url else None

    def write(self, cached: CachedSchema) -> None:
        self._files.write(cached.url, msgspec.json.encode(cached))

    def clear(self) -> int:
        try:
            return self._files.clear()
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise StoreUnavailableError(
                f"The cached schemas in {self.folder} cannot be deleted ({reason}).",
                path=str(self.folder),
            ) from error


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    content: dict[str, Any]
    source: str
    notices: tuple[Notice, ...] = ()


class SchemaReader(msgspec.Struct, frozen=True, kw_only=True):
    rules: SchemaRules
    cache: SchemaCache
    clock: Callable[[], float] = time.time
    fetch: Callable[[str, SchemaRules], bytes] = fetch

    def read(self, source: SchemaSource) -> Schema:
        if source.url is not None:
            return self._load_url(source.url)
        if source.file is not None:
            path = source.folder / source.file
            return _parse_schema(_read_file(path, source, self.rules.max_bytes), source.file)
        if isinstance(source.inline, str):
            data = source.inline.encode("utf-8", "replace")
            if len(data) > self.rules.max_bytes:
                raise too_large_error(source.name, self.rules.max_bytes)
            return _parse_schema(data, source.name)
        return _build_schema(source.inline, source.name)

    def _load_url(self, url: str) -> Schema:
        check_url(url, self.rules)
        name = redact_url(url)
        cached = self.cache.read(url)
        if cached is not None and len(cached.text.encode()) > self.rules.max_bytes:
            cached = None
        if self.rules.offline and cached is None:
            raise SchemaError(
                "CLLM_OFFLINE_MODE is on and it was never fetched; fetch it once with: "
                "cllm --validate-schema --json-schema-file URL",
                source=name,
            )
        if cached is not None:
            is_young = 0 <= self.clock() - cached.fetched_at < self.rules.ttl
            if self.rules.offline or is_young:
                return _parse_schema(cached.text.encode(), name)
        try:
            data = self.fetch(url, self.rules)
        except SchemaUnavailableError as error:
            if cached is None:
                raise
            notice = Notice(
                code="schema_stale",
                path=error.source,
                message=f"A cached JSON schema of {error.source} is used: {error.problem}",
            )
            schema = _parse_schema(cached.text.encode(), name)
            return msgspec.structs.replace(schema, notices=(notice,))
        schema = _parse_schema(data, name)
        self.cache.write(
            CachedSchema(url=url, fetched_at=self.clock(), text=data.decode("utf-8-sig"))
        )
        return schema


def _read_file(path: Path, source: SchemaSource, limit: int) -> bytes:
    name = source.file or source.name
    try:
        if source.is_confined and not path.resolve().is_relative_to(source.folder.resolve()):
            raise SchemaError(
                "it is a link to a file outside its Cllmfile's folder; name that file itself.",
                source=name,
            )
        return read_regular_file(path, limit=limit)
    except NotRegularFileError as error:
        raise SchemaError("it is not a regular file.", source=name) from error
    except FileTooLargeError as error:
        raise too_large_error(name, limit) from error
    except (OSError, ValueError) as error:
        reason = os.strerror(getattr(error, "errno", None) or 0).lower()
        problem = "the path is invalid" if isinstance(error, ValueError) else reason
        raise SchemaError(
            f"it cannot be read ({problem}); check the path and its permissions.", source=name
        ) from error


def _parse_schema(data: bytes, source: str) -> Schema:
    try:
        return _build_schema(decode(data.decode("utf-8-sig")), source)
    except UnicodeDecodeError as error:
        raise SchemaError("it is not UTF-8 text.", source=source) from error
    except NotJsonError as error:
        raise SchemaError(f"{error}; correct the schema.", source=source) from error


def _build_schema(content: Any, source: str) -> Schema:
    if not isinstance(content, dict):
        raise SchemaError(
            'it must be a JSON object, such as {"type": "object"}.', source=source, place="$"
        )
    problem = shape_problem(content)
    if problem is not None:
        raise SchemaError(f"{problem}.", source=source)
    return Schema(content=content, source=source)
