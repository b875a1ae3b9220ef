"""The server of the fake provider, on an event loop in a thread."""

import asyncio
import contextlib
import json
import socket
import threading
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import Any, ClassVar, Self

from tests.fake_cache import PromptCache
from tests.fake_provider.model import (
    WAIT,
    Answer,
    Choose,
    Cut,
    Gate,
    Head,
    Hold,
    Refuse,
    Reply,
    Request,
    Send,
    Silence,
    Step,
)
from tests.fake_provider.openai import OpenAIChat
from tests.fake_provider.protocols import find_protocol
from tests.fake_provider.steps import response_steps

ACCEPT_LOOP_STEPS = 10


class FakeProvider:
    """The server. Use it as a context manager."""

    running: ClassVar["weakref.WeakSet[FakeProvider]"] = weakref.WeakSet()

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.errors: list[BaseException] = []
        self._answers: deque[Answer | tuple[int, str, str | None, dict[str, str]]] = deque()
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fake provider", daemon=True)
        self._gates: list[Gate] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self.cache: PromptCache | None = None
        self.refuse: Refuse | None = None
        self.choose: Choose | None = None
        self.model_list: tuple[Step, ...] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(WAIT):
            raise TimeoutError("the fake provider did not start")
        self.running.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.running.discard(self)
        for gate in self._gates:
            gate.open()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT)
        if self.errors:
            raise self.errors[0]

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @property
    def root(self) -> str:
        """The base URL without a path, for protocols whose paths start there."""
        return f"http://127.0.0.1:{self.port}"

    def gate(self) -> Gate:
        """Create a gate that opens when the provider stops, or before."""
        gate = Gate()
        self._gates.append(gate)
        return gate

    def queue_reply(self, *pieces: str, **options: Any) -> Reply:
        """Queue a reply of these pieces. The options are the fields of `Reply`."""
        reply = Reply(pieces=pieces, **options)
        self._answers.append(reply)
        return reply

    def queue_held_reply(self, *pieces: str, at: int = 1, **options: Any) -> Gate:
        """Queue a reply that waits before piece number `at` until the gate is opened."""
        gate = self.gate()
        self.queue_reply(*pieces, hold={at: gate}, **options)
        return gate

    def queue_error(
        self, status: int, message: str = "No.", *, code: str | None = None, **headers: str
    ) -> None:
        """Queue an error response in the format of the request's protocol."""
        self._answers.append((status, message, code, headers))

    def queue_steps(self, *steps: Step) -> None:
        """Queue a response as steps, for data that no protocol would send."""
        self._answers.append(steps)

    def discard_answers(self) -> None:
        """Remove the answers that no request has received."""
        self._answers.clear()

    def serve_models(self, *entries: str | dict[str, Any]) -> None:
        """Respond to GET …/models with these names, or with entries that have other fields."""
        data = [entry if isinstance(entry, dict) else {"id": entry} for entry in entries]
        self.model_list = response_steps(200, json.dumps({"data": data}).encode())

    def wait_for(self, count: int, timeout: float = WAIT) -> Request:
        """Wait until this many requests have arrived; return the last of these."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} requests arrived instead of {count}")
            return self.requests[count - 1]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        self._loop.run_until_complete(self._stop())
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=256)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        # A connection that was just accepted may have no task, or one that has not started.
        for _ in range(ACCEPT_LOOP_STEPS):
            await asyncio.sleep(0)
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read_request(reader)
            if request is not None:
                await self._respond(request, reader, writer)
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001 - raised in the test by __exit__
            self.errors.append(error)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _respond(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        steps = self._steps(request)
        response = asyncio.ensure_future(_execute(steps, writer))
        disconnect = asyncio.ensure_future(_wait_disconnect(reader))
        try:
            await asyncio.wait({response, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not response.done() or isinstance(response.exception(), ConnectionError):
                request.disconnected.set()
            else:
                response.result()
                request.answered.set()
        finally:
            for task in (response, disconnect):
                task.cancel()
            await asyncio.gather(response, disconnect, return_exceptions=True)

    def _steps(self, request: Request) -> tuple[Step, ...]:
        protocol = find_protocol(request.path)
        with self._arrived:
            self.requests.append(request)
            number = len(self.requests)
            reason = self.refuse(request) if protocol and self.refuse else None
            answer: Answer | tuple[int, str, str | None, dict[str, str]] | None = None
            if protocol and not reason:
                answer = self.choose(request) if self.choose else None
                if answer is None and self._answers:
                    answer = self._answers.popleft()
            self._arrived.notify_all()
        if self.model_list is not None and request.path.partition("?")[0].endswith("/models"):
            return self.model_list
        if protocol is None or request.method != "POST" or not isinstance(request.json, dict):
            return response_steps(404, OpenAIChat().error(404, f"No route {request.path}", None))
        if reason is not None:
            return response_steps(400, protocol.error(400, reason, "invalid_request_error"))
        if answer is None:
            answer = protocol.echo(request)
        if isinstance(answer, Reply):
            if self.cache is not None:
                tokens = self.cache.count(request.json)
                cached = (tokens.read, tokens.written)
                answer = replace(answer, usage=(tokens.sent, len(answer.text)), cached=cached)
            return protocol.steps(answer, request, number)
        if isinstance(answer[0], int):
            status, message, code, headers = answer
            all_headers = protocol.error_headers(status, code) | headers
            return response_steps(status, protocol.error(status, message, code), **all_headers)
        return answer


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip()
        for name, separator, value in (line.partition(":") for line in lines)
        if separator
    }
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        try:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None  # the client was stopped between head and body
    request = Request(
        method=method, path=path, headers=headers, body=body, received_at=time.monotonic()
    )
    with contextlib.suppress(ValueError):
        request.json = json.loads(body)
    return request


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


async def _wait_disconnect(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            pass


async def _execute(steps: tuple[Step, ...], writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    chunked = False
    for step in steps:
        match step:
            case Head():
                chunked = step.chunked
                writer.write(_encode_head(step))
            case Send(data):
                writer.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
            case Hold(gate):
                await gate.wait_open()
            case Silence():
                await writer.drain()
                await asyncio.Event().wait()
            case Cut():
                await writer.drain()
                return
        await writer.drain()
        await asyncio.sleep(0)
    if chunked:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _encode_head(head: Head) -> bytes:
    headers = dict(head.headers) | {"Connection": "close"}
    if head.chunked:
        headers["Transfer-Encoding"] = "chunked"
    lines = [f"HTTP/1.1 {head.status} Status"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def closed_port() -> int:
    """Return a port on loopback without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
