"""One version during the run: its home directory, its provider, its server and its command.

Processes do not inherit the environment. The HTTP proxy is a closed port, so that no request leaves
the machine. The folders of both versions have paths of equal length, so that nothing that depends
on the length of a path differs.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.differential.client import Client
from tests.differential.database import Database
from tests.differential.normaliser import Normaliser
from tests.differential.upstream import Upstream
from tests.differential.versions import Version

ADDRESS = re.compile(rb"(?:Serving|Listening|Running)[^{\n]*http://[^ ]*:(\d+)")
START_SECONDS = 60.0
STOP_SECONDS = 20.0
COMMAND_SECONDS = 60.0
SECRETS = {
    "ANTHROPIC_API_KEY": "key-of-anthropic",
    "OPENAI_API_KEY": "key-of-openai",
    "AWS_BEARER_TOKEN_BEDROCK": "bearer-of-bedrock",
    "AWS_EC2_METADATA_DISABLED": "true",
    "PIP_NO_INDEX": "1",
}

Settings = dict[str, Any]
MakeSettings = Callable[[str, str], Settings]
"""Creates settings from the URL of the provider and a URL without a listener."""


class SideError(Exception):
    """A version does not run; the message says why."""


class Side:
    """A version with its folder and its provider."""

    def __init__(self, version: Version, name: str, root: Path, cache: Path) -> None:
        """`cache` is shared by all groups, to avoid computing its content again."""
        self.version = version
        self.name = name
        self.root = root / name
        self.cache = cache / name
        self.upstream = Upstream()
        self.database = Database(self.root / "served.db")
        self._closed = socket.socket()
        self._closed.bind(("127.0.0.1", 0))
        self._server: asyncio.subprocess.Process | None = None
        self._client: Client | None = None
        self._port = 0
        self._log = bytearray()
        self._reading: asyncio.Task[None] | None = None

    @property
    def nobody(self) -> str:
        """A URL without a listener: connections are refused."""
        return f"http://127.0.0.1:{self._closed.getsockname()[1]}"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def empty(self) -> None:
        """Delete the folders and create them again."""
        shutil.rmtree(self.root, ignore_errors=True)
        for folder in (self.home / ".cllm", self.work, self.root / "tmp"):
            folder.mkdir(parents=True)

    def write_settings(self, settings: Settings, name: str = "Cllmfile.yml") -> None:
        text = yaml.safe_dump(settings, allow_unicode=True, sort_keys=False)
        (self.home / ".cllm" / name).write_text(text, encoding="utf-8")

    def environment(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        merged = {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.root / "tmp"),
            "TZ": "UTC",
            "HTTP_PROXY": self.nobody,
            "HTTPS_PROXY": self.nobody,
            "COLUMNS": "100",
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "XDG_RUNTIME_DIR": str(self.root / "tmp"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            **SECRETS,
            **(changes or {}),
        }
        return {name: value for name, value in merged.items() if value is not None}

    def normaliser(self, known: str) -> Normaliser:
        literals = {
            str(self.root): "<root>",
            str(self.cache): "<cache>",
            self.upstream.root: "http://<provider>",
            f"127.0.0.1:{self.upstream.port}": "<provider>",
            self.nobody: "http://<nobody>",
            self.nobody.removeprefix("http://"): "<nobody>",
            str(self.version.python.parents[2]): "<version folder>",
        }
        if self._port:
            literals[f"127.0.0.1:{self._port}"] = "<server>"
        return Normaliser(literals=literals, version=self.version.number, known=known)

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def new_client(self) -> Client:
        """Return a client with a separate connection, for a concurrent request."""
        return Client(self._port)

    async def start_server(self, arguments: tuple[str, ...] = ()) -> None:
        store = f"sqlite:{self.database.path}"
        command = (*self.version.command, "serve", "--port", "0", "--store", store, *arguments)
        self._server = await asyncio.create_subprocess_exec(
            *command,
            env=self.environment(),
            cwd=self.work,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._log.clear()
        started = asyncio.Event()
        self._reading = asyncio.create_task(self._read_log(started))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(started.wait(), START_SECONDS)
        match = ADDRESS.search(self._log)
        if match is None:
            await self.stop_server()
            output = self._log.decode("utf-8", "replace")[-2000:]
            raise SideError(f"The server of {self.version.label} does not start:\n{output}")
        self._port = int(match[1])
        self._client = Client(self._port)

    async def _read_log(self, started: asyncio.Event) -> None:
        assert self._server is not None
        assert self._server.stdout is not None
        while line := await self._server.stdout.readline():
            self._log += line
            if ADDRESS.search(line):
                started.set()
        started.set()

    async def stop_server(self) -> str:
        """Stop the server; return its exit code and its output without JSON log lines."""
        if self._server is None:
            return ""
        if self._client is not None:
            await self._client.close()
            self._client = None
        with contextlib.suppress(ProcessLookupError):
            self._server.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(self._server.wait(), STOP_SECONDS)
        except TimeoutError:
            self._server.kill()
            code = await self._server.wait()
        if self._reading is not None:
            await self._reading
        self._server = None
        lines = self._log.decode("utf-8", "replace").splitlines()
        plain = [line for line in lines if not line.startswith("{")]
        return "\n".join([f"exit {code}", *plain])

    async def run(
        self, arguments: tuple[str, ...], stdin: bytes, environment: Mapping[str, str | None]
    ) -> tuple[int | None, bytes, bytes]:
        """Run the command; return its exit code, standard output and standard error."""
        process = await asyncio.create_subprocess_exec(
            *self.version.command,
            *arguments,
            env=self.environment(environment),
            cwd=self.work,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), COMMAND_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            return None, b"", b"(did not end)"
        return process.returncode, out, err

    async def close(self) -> None:
        await self.stop_server()
        await self.upstream.stop()
        self._closed.close()
        shutil.rmtree(self.root, ignore_errors=True)
