"""A real `cllm serve` process, and a small client that shows all of HTTP.

The server listens on a free port of loopback and prints its address to standard error. Its log is
recorded, so that tests can check it.
"""

import asyncio
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.fake_provider import WAIT
from tests.forking import Forked, fork_server, is_forkable, modules_for, open_joined_output
from tests.postgres import Server as PostgresServer
from tests.sqlite_template import write_database
from tests.torture import choose_size

ADDRESS = re.compile(r"Serving at (https?://\S+)")
DATABASE = "served.db"
COMPLETIONS = "/v1/chat/completions"


@dataclass(frozen=True)
class Response:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def conversation(self) -> str:
        return self.headers["x-conversation-id"]

    @property
    def text(self) -> str:
        content: str = self.json["choices"][0]["message"]["content"]
        return content

    @property
    def notices(self) -> list[dict[str, str]]:
        notices: list[dict[str, str]] = json.loads(self.headers.get("x-cllm-notice", "[]"))
        return notices

    @property
    def events(self) -> list[Any]:
        """The data of server-sent events, decoded if it is JSON."""
        return [event for event in map(_data, self.body.split(b"\n\n")) if event is not None]

    @property
    def streamed_text(self) -> str:
        deltas = (
            choice["delta"].get("content") or ""
            for event in self.events
            if isinstance(event, dict)
            for choice in event.get("choices", ())
        )
        return "".join(deltas)


def _data(event: bytes) -> Any:
    lines = [line.removeprefix(b"data: ") for line in event.split(b"\n") if line[:6] == b"data: "]
    if not lines:
        return None
    return "[DONE]" if lines == [b"[DONE]"] else json.loads(b"\n".join(lines))


@dataclass
class StreamedResponse:
    """A response that is being read."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    status: int = field(init=False)
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.status = self.response.status
        self.headers = _headers(self.response)

    def event(self) -> bytes:
        """Read the next event, or the rest."""
        lines = []
        while (line := self.response.readline()) not in (b"", b"\n"):
            lines.append(line)
        return b"".join(lines)

    def rest(self) -> bytes:
        try:
            return self.response.read()
        finally:
            self.leave()

    def leave(self) -> None:
        """Disconnect before the end."""
        self.response.close()
        self.connection.close()


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


class Client:
    """Sends each request over a separate connection."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.port = parts.hostname or "", parts.port or 0

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = WAIT,
    ) -> StreamedResponse:
        """Send a request and return after the headers of the response."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers=dict(headers or {}))
            return StreamedResponse(connection, connection.getresponse())
        except OSError:
            connection.close()
            raise

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = WAIT,
    ) -> Response:
        opened = self.open(method, path, body, headers, timeout=timeout)
        return Response(opened.status, opened.headers, opened.rest())

    def complete(
        self,
        *messages: tuple[str, Any],
        conversation: str | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Response:
        """Create a chat completion. `conversation` is the header; None leaves it out."""
        own_headers = {} if conversation is None else {"X-Conversation-ID": conversation}
        return self(
            "POST",
            COMPLETIONS,
            completion_body(*messages, **fields),
            {**own_headers, **(headers or {})},
        )


def completion_body(*pairs: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the body of a chat completion request."""
    messages = [{"role": role, "content": content} for role, content in pairs]
    return {"model": "openai/gpt-test", "messages": messages, **fields}


STORES = choose_size(("sqlite", "postgresql"), ("memory", "sqlite", "postgresql"))
"""The stores of servers that a module shares."""
OWN_STORES = choose_size(("sqlite",), ("memory", "sqlite", "postgresql"))
"""The stores of servers that are started for a single test."""


@contextmanager
def open_empty_store(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of an empty store."""
    if kind == "memory":
        yield "memory:"
        return
    if kind == "json":
        yield f"json:{folder / 'files'}"
        return
    if kind == "sqlite":
        write_database(folder / DATABASE)
        yield f"sqlite:{folder / DATABASE}"
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    template = asyncio.run(postgres.head_template())
    name = asyncio.run(postgres.create_database(template=template))
    yield postgres.url(name)
    asyncio.run(postgres.drop_database(name))


def read_stored_bytes(url: str, folder: Path) -> bytes:
    """Return the bytes of the database files, or a dump of every table."""
    if not url.startswith("postgresql:"):
        return b"".join(path.read_bytes() for path in folder.glob(f"{DATABASE}*"))
    return asyncio.run(dump_tables(url))


async def dump_tables(url: str) -> bytes:
    """Return the text of every row of a PostgreSQL database."""
    connection = await asyncpg.connect(url)
    try:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        tables = [row["tablename"] for row in await connection.fetch(query)]
        rows = [await connection.fetch(f'SELECT t::text FROM "{table}" t') for table in tables]  # noqa: S608
        return "\n".join(row["t"] for table in rows for row in table).encode()
    finally:
        await connection.close()


async def expire_leases(url: str) -> None:
    """Let every lease of a PostgreSQL database expire, as after a minute without its server."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("UPDATE leases SET expires_at = now() - interval '1 second'")
    finally:
        await connection.close()


def _start(
    arguments: list[str], environment: Mapping[str, str], directory: Path
) -> subprocess.Popen[bytes] | Forked:
    if is_forkable(arguments, environment):
        server = fork_server(modules_for(arguments))
        return server.start(arguments, environment, directory, streams=open_joined_output)
    return subprocess.Popen(
        [sys.executable, "-m", "cllm", *arguments],
        env=dict(environment),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


class Server(Client):
    """A running `cllm serve`."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        directory: Path,
        store: str | None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        command = [
            "serve",
            "--port",
            "0",
            *(() if store is None else ("--store", store)),
            *arguments,
        ]
        self.process = _start(command, environment, directory)
        self._log: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self._wait_for_address()
        super().__init__(self.address)

    @property
    def log(self) -> str:
        with self._changed:
            return "".join(self._log)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._log.append(line.decode("utf-8", "replace"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _wait_for_address(self) -> str:
        with self._changed:
            self._changed.wait_for(
                lambda: ADDRESS.search("".join(self._log)) or self.process.poll() is not None, WAIT
            )
            match = ADDRESS.search("".join(self._log))
        assert match is not None, "".join(self._log)
        return match[1]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = WAIT) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(WAIT)
        self._reader.join(WAIT)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def list_messages(server: Client, conversation: str) -> Iterator[tuple[str, Any]]:
    """Yield role and content of each message of a conversation."""
    detail = server("GET", f"/v1/conversations/{conversation}").json
    for message in detail["messages"]:
        yield message["role"], message["content"]
