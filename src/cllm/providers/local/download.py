"""Downloads a file, and resumes an interrupted download.

No error contains an address, because addresses can contain credentials.
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
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from cllm.core.errors import DownloadError
from cllm.providers.local.models import DownloadAdvanced, DownloadStarted, Report

CHUNK_BYTES = 256 * 1024
READ_TIMEOUT_SECONDS = 30
ATTEMPTS_WITHOUT_PROGRESS = 5
MAX_ATTEMPTS = 50
LOOPBACK = ("127.0.0.1", "localhost", "::1")
STOPPED = "The download was stopped; try again to resume it."
PLAIN_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class RefusedError(DownloadError):
    """Our download was refused; a package installer may be allowed."""


class DownloadSource(msgspec.Struct, frozen=True, kw_only=True):
    """`headers` are sent to the first host only."""

    url: str
    name: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    sha256: str | None = None


class _TransientError(Exception): ...


def download(
    source: DownloadSource,
    target: Path,
    *,
    report: Report,
    stop: StopFlag | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Return the SHA-256. Call it under a lock: two writers would share one part."""
    check_scheme(source.url)
    part = _Part(source, target, report=report, stop=stop or StopFlag())
    with disk_errors(source.name, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            part.fill(sleep)
            digest = sha256_of(part.path)
            if source.sha256 in (None, digest):
                with part.path.open("rb") as file:
                    os.fsync(file.fileno())
                part.path.replace(target)
                part.delete()
                return digest
            part.delete()
    raise DownloadError(
        f"The SHA-256 of {source.name} is not the expected one, even after a second download; "
        "check the hash and the address."
    )


def check_scheme(url: str) -> None:
    """Raise RefusedError unless the address is https, a file, or http on loopback."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise RefusedError("The address of the model is not a valid URL; check it.") from error
    if parts.scheme in ("https", "file"):
        return
    if parts.scheme == "http" and parts.hostname in LOOPBACK:
        return
    raise RefusedError("Models are downloaded over HTTPS only; use an https:// address.")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def disk_errors(name: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = f"the disk is full; free some space in {folder} and try again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            advice = f"{folder} is not writable; check its permissions or set XDG_CACHE_HOME"
        else:
            advice = f"{error.strerror or 'an error of the file system'} in {folder}; try again"
        raise DownloadError(f"Cannot save {name}: {advice}.") from error


class _Part:
    """An incomplete download in `<target>.part`, with the server's version of the file."""

    def __init__(
        self, source: DownloadSource, target: Path, *, report: Report, stop: StopFlag
    ) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self._version = target.with_name(f"{target.name}.part.version")
        self._source = source
        self._report = report
        self._stop = stop

    def fill(self, sleep: Callable[[float], None]) -> None:
        failures = 0
        for _ in range(MAX_ATTEMPTS):
            before = self._size()
            try:
                if self._transfer():
                    return
                self.delete()
            except _TransientError as error:
                failures = 0 if self._size() > before else failures + 1
                if failures >= ATTEMPTS_WITHOUT_PROGRESS:
                    raise self._download_error(f" ({error})") from error
                sleep(min(0.5 * 2**failures, 8))
        raise self._download_error(f" in {MAX_ATTEMPTS} attempts")

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _download_error(self, reason: str) -> DownloadError:
        return DownloadError(
            f"Cannot download {self._source.name}{reason}; check the network, and try again to "
            "resume the download."
        )

    def _transfer(self) -> bool:
        """Request the rest once; returns False if the part belongs to another version."""
        request, offset = self._request()
        opener = urllib.request.build_opener(SafeRedirects())
        try:
            response = opener.open(request, timeout=READ_TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return bool(offset) and error.headers.get("Content-Range") == f"bytes */{offset}"
            raise _status_error(error.code, self._source.name) from error
        except urllib.error.URLError as error:
            raise _connection_error(error.reason, self._source.name) from error
        except (OSError, http.client.HTTPException) as error:
            raise _TransientError("no response") from error
        with response:
            headers = response.headers
            if offset == 0 or response.status != HTTPStatus.PARTIAL_CONTENT:
                offset = 0
                tag = headers.get("ETag", "W/")
                version = headers.get("Last-Modified", "") if tag.startswith("W/") else tag
                self.delete()
                self._version.write_text(version, encoding="utf-8")
            elif not headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
                return False
            length = headers.get("Content-Length", "")
            total = offset + int(length) if PLAIN_NUMBER.fullmatch(length) else None
            self._report(DownloadStarted(name=self._source.name, total=total, done=offset))
            self._append(response, done=offset)
        if total is not None and self._size() < total:
            raise _TransientError("the connection ended too early")
        return total is None or self._size() == total

    def _request(self) -> tuple[urllib.request.Request, int]:
        """Return the request for the rest and its offset in the file."""
        request = build_request(self._source.url, self._source.headers)
        version = ""
        if self._version.exists():
            version = self._version.read_text(encoding="utf-8", errors="replace")
        offset = self._size() if self._source.sha256 is not None or version else 0
        if offset:
            request.add_header("Range", f"bytes={offset}-")
            if version:
                request.add_header("If-Range", version)
        return request, offset

    def _append(self, response: Any, *, done: int) -> None:
        read = getattr(response, "read1", response.read)
        with self.path.open("ab") as file:
            while not self._stop.is_set():
                try:
                    chunk = read(CHUNK_BYTES)
                except (OSError, http.client.HTTPException) as error:
                    raise _TransientError("the connection was lost") from error
                if not chunk:
                    return
                file.write(chunk)
                done += len(chunk)
                self._report(DownloadAdvanced(done=done))
        raise DownloadError(STOPPED)


def build_request(url: str, headers: Mapping[str, str]) -> urllib.request.Request:
    """Build a GET request; redirects get neither `headers` nor the credentials in the URL."""
    parts = urlsplit(url)
    url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(url, headers={"User-Agent": "cllm"})  # noqa: S310 - checked
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        encoded = base64.b64encode(login.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    return request


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - the standard library's signature
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        try:
            source, target = urlsplit(req.full_url), urlsplit(newurl)
        except ValueError as error:
            raise RefusedError(
                "The server redirects to an invalid URL; download the model from another address."
            ) from error
        if target.scheme == "file" or (source.scheme == "https" and target.scheme != "https"):
            raise RefusedError(
                "The server redirects to an insecure URL; download the model from another address."
            )
        check_scheme(newurl)
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        login = req.unredirected_hdrs.get("Authorization")
        if redirected is not None and login is not None and source[:2] == target[:2]:
            redirected.add_unredirected_header("Authorization", login)
        return redirected


def _status_error(status: int, name: str) -> Exception:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, 407):
        return RefusedError(
            f"The server refused access to {name} (HTTP {status}); check your credentials, "
            "for Hugging Face HF_TOKEN."
        )
    if status in (408, 425, 429) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _TransientError(f"HTTP {status}")
    return DownloadError(f"The server does not have {name} (HTTP {status}); check the name.")


def _connection_error(reason: object, name: str) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return RefusedError(
            f"Cannot verify the server's certificate for {name}; set SSL_CERT_FILE to the CA "
            "certificates of your network."
        )
    if isinstance(reason, FileNotFoundError):
        return DownloadError(
            f"The file of {name} does not exist at that address; check the address."
        )
    return _TransientError(describe_connection_error(reason))


def describe_connection_error(reason: object) -> str:
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else "no connection"
    return text.lower()
