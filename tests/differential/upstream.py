"""A provider on loopback that records the bytes of its requests and returns scripted responses.

It runs on the event loop of its worker, keeps connections open between requests, and has all
protocols of `tests/fake_provider`, OpenAI's Responses API and embeddings. Each version has one;
a case sets its script. Without a scripted response it repeats the newest text.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.differential.model import Answer, Json, Refusal
from tests.fake_provider import (
    PROTOCOLS,
    Cut,
    Head,
    Hold,
    OpenAIChat,
    Reply,
    Request,
    Send,
    Silence,
    Step,
    WireProtocol,
    find_protocol,
    response_steps,
)

MAX_HEAD_BYTES = 64 * 1024 * 1024
SETTLE_SECONDS = 5.0
EMBEDDINGS = "/v1/embeddings"
RESPONSES = "/v1/responses"


class OpenAIResponses(OpenAIChat):
    """OpenAI's Responses API: the items are reasoning, calls and text of a reply."""

    def echo(self, request: Request) -> Reply:
        texts = [_read_text(item) for item in _input_items(request) if item.get("role") == "user"]
        return Reply(pieces=("echo: ", texts[-1] if texts else ""))

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:
        response = self._response(reply, request, number)
        if not request.json.get("stream"):
            data = json.dumps(response, ensure_ascii=False).encode()
            return response_steps(200, data)
        events = list(self._events(response))
        if reply.stop_after is not None:
            events = events[: 3 + reply.stop_after]
        sends = [
            Send(_event(event | {"sequence_number": place})) for place, event in enumerate(events)
        ]
        head = Head(headers={"Content-Type": "text/event-stream; charset=utf-8"}, chunked=True)
        ending: tuple[Step, ...] = (Cut(),) if reply.stop_after is not None and reply.abrupt else ()
        return (head, *sends, *ending)

    def _response(self, reply: Reply, request: Request, number: int) -> Json:
        items: list[Json] = []
        if reply.reasoning:
            summary = [{"type": "summary_text", "text": "".join(reply.reasoning)}]
            sealed = {"encrypted_content": reply.signature}
            items.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary, **sealed})
        for place, call in enumerate(reply.tool_calls):
            named = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
            kind = {"type": "function_call", "status": "completed"}
            items.append({"id": f"fc_{number}_{place}", **kind, **named})
        if reply.pieces:
            text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
            message = {"type": "message", "status": "completed", "role": "assistant"}
            items.append({"id": f"msg_{number}", **message, "content": [text]})
        sent, received = reply.usage or (0, 0)
        is_cut = reply.finish == "length"
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1_760_000_000 + number,
            "status": "incomplete" if is_cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": request.json.get("model"),
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": sent,
                "input_tokens_details": {"cached_tokens": (reply.cached or (0, 0))[0]},
                "output_tokens": received,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": sent + received,
            },
        }

    def _events(self, response: Json) -> Iterator[Json]:
        opening = response | {"status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": opening}
        yield {"type": "response.in_progress", "response": opening}
        for place, item in enumerate(response["output"]):
            yield from self._item(item, {"output_index": place})
        yield {"type": f"response.{response['status']}", "response": response}

    def _item(self, item: Json, at: Json) -> Iterator[Json]:
        empty: dict[str, Json] = {
            "message": {"content": [], "status": "in_progress"},
            "reasoning": {"summary": []},
            "function_call": {"arguments": "", "status": "in_progress"},
        }
        inner = at | {"item_id": item["id"]}
        yield {"type": "response.output_item.added", **at, "item": item | empty[item["type"]]}
        match item["type"]:
            case "message":
                part = item["content"][0]
                placed = inner | {"content_index": 0}
                started = {"type": "response.content_part.added", "part": part | {"text": ""}}
                yield {**started, **placed}
                delta = {"type": "response.output_text.delta", "logprobs": []}
                for piece in _halves(part["text"]):
                    yield {**delta, **placed, "delta": piece}
                done = {"type": "response.output_text.done", "logprobs": []}
                yield {**done, **placed, "text": part["text"]}
                yield {"type": "response.content_part.done", **placed, "part": part}
            case "reasoning":
                text = item["summary"][0]["text"]
                placed = inner | {"summary_index": 0}
                part = {"type": "summary_text", "text": ""}
                name = "response.reasoning_summary"
                yield {"type": f"{name}_part.added", **placed, "part": part}
                for piece in _halves(text):
                    yield {"type": f"{name}_text.delta", **placed, "delta": piece}
                yield {"type": f"{name}_text.done", **placed, "text": text}
                yield {"type": f"{name}_part.done", **placed, "part": part | {"text": text}}
            case _:
                name = "response.function_call_arguments"
                for piece in _halves(item["arguments"]):
                    yield {"type": f"{name}.delta", **inner, "delta": piece}
                call = {"name": item["name"], "arguments": item["arguments"]}
                yield {"type": f"{name}.done", **inner, **call}
        yield {"type": "response.output_item.done", **at, "item": item}


def _input_items(request: Request) -> list[Json]:
    value = request.json.get("input")
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [item for item in value or [] if isinstance(item, dict)]


