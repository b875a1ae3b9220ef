"""Starts `cllm` from a process that has imported it, for tests that start it hundreds of times.

A command is still a process of its own, with its own arguments, environment, folder and streams; it
only does not import again what all of them import, which is nine tenths of what a short one costs.
Tests of how the interpreter starts do not use this, and a torture run forks nothing.
"""

import atexit
import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from tests.fork_server import LENGTH
from tests.torture import TORTURE

from cllm.server.http.routes import PAGE_ROUTES, ROUTES

PROGRAM = Path(__file__).with_name("fork_server.py")
MOST_BYTES = 100_000
"""Longer arguments may exceed the limit of the system."""
OF_THE_START = ("PYTHON", "LC_", "LD_")
"""Environment variables that only the start of the interpreter reads."""
LANGUAGE = "C.UTF-8"
STOPPING_SECONDS = 10.0
STARTING_SECONDS = 60.0
"""The timeout of a fork, long enough for a busy machine."""

# Modules to import before the first fork. Each unneeded one makes every fork slower.
COMMAND_MODULES = (
    "cllm.cli.ask",
    "cllm.cli.turn",
    "cllm.cli.conversations",
    "cllm.cli.help",
    "cllm.cli.main",
    "cllm.engine.turn",
    "cllm.provider_factory",
    "cllm.prices.book",
    "cllm.providers.http.stdlib_transport",
    "cllm.providers.openai",
    "cllm.settings.saved_keys",
    "cllm.stores.combined",
    "cllm.stores.json.store",
    "cllm.stores.progress",
    "encodings.idna",
    "yaml",
)
CHAT_MODULES = (
    *COMMAND_MODULES,
    "cllm.providers.http.aiohttp_transport",
    "cllm.repl.chat",
    "cllm.repl.input",
    "cllm.repl.loop",
    "cllm.repl.render",
)
DATABASE_MODULES = (
    *COMMAND_MODULES,
    "cllm.cli.db",
    "cllm.stores.sql.database",
    "cllm.stores.sql.migrate",
    "cllm.stores.sqlite.store",
    "sqlalchemy.dialects.sqlite",
)
POSTGRES_MODULES = (*DATABASE_MODULES, "cllm.stores.postgres.store")
LIBRARY_MODULES = (
    *DATABASE_MODULES,
    "cllm.library.manager",
    "cllm.providers.http.aiohttp_transport",
)
LITELLM_MODULES = (*COMMAND_MODULES, "cllm.providers.litellm:load_library")
SERVER_MODULES = (
    *POSTGRES_MODULES,
    *sorted(
        {f"cllm.server.{route.endpoint.partition(':')[0]}" for route in (*ROUTES, *PAGE_ROUTES)}
    ),
    "cllm.cli.serve",
    "cllm.providers.http.aiohttp_transport",
    "cllm.providers.ollama",
    "cllm.server.http.app",
    "cllm.server.http.uvicorn_server",
    "cllm.server.openapi.description",
    "http.server",
    "opentelemetry.trace",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "wsgiref.simple_server",
)

Ours = Sequence[int | None]
Streams = Callable[[], tuple[Ours, list[int]]]
"""Opens the standard streams of a command: our ends, or None, and the ends of the command."""


def is_forkable(arguments: Sequence[str | bytes], environment: Mapping[str, str]) -> bool:
    """Whether a forked command behaves like one that starts a new interpreter."""
    if TORTURE or environment.get("LANG") != LANGUAGE:
        return False
    if any(name.startswith(OF_THE_START) for name in environment):
        return False
    return sum(len(os.fsencode(word)) for word in arguments) < MOST_BYTES


def modules_for(arguments: Sequence[str | bytes]) -> Sequence[str]:
    """The modules to import before the fork."""
    words = [os.fsdecode(word) for word in arguments]
    if words[:1] == ["serve"]:
        return SERVER_MODULES
    if words[:1] == ["chat"]:
        return CHAT_MODULES
    if any(word.startswith("postgresql:") for word in words):
        return POSTGRES_MODULES
    if words[:1] == ["db"] or any(word.startswith("sqlite:") for word in words):
        return DATABASE_MODULES
    return COMMAND_MODULES


