"""A virtual environment with cllm and chosen extras only, made of links to the installed packages.

It is a real one: what is not in the dependencies of cllm or of those extras cannot be imported.
Nothing is downloaded.
"""

import sysconfig
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

SOURCE = Path(__file__).parents[1] / "src"


def make_environment(folder: Path, extras: Iterable[str]) -> Path:
    """Make the environment in a new folder; returns its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for name in resolve_dependencies("cllm", extras):
        _link(distribution(name), packages)
    (packages / "cllm.pth").write_text(f"{SOURCE}\n", encoding="utf-8")
    return folder / "bin" / "python"


def resolve_dependencies(package: str, extras: Iterable[str]) -> set[str]:
    """The names of a package and of all that it needs with these extras."""
    found: set[tuple[NormalizedName, str]] = set()
    waiting = [(canonicalize_name(package), extra) for extra in ("", *extras)]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _requirements(*one)
    return {name for name, _ in found}


def _requirements(package: str, extra: str) -> Iterator[tuple[NormalizedName, str]]:
    for line in distribution(package).requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": extra}):
            name = canonicalize_name(requirement.name)
            yield from ((name, wanted) for wanted in ("", *requirement.extras))


def _link(installed: Distribution, packages: Path) -> None:
    """Link a package's files and folders, without its commands."""
    tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
    for top in tops:
        target = Path(str(installed.locate_file(top)))
        link = packages / top
        if target.exists() and not link.exists():
            link.symlink_to(target)
