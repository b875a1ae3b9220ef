"""Download one file, whole or not at all, going on where an earlier run stopped.

Bytes gather in `<file>.part`; the file gets its name when its length and hash are right. Nothing
here prints, and no address is ever put into an error, because addresses can hold credentials.
"""

import base64
import contextlib
import errno
import hashlib
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from threading import Event as StopFlag
from typing import IO, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from cllm.core.errors import DownloadError
from cllm.providers.local.report import Advanced, Report, Started

CHUNK_BYTES = 256 * 1024
SILENCE_SECONDS = 30
ATTEMPTS_WITHOUT_PROGRESS = 5
MAX_ATTEMPTS = 50
LOOPBACK = ("127.0.0.1", "localhost", "::1")

PLAIN_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class RefusedError(DownloadError):
    """Not to be had in this way; a package installer with its own settings may have one."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file comes from. `headers` are sent to the first host only."""

    url: str
    what: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    sha256: str | None = None


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What has arrived."""

    path: Path
    size: int
    sha256: str


class _TransientError(Exception):
    """Something that may go better the next time."""


class _StaleError(Exception):
    """The part does not belong to what the server has now."""


class _WholeError(Exception):
    """There is nothing left to ask for."""


def download(
    source: Source,
    target: Path,
    *,
    report: Report,
    stop: StopFlag | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Fetched:
    """Bring the file to `target`. Call it under a lock: two writers would share one part."""
    check_scheme(source.url)
    part = _Part(target)
    with said_as_download_error(source.what, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        for last_try in (False, True):
            _fill(part, source, report=report, stop=stop or StopFlag(), sleep=sleep)
            digest = _sha256_of(part.path)
            if source.sha256 in (None, digest):
                size = part.path.stat().st_size
                part.finish(target)
                return Fetched(path=target, size=size, sha256=digest)
            part.delete()
            if last_try:
                break
    raise DownloadError(
        f"What arrived for {source.what} twice was not what it should be (its SHA-256 differs); "
        "check the hash and where you fetch it from."
    )


def check_scheme(url: str) -> None:
    """Refuse addresses that would be fetched in the open, or not at all."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise RefusedError("That is not an address; check it.") from error
    if parts.scheme in ("https", "file"):
        return
    if parts.scheme == "http" and parts.hostname in LOOPBACK:
        return
    raise RefusedError("A model can be fetched over https only; give an https:// address.")


