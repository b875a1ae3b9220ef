"""Creates a virtual environment with cllm and some extras, from links to installed packages.

A package that is not a dependency of cllm or of these extras cannot be imported. Nothing is
downloaded.
"""

import sysconfig
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

SOURCE = Path(__file__).parents[1] / "src"


def make_environment(folder: Path, extras: Iterable[str], *, source: Path = SOURCE) -> Path:
    """Create the environment in a new folder; return the path of its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for name in resolve_dependencies("cllm", extras):
        _link(distribution(name), packages)
    (packages / "cllm.pth").write_text(f"{source}\n", encoding="utf-8")
    return folder / "bin" / "python"


def resolve_dependencies(package: str, extras: Iterable[str]) -> set[str]:
    """Return the names of a package and of all its dependencies with these extras."""
    visited: set[tuple[NormalizedName, str]] = set()
    pending = [(canonicalize_name(package), extra) for extra in ("", *extras)]
    while pending:
        requirement = pending.pop()
        if requirement not in visited:
            visited.add(requirement)
            pending += _requirements(*requirement)
    return {name for name, _ in visited}


def _requirements(package: str, extra: str) -> Iterator[tuple[NormalizedName, str]]:
    for line in distribution(package).requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": extra}):
            name = canonicalize_name(requirement.name)
            yield from ((name, name_of_extra) for name_of_extra in ("", *requirement.extras))


def _link(installed: Distribution, packages: Path) -> None:
    """Link the files and folders of a package, without its commands."""
    tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
    for top in tops:
        target = Path(str(installed.locate_file(top)))
        link = packages / top
        if target.exists() and not link.exists():
            link.symlink_to(target)
