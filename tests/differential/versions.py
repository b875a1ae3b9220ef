"""Installs the versions to compare, each in a separate folder.

A version is a commit, a wheel or a folder with sources. Its package is the first entry on the path
of a virtual environment that uses the packages of the development environment. Missing dependencies
are installed in the version's folder. Nothing is installed elsewhere.
"""

import hashlib
import importlib.metadata
import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = ("server", "bedrock")
"""The extras that the runner uses."""
READY = "ready"
METADATA = "pyproject.toml"


class VersionError(Exception):
    """A version cannot be installed; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """An installed version."""

    label: str
    python: Path
    number: str

    @property
    def command(self) -> tuple[str, ...]:
        return (str(self.python), "-m", "cllm")


def install(source: str, cache: Path, repository: Path) -> Version:
    """Install a wheel, a folder with `src/cllm`, or a commit of the repository."""
    path = Path(source)
    if path.suffix == ".whl":
        if not path.is_file():
            raise VersionError(f"The wheel {path} does not exist.")
        return _install(_hash_files([path]), source, cache, lambda to: _unpack_wheel(path, to))
    if (path / "src/cllm").is_dir():
        sources = sorted((path / "src").rglob("*"))
        name = _hash_files([*(each for each in sources if _is_source(each)), path / METADATA])
        return _install(f"tree-{name}", source, cache, lambda to: _copy_tree(path, to))
    commit = _git(repository, "rev-parse", "--verify", "--quiet", f"{source}^{{commit}}")
    name = commit.decode().strip()
    label = f"{source} ({name[:12]})"
    return _install(name[:12], label, cache, lambda to: _unpack_commit(repository, name, to))


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _hash_files(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _git(repository: Path, *arguments: str) -> bytes:
    result = subprocess.run(
        ["git", "-C", str(repository), *arguments], check=False, capture_output=True
    )
    if result.returncode != 0:
        raise VersionError(
            f"'{arguments[-1]}' is neither a wheel, a folder with src/cllm, nor a commit: "
            f"git {arguments[0]} failed."
        )
    return result.stdout


def _unpack_wheel(wheel: Path, to: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(to / "src")  # noqa: S202 - our own wheel


def _unpack_commit(repository: Path, commit: str, to: Path) -> None:
    data = _git(repository, "archive", "--format=tar", commit, "src", METADATA)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(to, filter="data")


def _copy_tree(path: Path, to: Path) -> None:
    # Including bytecode files, which stay valid because the copies have the same times.
    shutil.copytree(path / "src", to / "src")
    shutil.copy(path / METADATA, to / METADATA)


def _install(name: str, label: str, cache: Path, unpack: Callable[[Path], None]) -> Version:
    folder = cache / name
    if not (folder / READY).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        unpack(folder)
        _make_environment(folder)
        (folder / READY).touch()
    python = folder / "venv/bin/python"
    result = subprocess.run(
        [str(python), "-m", "cllm", "--version"], check=False, capture_output=True, text=True
    )
    if result.returncode != 0:
        raise VersionError(f"Version {label} does not start: {result.stderr.strip()[-500:]}")
    return Version(label=label, python=python, number=result.stdout.split()[-1])


def _make_environment(folder: Path) -> None:
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    shared = sysconfig.get_path("purelib")
    own = folder / "packages"
    own.mkdir()
    requirements = sorted(find_missing(_requirements(folder)))
    if requirements:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--target",
                str(own),
                *requirements,
            ],
            check=True,
        )
    paths = (folder / "src", own, shared)
    (packages / "differential.pth").write_text("".join(f"{path}\n" for path in paths))


def _requirements(folder: Path) -> list[Requirement]:
    """Return the dependencies of the version that the runner uses, from its metadata."""
    if (folder / METADATA).exists():
        project = tomllib.loads((folder / METADATA).read_text(encoding="utf-8"))["project"]
        optional = project.get("optional-dependencies", {})
        texts = [*project["dependencies"], *(text for e in EXTRAS for text in optional.get(e, []))]
        return [Requirement(text) for text in texts]
    (info,) = (folder / "src").glob("cllm-*.dist-info")
    texts = importlib.metadata.PathDistribution(info).requires or []
    requirements = [Requirement(text) for text in texts]
    contexts = [{"extra": extra} for extra in ("", *EXTRAS)]
    return [r for r in requirements if r.marker is None or any(map(r.marker.evaluate, contexts))]


def find_missing(requirements: Iterable[Requirement]) -> Iterator[str]:
    """Yield the requirements that the development environment does not meet."""
    for requirement in requirements:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        if not version or not requirement.specifier.contains(version, prereleases=True):
            yield str(requirement).partition(";")[0]
