"""Finds GGUF files on Hugging Face with its API. HF_ENDPOINT selects another server.

A file is identified by the revision of its repository and by the SHA-256 that the hub reports.
"""

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import msgspec

from cllm.core.errors import DownloadError, UsageError
from cllm.providers.local.download import (
    DownloadSource,
    SafeRedirects,
    build_request,
    check_scheme,
    describe_connection_error,
)
from cllm.providers.local.models import SUFFIX, HubFile

HUGGING_FACE = "https://huggingface.co"
PREFIX = "hf:"
TIMEOUT_SECONDS = 30
MAX_BYTES = 8 * 1024 * 1024
DEFAULT_QUANTISATIONS = ("Q4_K_M", "Q8_0")
MAX_SHOWN = 20
PERMISSIVE_LICENCES = frozenset(
    ("apache-2.0", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "isc", "mit", "unlicense", "zlib")
)
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
# One of several files of a model, or the image encoder of one.
PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$|(^|[-._/])mmproj", re.IGNORECASE)
T = TypeVar("T")


class HubQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A repository, and the quantisation of the file; None: a default one."""

    repository: str
    quantisation: str | None = None


class HubMatch(msgspec.Struct, frozen=True, kw_only=True):
    """`licence`: its name if it is not permissive, or "unknown"."""

    source: DownloadSource
    licence: str | None


class _Lfs(msgspec.Struct, frozen=True, kw_only=True):
    oid: str = ""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    type: str = "file"
    lfs: _Lfs | None = None


class _Repository(msgspec.Struct, frozen=True, kw_only=True):
    sha: str | None = None
    tags: tuple[str, ...] = ()


def parse_hub_name(text: str, environ: Mapping[str, str]) -> DownloadSource | HubQuery:
    """Parse `hf:OWNER/REPO/FILE.gguf` or `hf:OWNER/REPO[:QUANT]`."""
    owner, *rest = text.removeprefix(PREFIX).split("/")
    repository, *inner = rest or [""]
    quantisation = None
    if not inner:
        repository, separator, name = repository.partition(":")
        quantisation = name if separator else None
    pieces = (owner, repository, *inner, *([] if quantisation is None else [quantisation]))
    if not all(map(FILE_NAME.fullmatch, pieces)):
        raise UsageError(
            f"'{text}' is not of the form hf:OWNER/REPO[:QUANT] or hf:OWNER/REPO/FILE.gguf."
        )
    if inner:
        file = HubFile(repository=f"{owner}/{repository}", file="/".join(inner))
        return build_source(file, environ, name=check_file_name(inner[-1]))
    return HubQuery(repository=f"{owner}/{repository}", quantisation=quantisation)


def check_file_name(name: str) -> str:
    if not FILE_NAME.fullmatch(name) or not name.endswith(SUFFIX):
        raise UsageError(f"'{name}' is not the name of a GGUF file; use one that ends in {SUFFIX}.")
    return name


def build_source(
    file: HubFile, environ: Mapping[str, str], *, name: str, sha256: str | None = None
) -> DownloadSource:
    path = f"{quote(file.repository)}/resolve/{quote(file.revision)}/{quote(file.file)}"
    return DownloadSource(
        url=f"{_endpoint(environ)}/{path}", name=name, headers=_headers(environ), sha256=sha256
    )


def find_file(query: HubQuery, environ: Mapping[str, str]) -> HubMatch:
    """Find the file of a quantisation in the newest revision of a repository."""
    name = quote(query.repository)
    address = f"{_endpoint(environ)}/api/models/{name}"
    repository = _read(address, _Repository, query, environ)
    revision = repository.sha or "main"
    entries = _read(f"{address}/tree/{quote(revision)}", list[_Entry], query, environ)
    files = {
        entry.path: entry
        for entry in entries
        if entry.type == "file"
        and entry.path.endswith(SUFFIX)
        and FILE_NAME.fullmatch(entry.path)
        and PART.search(entry.path) is None
    }
    path = _choose(list(files), query)
    lfs = files[path].lfs
    digest = None if lfs is None or not SHA256.fullmatch(lfs.oid) else lfs.oid
    file = HubFile(repository=query.repository, file=path, revision=revision)
    return HubMatch(
        source=build_source(file, environ, name=path, sha256=digest),
        licence=_find_licence(repository.tags),
    )


def _choose(names: list[str], query: HubQuery) -> str:
    wanted = (query.quantisation,) if query.quantisation else DEFAULT_QUANTISATIONS
    for quantisation in wanted:
        pattern = re.compile(rf"(^|[-._]){re.escape(quantisation)}([-._]|$)", re.IGNORECASE)
        matches = [name for name in names if pattern.search(name.removesuffix(SUFFIX))]
        if matches:
            return min(matches, key=lambda name: (len(name), name))
    if not names:
        raise DownloadError(
            f"{query.repository} has no GGUF file that cllm can use; choose a repository whose "
            "name ends in -GGUF."
        )
    if query.quantisation is None and len(names) == 1:
        return names[0]
    listed = ", ".join(sorted(names)[:MAX_SHOWN])
    raise DownloadError(
        f"{query.repository} has no file with the quantisation {' or '.join(wanted)}; name one of "
        f"its files with hf:{query.repository}/FILE.gguf: {listed}"
    )


def _find_licence(tags: tuple[str, ...]) -> str | None:
    names = [tag.removeprefix("license:") for tag in tags if tag.startswith("license:")]
    if names and all(name in PERMISSIVE_LICENCES for name in names):
        return None
    return ", ".join(names) or "unknown"


def _endpoint(environ: Mapping[str, str]) -> str:
    endpoint = (environ.get("HF_ENDPOINT") or HUGGING_FACE).rstrip("/")
    check_scheme(endpoint)
    return endpoint


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    token = environ.get("HF_TOKEN", "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _read(url: str, kind: type[T], query: HubQuery, environ: Mapping[str, str]) -> T:
    opener = urllib.request.build_opener(SafeRedirects())
    try:
        with opener.open(
            build_request(url, _headers(environ)), timeout=TIMEOUT_SECONDS
        ) as response:
            data = response.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise _status_error(error.code, query) from error
    except (OSError, http.client.HTTPException) as error:
        reason = describe_connection_error(getattr(error, "reason", error))
        raise DownloadError(
            f"Cannot read the list of files of {query.repository} ({reason}); check the network "
            "and try again."
        ) from error
    try:
        return msgspec.json.decode(data[:MAX_BYTES], type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DownloadError(
            f"The server's list of files of {query.repository} is not in the format of Hugging "
            "Face; check HF_ENDPOINT."
        ) from error


def _status_error(status: int, query: HubQuery) -> DownloadError:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return DownloadError(
            f"The repository {query.repository} does not exist or needs permission (HTTP "
            f"{status}); check the name, and for a restricted repository HF_TOKEN."
        )
    return DownloadError(
        f"The hub cannot list the files of {query.repository} (HTTP {status}); try again later."
    )
