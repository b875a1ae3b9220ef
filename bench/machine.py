"""Describes the machine and the versions of a run, without host names and paths."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import cllm

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r"\d+(?:\.\d+)+")
PRINT_VERSIONS = """
import sys
from importlib.metadata import version
print(*map(version, sys.argv[1:]), sep="\\n")
"""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware and the system of a run."""

    cpu: str
    cores: int
    memory_gib: int
    system: str
    python: str


def describe_machine() -> Machine:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    release = VERSION.match(platform.release())
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_gib=round(pages / 2**30),
        system=f"{platform.system()} {release[0] if release else ''}".strip(),
        python=platform.python_version(),
    )


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return model[1] if model else platform.machine()


def cllm_version() -> str:
    """Return the version, with the hash of the source tree and whether the files differ from it.

    Unlike the hash of a commit, that of a tree stays the same after a rebase.
    """
    git = ["git", "-C", str(ROOT)]
    tree = _run([*git, "rev-parse", "--short=10", "HEAD:src"]).strip()
    if not tree:
        return cllm.__version__
    is_changed = _run([*git, "status", "--porcelain", "--", "src", "bench/*.py"])
    return f"{cllm.__version__} (source {tree}{', changed' if is_changed else ''})"


def package_versions(python: Path | str, packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages in the environment of another Python."""
    names = list(packages)
    output = _run([str(python), "-c", PRINT_VERSIONS, *names])
    return dict(zip(names, output.split(), strict=True))


def command_version(command: Sequence[str]) -> str:
    """Return the first version number that a command such as `nginx -v` prints."""
    match = VERSION.search(_run(command))
    return match[0] if match else "unknown"


def _run(command: Sequence[str]) -> str:
    """Return the output of a command, or nothing if it cannot run."""
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return finished.stdout + finished.stderr
