"""Runs the programs in `tests/node` with packages that npm installs once, into the cache.

The packages are those of the lock file, by hash, from whatever registry npm is configured for.
Without Node or npm a test skips; in CI it fails, so that nobody takes the silence for a success.
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
FORGET_SECONDS = 600
ATTEMPTS = 2


def install_packages() -> Path:
    """The folder with `node_modules` in it, installed now if no earlier run has."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            skip_or_fail(f"{tool} is not installed")
    lock = (PROGRAMS / "package-lock.json").read_bytes()
    assert b'"resolved"' not in lock, "lock with npm's --omit-lockfile-registry-resolved"
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    with (CACHE / "lock").open("w", encoding="utf-8") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        failed = folder.with_suffix(".failed")
        if failed.exists() and time.time() - failed.stat().st_mtime < FORGET_SECONDS:
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
        done = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, timeout=INSTALL_SECONDS
        )
        if done.returncode == 0:
            break
    else:
        what = f"npm could not install its packages ({(done.stdout + done.stderr).decode()[-300:]})"
        failed.write_text(what, encoding="utf-8")
        skip_or_fail(what)
    (folder / "ready").touch()


def skip_or_fail(what: str) -> NoReturn:
    reason = f"This test runs a program of Node's, and {what}; install Node 20 or newer with npm."
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class NodePrograms:
    """The programs in a folder of their own, beside the packages that they import."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self._started: list[subprocess.Popen[str]] = []
        for program in PROGRAMS.glob("*.mjs"):
            shutil.copy(program, folder)
        (folder / "node_modules").symlink_to(install_packages() / "node_modules")

    def __call__(self, program: str, *arguments: str) -> dict[str, Any]:
        """What the program tells, once it has ended well."""
        running = self.start(program, *arguments)
        out, err = running.communicate(timeout=WAIT)
        assert running.returncode == 0, err
        assert not err, err
        told: dict[str, Any] = json.loads(out)
        return told

    def start(self, program: str, *arguments: str) -> "subprocess.Popen[str]":
        started = subprocess.Popen(
            ["node", f"{program}.mjs", *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self._started.append(started)
        return started

    def close(self) -> None:
        """End what a test that failed has left running."""
        for started in self._started:
            with started:
                started.kill()

    def _environment(self) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.address,
            "HOME": str(self.folder),
            "OPENAI_BASE_URL": f"{self.address}/v1",
            "PATH": os.environ["PATH"],
        }
