"""Runs the programs in `tests/node` with packages that npm installs once into the cache.

npm installs the packages of the lock file, checked by hash, from its configured registry. Without
Node or npm a test is skipped; in CI it fails.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.fake_provider import WAIT

PROGRAMS = Path(__file__).resolve().parent / "node"
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "node"
INSTALL_SECONDS = 180
RETRY_SECONDS = 600
ATTEMPTS = 2


def install_packages() -> Path:
    """Return the folder with `node_modules`; install the packages if it does not exist."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            skip_or_fail(f"{tool} is not installed")
    lock = (PROGRAMS / "package-lock.json").read_bytes()
    assert b'"resolved"' not in lock, "lock with npm's --omit-lockfile-registry-resolved"
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    with (CACHE / "lock").open("w", encoding="utf-8") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        failed = folder.with_suffix(".failed")
        if failed.exists() and time.time() - failed.stat().st_mtime < RETRY_SECONDS:
            skip_or_fail(failed.read_text(encoding="utf-8"))
        if not (folder / "ready").exists():
            _install(folder, failed)
    return folder


def _install(folder: Path, failed: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PROGRAMS / name, folder / name)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    for _ in range(ATTEMPTS):
        result = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, timeout=INSTALL_SECONDS
        )
        if result.returncode == 0:
            break
    else:
        output = (result.stdout + result.stderr).decode()[-300:]
        reason = f"npm could not install the packages ({output})"
        failed.write_text(reason, encoding="utf-8")
        skip_or_fail(reason)
    (folder / "ready").touch()


def skip_or_fail(problem: str) -> NoReturn:
    reason = f"This test runs a Node program, but {problem}. Install Node 20 or newer with npm."
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class NodePrograms:
    """The programs in a separate folder, with the packages that they import."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self._processes: list[subprocess.Popen[str]] = []
        for program in PROGRAMS.glob("*.mjs"):
            shutil.copy(program, folder)
        (folder / "node_modules").symlink_to(install_packages() / "node_modules")

    def __call__(self, program: str, *arguments: str) -> dict[str, Any]:
        """Run a program; return the JSON that it prints. Fails if it fails."""
        process = self.start(program, *arguments)
        out, err = process.communicate(timeout=WAIT)
        assert process.returncode == 0, err
        assert not err, err
        result: dict[str, Any] = json.loads(out)
        return result

    def start(self, program: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            ["node", f"{program}.mjs", *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Kill the processes that a failed test has left."""
        for process in self._processes:
            with process:
                process.kill()

    def _environment(self) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.address,
            "HOME": str(self.folder),
            "OPENAI_BASE_URL": f"{self.address}/v1",
            "PATH": os.environ["PATH"],
        }