class ForkServer:
    """A process that has imported `modules` and forks into commands.

    `python` and `options` default to the interpreter of the tests.
    """

    def __init__(
        self,
        modules: Sequence[str] = COMMAND_MODULES,
        *,
        python: Path | None = None,
        options: str = "",
    ) -> None:
        address = f"\0cllm-tests-{os.getpid()}-{id(self)}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(64)
            descriptor = str(listener.fileno())
            self._process = subprocess.Popen(
                [python or sys.executable, *options.split(), str(PROGRAM), descriptor, *modules],
                stdin=subprocess.PIPE,
                env={"LANG": LANGUAGE, "PATH": os.environ["PATH"], "HOME": "/"} | _coverage(),
                pass_fds=[listener.fileno()],
            )
        self._address = address

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(
        self,
        arguments: Sequence[str | bytes],
        environment: Mapping[str, str],
        directory: Path,
        memory: int | None = None,
        *,
        streams: Streams | None = None,
        source: str | None = None,
    ) -> "Forked":
        """Start `cllm`, or the program with this source.

        `memory` limits its address space, in bytes. Its streams are pipes by default.
        """
        request = {
            "arguments": [os.fsdecode(word) for word in arguments],
            "environment": dict(environment),
            "directory": str(directory),
            "memory": memory,
            "terminal": streams is open_terminal,
            "source": source,
        }
        data = json.dumps(request).encode()
        ours, theirs = (streams or open_pipes)()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        socket.send_fds(connection, [len(data).to_bytes(LENGTH, "big")], theirs)
        connection.sendall(data)
        for descriptor in theirs:
            os.close(descriptor)
        return Forked(connection, ours)


def _coverage() -> dict[str, str]:
    """Environment variables that measure coverage in a process, in `make coverage`."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}


def open_pipes() -> tuple[Ours, list[int]]:
    """Three pipes."""
    pipes = [os.pipe() for _ in range(3)]
    return [pipes[0][1], pipes[1][0], pipes[2][0]], [pipes[0][0], pipes[1][1], pipes[2][1]]


def open_outputs() -> tuple[Ours, list[int]]:
    """Pipes for standard output and standard error; the input is empty."""
    out, err = os.pipe(), os.pipe()
    return [None, out[0], err[0]], [os.open(os.devnull, os.O_RDONLY), out[1], err[1]]


def open_joined_output() -> tuple[Ours, list[int]]:
    """One pipe for standard output and standard error; the input is empty."""
    ours, theirs = os.pipe()
    return [None, ours, None], [os.open(os.devnull, os.O_RDONLY), theirs, os.dup(theirs)]


def open_terminal() -> tuple[Ours, list[int]]:
    """One terminal for all three streams."""
    master, slave = pty.openpty()
    return [os.dup(master), master, None], [slave, os.dup(slave), os.dup(slave)]


class Forked:
    """A forked command, with the part of `subprocess.Popen` that the tests use."""

    def __init__(self, connection: socket.socket, streams: Ours) -> None:
        self._connection = connection
        connection.settimeout(STARTING_SECONDS)
        self.pid = _receive_number(connection)
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = map(_file, streams, ("wb", "rb", "rb"))

    def communicate(self, stdin: bytes, timeout: float) -> subprocess.CompletedProcess[bytes]:
        """Return the exit code and all output; kill the command after the timeout.

        As `subprocess` does, also wait for the processes that inherited its streams.
        """
        deadline = time.monotonic() + timeout
        written: dict[BinaryIO | None, bytes] = {None: b""}
        threads = [
            threading.Thread(target=_drain, args=(stream, written), daemon=True)
            for stream in (self.stdout, self.stderr)
            if stream is not None
        ]
        if self.stdin is not None:
            threads.append(threading.Thread(target=_feed, args=(self.stdin, stdin), daemon=True))
        for thread in threads:
            thread.start()
        try:
            code = self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self._connection.close()
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        if any(thread.is_alive() for thread in threads):
            raise subprocess.TimeoutExpired("cllm", timeout)
        return subprocess.CompletedProcess(
            ("cllm",), code, written[self.stdout], written[self.stderr]
        )

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait(STOPPING_SECONDS)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = _receive_number(self._connection)
            except TimeoutError:
                raise subprocess.TimeoutExpired("cllm", timeout or 0) from None
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _file(descriptor: int | None, mode: str) -> BinaryIO | None:
    return None if descriptor is None else cast("BinaryIO", os.fdopen(descriptor, mode))


def _receive_number(connection: socket.socket) -> int:
    """Receive a number; raises ConnectionError at the end of the connection."""
    data = b""
    while len(data) < LENGTH:
        piece = connection.recv(LENGTH - len(data))
        if not piece:
            raise ConnectionError(
                "The process that supervises the forked command has ended; see its output."
            )
        data += piece
    return int.from_bytes(data, "big", signed=True)


def _feed(stream: BinaryIO, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), stream:
        stream.write(data)


def _drain(stream: BinaryIO, written: dict[BinaryIO | None, bytes]) -> None:
    data = bytearray()
    with stream, contextlib.suppress(OSError):  # the other end of a terminal is closed
        while piece := os.read(stream.fileno(), 65536):
            data += piece
    written[stream] = bytes(data)


@cache
def fork_server(modules: Sequence[str] = COMMAND_MODULES, options: str = "") -> ForkServer:
    """The fork server of this process for these modules."""
    server = ForkServer(modules, options=options)
    atexit.register(server.close)
    return server