def _read_text(item: Json) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _event(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


class Embeddings(OpenAIChat):
    """OpenAI's embeddings: one short vector per text."""

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:  # noqa: ARG002
        texts = request.json.get("input")
        count = len(texts) if isinstance(texts, list) else 1
        data = [
            {"object": "embedding", "index": place, "embedding": [0.25, -0.5]}
            for place in range(count)
        ]
        usage = {"prompt_tokens": 3 * count, "total_tokens": 3 * count}
        body = {"object": "list", "data": data, "model": request.json.get("model"), "usage": usage}
        return response_steps(200, json.dumps(body).encode())


OTHERS: dict[str, WireProtocol] = {RESPONSES: OpenAIResponses(), EMBEDDINGS: Embeddings()}


class AsyncGate:
    """Holds a response until a step of the case opens it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def open(self) -> None:
        self._event.set()

    async def wait_open(self) -> None:
        await self._event.wait()


@dataclass(kw_only=True)
class ReceivedRequest:
    """A received request with its headers in order, and the outcome of its response."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    outcome: str = "answering"
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Upstream:
    """The server. `script` and `received` belong to the current case."""

    def __init__(self) -> None:
        self.port = 0
        self.received: list[ReceivedRequest] = []
        self._answers: deque[Answer] = deque()
        self._gates: dict[str, AsyncGate] = {}
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, backlog=64, limit=MAX_HEAD_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start_case(self) -> None:
        for gate in self._gates.values():
            gate.open()
        self.received, self._gates = [], {}
        self._answers.clear()

    def script(self, answers: tuple[Answer, ...]) -> None:
        """Replace the scripted responses that have not been used."""
        self._answers = deque(answers)

    def gate(self, name: str) -> AsyncGate:
        return self._gates.setdefault(name, AsyncGate())

    async def wait_for(self, count: int) -> None:
        """Wait until this many requests of the case have arrived."""
        while len(self.received) < count:
            self._arrived.clear()
            await self._arrived.wait()

    async def settle(self) -> None:
        """Wait until every response has ended, up to a timeout."""
        waits = [request.done.wait() for request in self.received if not request.done.is_set()]
        if waits:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*waits), SETTLE_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (received := await _read(reader)) is not None:
                self.received.append(received)
                self._arrived.set()
                try:
                    steps = self._steps(received)
                    stays = await _send(steps, reader, writer, self.gate)
                    received.outcome = "answered" if stays else "broken off"
                except (ConnectionError, EOFError):
                    received.outcome, stays = "disconnected", False
                finally:
                    received.done.set()
                if not stays:
                    return
        except (ConnectionError, EOFError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _steps(self, received: ReceivedRequest) -> tuple[Step, ...]:
        path = received.path.partition("?")[0]
        protocol = OTHERS.get(path) or find_protocol(path)
        request = _make_request(received)
        if protocol is None or received.method != "POST" or not isinstance(request.json, dict):
            body = PROTOCOLS["/v1/chat/completions"].error(404, f"No route {path}", None)
            return response_steps(404, body)
        answer: Answer
        try:
            answer = self._answers.popleft() if self._answers else protocol.echo(request)
            if isinstance(answer, Reply):
                return protocol.steps(answer, request, len(self.received))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # A version may send any data; the recorded request is compared.
            return response_steps(
                400, protocol.error(400, f"Unreadable: {type(error).__name__}.", None)
            )
        if isinstance(answer, Refusal):
            body = protocol.error(answer.status, answer.message, answer.code)
            headers = protocol.error_headers(answer.status, answer.code)
            named = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            return (
                Head(status=answer.status, headers=named | headers | dict(answer.headers)),
                Send(body),
            )
        return answer


def _make_request(received: ReceivedRequest) -> Request:
    headers = {name.lower(): value for name, value in received.headers}
    value: Any = None
    with contextlib.suppress(ValueError):
        value = json.loads(received.body)
    return Request(
        method=received.method,
        path=received.path,
        headers=headers,
        body=received.body,
        received_at=0.0,
        json=value,
    )


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    named = {name.lower(): value for name, value in headers}
    if named.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(named.get("content-length", "0")))
    return ReceivedRequest(method=method, path=path, headers=headers, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


async def _send(
    steps: tuple[Step, ...],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    gate_called: Callable[[str], AsyncGate],
) -> bool:
    """Send the steps; return whether the connection can be used again.

    All data up to the next gate is sent in one write: a version may handle events that arrive
    together differently, and the result must not depend on timing.
    """
    chunked = stays = False
    waiting = bytearray()

    async def flush() -> None:
        writer.write(bytes(waiting))
        waiting.clear()
        await writer.drain()

    for step in steps:
        match step:
            case Head():
                chunked, stays = step.chunked, _has_length(step)
                waiting += _encode_head(step, stays=stays)
            case Send(data):
                waiting += b"%x\r\n%s\r\n" % (len(data), data) if chunked else data
            case Hold(gate):
                await flush()
                await _wait_unless_closed(gate_called(str(gate)).wait_open(), reader)
            case Silence():
                await flush()
                await _wait_unless_closed(asyncio.Event().wait(), reader)
            case Cut():
                await flush()
                return False
    if chunked:
        waiting += b"0\r\n\r\n"
    await flush()
    return stays


async def _wait_unless_closed(waiting: Any, reader: asyncio.StreamReader) -> None:
    """Wait; raise ConnectionError if the client closes its connection.

    A client that waits for a response sends nothing, so a read can only return the end.
    """
    task = asyncio.ensure_future(waiting)
    closed = asyncio.ensure_future(reader.read(1))
    done, pending = await asyncio.wait({task, closed}, return_when=asyncio.FIRST_COMPLETED)
    for each in pending:
        each.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if task not in done:
        raise ConnectionResetError("the client closed the connection")


def _has_length(head: Head) -> bool:
    return head.chunked or any(name.lower() == "content-length" for name in head.headers)


def _encode_head(head: Head, *, stays: bool) -> bytes:
    headers = dict(head.headers)
    if head.chunked:
        headers["Transfer-Encoding"] = "chunked"
    if not stays:
        headers["Connection"] = "close"
    lines = [f"HTTP/1.1 {head.status} Status"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
