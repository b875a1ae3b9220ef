"""The installed clients, and processes of them that never outlive a test."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

import pytest
from tests.fake_provider import WAIT
from tests.waits import wait_until

ROOT = Path(__file__).resolve().parents[2]
CLAUDE = ROOT / ".cache/clients/node_modules/.bin/claude"
CODEX = ROOT / ".cache/clients/node_modules/.bin/codex"
OPENCODE = ROOT / ".cache/clients/node_modules/.bin/opencode"
AIDER = ROOT / ".venv-clients/bin/aider"
LLM = Path(sys.executable).with_name("llm")
COLUMNS, LINES = 120, 50


def require_program(path: Path | str) -> str:
    """Return the path of a program. Fails if it is not installed."""
    program = shutil.which(path)
    if program is None:
        pytest.fail(f"{path} is not installed. Run `make clients`.", pytrace=False)
    return program


class Program:
    """A client in a session of its own, killed with all its children when the test ends."""

    def __init__(self, command: list[str], environment: Mapping[str, str], directory: Path) -> None:
        self._process = subprocess.Popen(
            [require_program(command[0]), *command[1:]],
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._output: dict[str, bytes] = {}
        streams = {"out": self._process.stdout, "err": self._process.stderr}
        self._readers = [
            threading.Thread(target=self._read, args=item, daemon=True) for item in streams.items()
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: IO[bytes]) -> None:
        self._output[name] = b""
        while data := os.read(stream.fileno(), 65536):
            self._output[name] += data

    @property
    def out(self) -> str:
        return self._output.get("out", b"").decode()

    @property
    def err(self) -> str:
        return self._output.get("err", b"").decode()

    def wait_for_output(self, text: str) -> None:
        assert wait_until(lambda: text in self.out), f"{text!r} did not appear: {self.out}"

    def finish(self) -> int:
        """Wait for the end; return the exit code."""
        code = self._process.wait(WAIT)
        for reader in self._readers:
            reader.join(WAIT)
        return code

    def interrupt(self) -> None:
        """Send SIGINT to the whole group, as a terminal does for Ctrl-C."""
        os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        kill_group(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for reader in self._readers:
            reader.join(WAIT)
        with self._process:
            pass


def kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


class Terminal:
    """A client in a terminal of tmux, with a tmux server of its own."""

    def __init__(self, command: list[str], environment: Mapping[str, str], directory: Path) -> None:
        self._tmux = require_program("tmux")
        self._folder = Path(tempfile.mkdtemp(prefix="cllm-"))  # a socket's path must be short
        self._environment = dict(environment)
        size = ("-x", str(COLUMNS), "-y", str(LINES))
        program = [require_program(command[0]), *command[1:]]
        self.tmux("-f", os.devnull, "new-session", "-d", *size, "-c", str(directory), *program)
        self._groups = [
            int(self.tmux("display-message", "-p", name)) for name in ("#{pid}", "#{pane_pid}")
        ]

    def tmux(self, *arguments: str) -> str:
        result = subprocess.run(
            [self._tmux, "-S", str(self._folder / "socket"), *arguments],
            check=True,
            capture_output=True,
            env=self._environment,
            timeout=WAIT,
        )
        return result.stdout.decode()

    @property
    def screen(self) -> str:
        """The lines of the screen, with spaces for non-breaking spaces."""
        return self.tmux("capture-pane", "-p").replace("\xa0", " ")

    def type(self, *keys: str) -> None:
        """Type texts, and keys by their tmux names (`Enter`, `Escape`, `C-c`)."""
        for key in keys:
            self.tmux("send-keys", key)

    def wait_for(self, *texts: str, timeout: float = WAIT) -> str:
        """Wait until the screen contains all texts; return the screen."""
        is_shown = wait_until(lambda: all(text in self.screen for text in texts), timeout)
        assert is_shown, f"{texts} did not appear:\n{self.screen}"
        return self.screen

    def wait_for_prompt(self, prompt: str) -> None:
        """Wait until the screen ends with this prompt."""
        is_shown = wait_until(lambda: self.screen.rstrip().endswith(prompt))
        assert is_shown, f"{prompt!r} did not appear:\n{self.screen}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for group in reversed(self._groups):
            kill_group(group)
        shutil.rmtree(self._folder, ignore_errors=True)