@contextlib.contextmanager
def said_as_download_error(what: str, folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = f"the disk is full; make room in {folder} and try again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            advice = f"{folder} cannot be written; check its permissions or set XDG_CACHE_HOME"
        else:
            advice = f"{error.strerror or 'the file system refused'} in {folder}; try again"
        raise DownloadError(f"{what} could not be kept: {advice}.") from error


class _Part:
    """The bytes so far, and which version of the file they are of."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(target.name + ".part")
        self._validator_path = target.with_name(target.name + ".part.version")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def validator(self) -> str | None:
        try:
            return self._validator_path.read_text(encoding="utf-8", errors="replace") or None
        except FileNotFoundError:
            return None

    def begin(self, validator: str | None) -> None:
        self.delete()
        self._validator_path.write_text(validator or "", encoding="utf-8")

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self._validator_path.unlink(missing_ok=True)

    def finish(self, target: Path) -> None:
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self._validator_path.unlink(missing_ok=True)


def _fill(
    part: _Part, source: Source, *, report: Report, stop: StopFlag, sleep: Callable[[float], None]
) -> None:
    """Ask for the rest until it is there; give up after some attempts that brought nothing."""
    fruitless = 0
    for _attempt in range(MAX_ATTEMPTS):
        before = part.size
        try:
            _transfer(part, source, report=report, stop=stop)
        except _WholeError:
            return
        except _StaleError:
            part.delete()
        except _TransientError as error:
            fruitless = 0 if part.size > before else fruitless + 1
            if fruitless >= ATTEMPTS_WITHOUT_PROGRESS:
                raise DownloadError(
                    f"{source.what} could not be fetched ({error}); check the network and try "
                    "again, what has arrived is kept."
                ) from error
            sleep(min(0.5 * 2**fruitless, 8))
        else:
            return
    raise DownloadError(
        f"{source.what} could not be fetched in {MAX_ATTEMPTS} attempts; check the network and "
        "try again, what has arrived is kept."
    )


def _transfer(part: _Part, source: Source, *, report: Report, stop: StopFlag) -> None:
    """One request, from where the part ends to where the file does."""
    resumable = source.sha256 is not None or part.validator is not None
    offset = part.size if resumable else 0
    with _opened(source, offset=offset, validator=part.validator) as answer:
        if offset == 0 or answer.status != HTTPStatus.PARTIAL_CONTENT:
            offset = 0
            part.begin(_validator(answer))
        elif not _continues_at(answer, offset):
            raise _StaleError
        total = _total(answer, offset)
        report(Started(what=source.what, total=total, done=offset))
        with part.path.open("ab") as file:
            _copy(answer, file, done=offset, report=report, stop=stop)
    if total is not None and part.size < total:
        raise _TransientError("the connection ended too early")
    if total is not None and part.size > total:
        raise _StaleError


def _copy(answer: Any, file: IO[bytes], *, done: int, report: Report, stop: StopFlag) -> None:
    while not stop.is_set():
        try:
            chunk = (
                answer.read1(CHUNK_BYTES) if hasattr(answer, "read1") else answer.read(CHUNK_BYTES)
            )
        except (OSError, http.client.HTTPException) as error:
            raise _TransientError("the connection was lost") from error
        if not chunk:
            return
        file.write(chunk)
        done += len(chunk)
        report(Advanced(done=done))
    raise DownloadError("The download was stopped; what has arrived is kept.")


@contextlib.contextmanager
def _opened(source: Source, *, offset: int, validator: str | None) -> Iterator[Any]:
    request = _request(source)
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        if validator is not None:
            request.add_header("If-Range", validator)
    opener = urllib.request.build_opener(_SafeRedirects())
    try:
        answer = opener.open(request, timeout=SILENCE_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if offset and str(error.headers.get("Content-Range")) == f"bytes */{offset}":
            raise _WholeError from error
        raise _meaning_of(error.code, source.what) from error
    except urllib.error.URLError as error:
        raise _meaning_of_failure(error.reason, source.what) from error
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError("no answer") from error
    with answer:
        yield answer


def _request(source: Source) -> urllib.request.Request:
    """The request; credentials in the address become a header, which redirects do not get."""
    parts = urlsplit(source.url)
    if parts.username is None:
        request = urllib.request.Request(source.url)  # noqa: S310 - check_scheme has looked
    else:
        host = parts.netloc.rpartition("@")[2]
        request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)))  # noqa: S310
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        encoded = base64.b64encode(login.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    for name, value in source.headers.items():
        request.add_unredirected_header(name, value)
    request.add_header("User-Agent", "cllm")
    return request


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to where we would have gone ourselves, and never out of https."""

    def redirect_request(  # noqa: PLR0917 - the standard library's signature
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        try:
            was, goes = urlsplit(req.full_url), urlsplit(newurl)
        except ValueError as error:
            raise RefusedError("The server redirects to what is no address.") from error
        if goes.scheme == "file" or (was.scheme == "https" and goes.scheme != "https"):
            raise RefusedError("The server redirects to an insecure address; fetch from another.")
        check_scheme(newurl)
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        login = req.unredirected_hdrs.get("Authorization")
        if following is not None and login is not None and was[:2] == goes[:2]:
            following.add_unredirected_header("Authorization", login)
        return following


def _meaning_of(status: int, what: str) -> Exception:
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return _StaleError()
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, 407):
        return RefusedError(
            f"The server does not let us fetch {what} ({status}); check your access to it."
        )
    if status in (408, 425, 429) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _TransientError(f"the server answered {status}")
    return DownloadError(f"The server has no {what} ({status}); check the name.")


def _meaning_of_failure(reason: object, what: str) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return RefusedError(
            f"The server's certificate was not accepted for {what}; set SSL_CERT_FILE to the "
            "certificates of your network."
        )
    if isinstance(reason, FileNotFoundError):
        return DownloadError(f"There is no file for {what} at that address; check it.")
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else "no connection"
    return _TransientError(text.lower())


def _continues_at(answer: Any, offset: int) -> bool:
    return str(answer.headers.get("Content-Range", "")).startswith(f"bytes {offset}-")


def _validator(answer: Any) -> str | None:
    """By what the server can tell that the file is still the same, byte for byte."""
    tag = answer.headers.get("ETag")
    if tag is not None and not tag.startswith("W/"):
        return str(tag)
    date = answer.headers.get("Last-Modified")
    return None if date is None else str(date)


def _total(answer: Any, offset: int) -> int | None:
    length = answer.headers.get("Content-Length")
    return offset + int(length) if length is not None and PLAIN_NUMBER.fullmatch(length) else None


def _sha256_of(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
