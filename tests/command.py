"""Runs the real command in a separate process and collects its output.

Its environment is written out in `tests/home.py` and not inherited. It is forked from a process
that has imported cllm where that makes no difference (`tests/forking.py`).
"""

import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fake_provider import WAIT
from tests.forking import (
    Forked,
    fork_server,
    is_forkable,
    modules_for,
    open_outputs,
    open_terminal,
)
from tests.home import SECRET, Home
from tests.torture import TORTURE

SHELL_SYNTAX = re.compile(r"[|<>;&$*]")
COMMAND = (sys.executable, "-m", "cllm")
START_IN_FULL = (sys.executable, "-m", "cllm.__main__")
"""The same command, never forked."""

TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

LIMIT_FILE_SIZE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""

LIMIT_MEMORY = LIMIT_FILE_SIZE.replace("FSIZE", "AS")


@dataclass(frozen=True)
class Result:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]

    def succeeded(self) -> "Result":
        assert self.code == 0, self.report()
        return self

    def failed_with_one_sentence(self, *words: str, prefix: str = "Error: ", code: int = 1) -> str:
        """Assert the exit code and one line on stderr with these words; return the line."""
        assert self.code == code, self.report()
        assert "Traceback" not in self.err, self.report()
        assert len(self.warnings) == 1, self.report()
        line = self.warnings[0]
        assert line.startswith(prefix), self.report()
        assert self.err.endswith("\n"), self.report()
        for word in words:
            assert word.lower() in line.lower(), self.report()
        assert SECRET not in self.out + self.err, self.report()
        return line

    def report(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Running:
    """A started command. Its output is collected while it runs, so that tests can wait for it."""

    def __init__(
        self, process: subprocess.Popen[bytes] | Forked, terminal: int | None = None
    ) -> None:
        self.process = process
        self._terminal = terminal
        self._changed = threading.Condition()
        self._collected = {"out": b"", "err": b""}
        self._descriptors: dict[str, int] = {}
        if terminal is not None:
            self._descriptors["out"] = terminal
        else:
            assert process.stdout is not None
            assert process.stderr is not None
            self._descriptors["out"] = process.stdout.fileno()
            self._descriptors["err"] = process.stderr.fileno()
        self._threads = [
            threading.Thread(target=self._collect, args=(name, descriptor), daemon=True)
            for name, descriptor in self._descriptors.items()
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, name: str, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, 65536)
            except OSError:  # the other end of a terminal is closed
                data = b""
            if not data:
                return
            with self._changed:
                self._collected[name] += data
                self._changed.notify_all()

    @property
    def out(self) -> str:
        with self._changed:
            return self._collected["out"].decode("utf-8", "replace")

    @property
    def err(self) -> str:
        with self._changed:
            return self._collected["err"].decode("utf-8", "replace")

    def wait_for_output(self, text: str, *, stream: str = "out", timeout: float = WAIT) -> None:
        wanted = text.encode()
        with self._changed:
            seen = self._changed.wait_for(lambda: wanted in self._collected[stream], timeout)
            assert seen, f"{text!r} was not printed: {self._collected}"

    def type(self, data: bytes) -> None:
        """Type at the terminal."""
        assert self._terminal is not None
        os.write(self._terminal, data)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, timeout: float = WAIT) -> Result:
        self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        assert self.process.returncode is not None
        return Result(self.process.returncode, self.out, self.err)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT)
        for thread in self._threads:
            thread.join(WAIT)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None


class Cllm:
    """Runs the command. Standard input is empty by default."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.command: tuple[str, ...] = COMMAND
        self.modules: Sequence[str] | None = None
        """Modules to import before the fork; None: those that the command needs."""
        self._started: list[Running] = []

    def __call__(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        wrapper: tuple[str, ...] = (),
        memory: int | None = None,
        timeout: float = WAIT,
    ) -> Result:
        environment, directory = self.environment(env), cwd or self.home.work
        if not wrapper and self._is_forkable(arguments, environment):
            server = fork_server(self.modules or modules_for(arguments))
            forked = server.start(arguments, environment, directory, memory)
            done = forked.communicate(stdin, timeout)
        else:
            if memory is not None:
                wrapper = (*wrapper, sys.executable, "-c", LIMIT_MEMORY, str(memory))
            done = subprocess.run(
                [*wrapper, *self.command, *arguments],
                check=False,
                input=stdin,
                capture_output=True,
                env=environment,
                cwd=directory,
                timeout=timeout,
            )
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        return Result(done.returncode, out, err)

    def run_line(self, line: str, **variables: str) -> Result:
        """Run a line of the documentation; in a shell only if it needs one."""
        if not SHELL_SYNTAX.search(line):
            return self(*shlex.split(line)[1:], env=variables)
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.home.work,
            env=self.environment({"PATH": path, **variables}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def on_terminal(
        self, *arguments: str, typed: bytes = b"", env: Mapping[str, str | None] | None = None
    ) -> Result:
        """Run to the end on a terminal with this input."""
        environment = self.environment({"TERM": "xterm-256color"} | dict(env or {}))
        assert is_forkable(arguments, environment) or TORTURE
        forked = fork_server(modules_for(arguments)).start(
            arguments, environment, self.home.work, streams=open_terminal
        )
        done = forked.communicate(typed, WAIT)
        return Result(done.returncode, done.stdout.decode("utf-8", "replace"), "")

    def with_file_size_limit(self, limit: int, *arguments: str) -> Result:
        """Run with a maximum file size, as on a full disk."""
        # Python 3.11 would cut the bytecode that it writes to that size, for later runs too.
        return self(
            *arguments,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
            wrapper=(sys.executable, "-c", LIMIT_FILE_SIZE, str(limit)),
        )

    def start(
        self,
        *arguments: str,
        terminal: bool = False,
        env: Mapping[str, str | None] | None = None,
    ) -> Running:
        """Start the command, optionally on a separate terminal."""
        environment = self.environment({"TERM": "xterm-256color"} | dict(env or {}))
        if self._is_forkable(arguments, environment):
            running = self._fork(arguments, environment, terminal=terminal)
        else:
            running = self._start_in_full(arguments, environment, terminal=terminal)
        self._started.append(running)
        return running

    def _is_forkable(
        self, arguments: Sequence[str | bytes], environment: Mapping[str, str]
    ) -> bool:
        return self.command == COMMAND and is_forkable(arguments, environment)

    def _fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, terminal: bool
    ) -> Running:
        streams = open_terminal if terminal else open_outputs
        server = fork_server(self.modules or modules_for(arguments))
        forked = server.start(arguments, environment, self.home.work, streams=streams)
        if not terminal:
            return Running(forked)
        assert forked.stdout is not None
        return Running(forked, os.dup(forked.stdout.fileno()))

    def _start_in_full(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, terminal: bool
    ) -> Running:
        wrapper: tuple[str, ...] = ()
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        master = slave = None
        if terminal:
            master, slave = pty.openpty()
            wrapper = (sys.executable, "-c", TAKE_THE_TERMINAL)
            streams = dict.fromkeys(streams, slave)
        process = subprocess.Popen(
            [*wrapper, *self.command, *arguments],
            env=environment,
            cwd=self.home.work,
            start_new_session=terminal,
            **streams,
        )
        if slave is not None:
            os.close(slave)
        return Running(process, master)

    def environment(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        merged = self.home.environment | dict(changes or {})
        return {name: value for name, value in merged.items() if value is not None}

    def close(self) -> None:
        for running in self._started:
            running.close()
