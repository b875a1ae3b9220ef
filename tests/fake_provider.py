"""A fake provider on loopback that records its requests and returns queued responses.

It runs on an event loop in a thread of the test process. A test queues responses (`queue_reply`,
`queue_error`, `queue_steps`), runs the command and checks `requests`. Without a queued response the
provider repeats the newest user text. Protocols are rows in `PROTOCOLS`: each converts a `Reply` to
the steps of a response, and the server executes the steps. With a `cache` it reports the cached
tokens of a prompt. Nothing here waits for a clock: a `Gate` holds a response until the test opens
it.
"""

import asyncio
import binascii
import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from tests.fake_cache import PromptCache

ACCEPT_LOOP_STEPS = 10
WAIT = 60.0
"""The timeout in seconds of a wait for an event that must happen."""


class Gate:
    """Holds a response until the test opens it, and reports when the response has reached it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()

    def wait_reached(self, timeout: float = WAIT) -> None:
        if not self._reached.wait(timeout):
            raise TimeoutError("no response reached the gate")

    def open(self) -> None:
        with self._lock:
            self._opened.set()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

    async def wait_open(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._opened.is_set():
                event.set()
            else:
                self._waiters.append((asyncio.get_running_loop(), event))
        self._reached.set()
        await event.wait()


@dataclass(frozen=True, kw_only=True)
class Head:
    """The status line and headers. With `chunked` the data is sent in HTTP chunks."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunked: bool = False


@dataclass(frozen=True)
class Send:
    data: bytes


@dataclass(frozen=True)
class Hold:
    gate: Gate


@dataclass(frozen=True)
class Silence:
    """Send nothing more; the connection stays open until the client closes it."""


@dataclass(frozen=True)
class Cut:
    """Close the connection before the end of the HTTP response."""


Step = Head | Send | Hold | Silence | Cut


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The model's reply in pieces, and the faults of its transmission.

    `hold`: a gate before piece number N (N = the number of pieces: before the end). `stop_after`:
    end the stream after this many pieces, abruptly or not (`abrupt`); after all pieces the finish
    reason has been sent. `finish` None: send no finish reason. `done` False: omit the stream's last
    marker. `packet`: the size of the writes of an event. `error`: the type and message of an error
    in the middle of a stream, at `stop_after`. `signature`: sent with the reasoning if the protocol
    has one. `cached`: tokens read from and written to the cache, which Anthropic and Bedrock count
    separately from the input.
    """

    pieces: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    signature: str = "c2lnbmVk"
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str | None = "stop"
    usage: tuple[int, int] | None = (11, 7)
    cached: tuple[int, int] | None = None
    hold: Mapping[int, Gate] = field(default_factory=dict)
    stop_after: int | None = None
    abrupt: bool = True
    error: tuple[str, str] | None = None
    done: bool = True
    garbage_before: int | None = None
    line_end: str = "\n"
    comments: bool = False
    packet: int | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(kw_only=True)
class Request:
    """A received request, and whether it was answered or the client disconnected."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_at: float
    json: Any = None
    answered: threading.Event = field(default_factory=threading.Event)
    disconnected: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.json["messages"]
        return messages

    @property
    def message_pairs(self) -> list[tuple[str, Any]]:
        """The messages as pairs of role and content."""
        return [(message["role"], message.get("content")) for message in self.messages]

    def wait_disconnected(self, timeout: float = WAIT) -> None:
        if not self.disconnected.wait(timeout):
            raise TimeoutError("the client did not disconnect")


Answer = Reply | tuple[Step, ...]
Refuse = Callable[[Request], str | None]
"""Returns the message of an error with status 400, or None to accept the request."""
Choose = Callable[[Request], Reply | None]
"""Returns the reply to a request, or None to use the next queued reply."""


class WireProtocol(Protocol):
    """Converts a reply to the response of one protocol."""

    def echo(self, request: Request) -> Reply: ...

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]: ...

    def error(self, status: int, message: str, code: str | None) -> bytes: ...

    def error_headers(self, status: int, code: str | None) -> dict[str, str]: ...


class OpenAIChat:
    """OpenAI Chat Completions."""

    def echo(self, request: Request) -> Reply:
        texts = [
            _text(message.get("content"))
            for message in (request.json or {}).get("messages", [])
            if message.get("role") == "user"
        ]
        return Reply(pieces=("echo: ", texts[-1] if texts else ""))

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:
        if request.json.get("stream"):
            return tuple(self._stream(reply, request, number))
        return tuple(self._whole(reply, request, number))

    def error(self, status: int, message: str, code: str | None) -> bytes:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        error = {"message": message, "type": kind, "param": None, "code": code}
        return json.dumps({"error": error}).encode()

    def error_headers(self, status: int, code: str | None) -> dict[str, str]:  # noqa: ARG002
        return {}

    def _whole(self, reply: Reply, request: Request, number: int) -> Iterator[Step]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        if reply.reasoning:
            message["reasoning_content"] = "".join(reply.reasoning)
        if reply.tool_calls:
            message["content"] = reply.text or None
            message["tool_calls"] = [_tool_call(call) for call in reply.tool_calls]
        body = self._frame(request, number, "chat.completion") | {
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}]
        }
        if reply.usage is not None:
            body["usage"] = _usage(reply.usage)
        for _, gate in sorted(reply.hold.items()):
            yield Hold(gate)
        data = json.dumps(body, ensure_ascii=False).encode()
        if reply.stop_after is None:
            yield from response_steps(200, data)
            return
        yield Head(headers={"Content-Type": "application/json", "Content-Length": str(len(data))})
        yield Send(data[: len(data) // 2])
        yield Cut()

    def _stream(self, reply: Reply, request: Request, number: int) -> Iterator[Step]:
        frame = self._frame(request, number, "chat.completion.chunk")
        wants_usage = bool((request.json.get("stream_options") or {}).get("include_usage"))
        if wants_usage:
            frame["usage"] = None
        yield Head(headers={"Content-Type": "text/event-stream; charset=utf-8"}, chunked=True)
        for delta in self._openings(reply):
            yield from _chunk(reply, frame, delta)
        stopped = yield from self._pieces(reply, frame)
        if stopped:
            return
        if wants_usage and reply.usage is not None:
            last = frame | {"choices": [], "usage": _usage(reply.usage)}
            yield from _event(json.dumps(last), reply)
        if reply.done:
            yield from _event("[DONE]", reply)

    def _openings(self, reply: Reply) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": ""}
        for thought in reply.reasoning:
            yield {"reasoning_content": thought}
        for index, call in enumerate(reply.tool_calls):
            yield {"tool_calls": [{"index": index} | _tool_call(call)]}

    def _pieces(self, reply: Reply, frame: dict[str, Any]) -> Generator[Step, None, bool]:
        """Yield the text and the finish reason; return whether the stream stops there."""
        for index, piece in enumerate((*reply.pieces, None)):
            if index in reply.hold:
                yield Hold(reply.hold[index])
            if piece is None and reply.finish is not None:
                yield from _chunk(reply, frame, {}, reply.finish)
            if index == reply.stop_after:
                if reply.abrupt:
                    yield Cut()
                return True
            if index == reply.garbage_before:
                yield from _event('{"choices": [{"delta": {"content": <html>', reply)
            if piece is not None:
                yield from _chunk(reply, frame, {"content": piece})
        return False

    def _frame(self, request: Request, number: int, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{number}",
            "object": kind,
            "created": 1_760_000_000 + number,
            "model": request.json.get("model"),
        }


class AnthropicMessages:
    """Anthropic's Messages API, with named stream events."""

    ERRORS: Mapping[int, str] = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        529: "overloaded_error",
    }
    FINISHES: Mapping[str, str] = {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_calls": "tool_use",
    }

    def echo(self, request: Request) -> Reply:
        return _echo(request)

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:
        if request.json.get("stream"):
            return tuple(self._stream(reply, request, number))
        body = self._message(request, number, self._blocks(reply))
        body |= {"stop_reason": self._finish(reply), "usage": self._usage(reply)}
        return tuple(_whole_reply(reply, body))

    def error(self, status: int, message: str, code: str | None) -> bytes:
        error = {"type": code or self.ERRORS.get(status, "api_error"), "message": message}
        return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()

    def error_headers(self, status: int, code: str | None) -> dict[str, str]:  # noqa: ARG002
        return {"request-id": "req_1"}

    def _stream(self, reply: Reply, request: Request, number: int) -> Iterator[Step]:
        yield Head(headers={"Content-Type": "text/event-stream; charset=utf-8"}, chunked=True)
        started = self._usage(reply) | {"output_tokens": 1}
        message = self._message(request, number, []) | {
            "stop_reason": None,
            "usage": started,
        }
        yield from self._event(reply, {"type": "message_start", "message": message})
        yield from self._event(reply, {"type": "ping"})
        place = 0
        for start, deltas in self._openings(reply):
            yield from self._start(reply, place, start)
            for delta in deltas:
                yield from self._delta(reply, place, delta)
            yield from self._event(reply, {"type": "content_block_stop", "index": place})
            place += 1
        stopped = yield from self._pieces(reply, place)
        if not stopped and reply.done:
            yield from self._event(reply, {"type": "message_stop"})

    def _openings(self, reply: Reply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        if reply.reasoning:
            thoughts = [{"type": "thinking_delta", "thinking": text} for text in reply.reasoning]
            signed = {"type": "signature_delta", "signature": reply.signature}
            yield {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signed]
        for call in reply.tool_calls:
            start = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            halves = ("", *_halves(call.arguments))
            yield start, [{"type": "input_json_delta", "partial_json": half} for half in halves]

    def _pieces(self, reply: Reply, place: int) -> Generator[Step, None, bool]:
        """Yield the text and the finish reason; return whether the stream stops there."""
        if reply.pieces:
            yield from self._start(reply, place, {"type": "text", "text": ""})
        for index, piece in enumerate((*reply.pieces, None)):
            if index in reply.hold:
                yield Hold(reply.hold[index])
            if piece is None:
                yield from self._ending(reply, place)
            if index == reply.stop_after:
                if reply.error is not None:
                    kind, message = reply.error
                    error = {"type": kind, "message": message}
                    yield from self._event(reply, {"type": "error", "error": error})
                elif reply.abrupt:
                    yield Cut()
                return True
            if index == reply.garbage_before:
                yield from _packets(reply, b'event: content_block_delta\ndata: {"type": <html>\n\n')
            if piece is not None:
                yield from self._delta(reply, place, {"type": "text_delta", "text": piece})
        return False

    def _ending(self, reply: Reply, place: int) -> Iterator[Step]:
        if reply.pieces:
            yield from self._event(reply, {"type": "content_block_stop", "index": place})
        if reply.finish is not None:
            delta = {"stop_reason": self._finish(reply), "stop_sequence": None}
            usage = {"output_tokens": (reply.usage or (0, 0))[1]}
            yield from self._event(reply, {"type": "message_delta", "delta": delta, "usage": usage})

    def _start(self, reply: Reply, place: int, block: dict[str, Any]) -> Iterator[Step]:
        event = {"type": "content_block_start", "index": place, "content_block": block}
        yield from self._event(reply, event)

    def _delta(self, reply: Reply, place: int, delta: dict[str, Any]) -> Iterator[Step]:
        yield from self._event(
            reply, {"type": "content_block_delta", "index": place, "delta": delta}
        )

    def _event(self, reply: Reply, event: dict[str, Any]) -> Iterator[Step]:
        end = reply.line_end
        data = json.dumps(event, ensure_ascii=False)
        yield from _packets(reply, f"event: {event['type']}{end}data: {data}{end}{end}".encode())

    def _message(
        self, request: Request, number: int, content: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": request.json.get("model"),
            "content": content,
            "stop_sequence": None,
        }

    def _blocks(self, reply: Reply) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if reply.reasoning:
            thought = "".join(reply.reasoning)
            blocks.append({"type": "thinking", "thinking": thought, "signature": reply.signature})
        for call in reply.tool_calls:
            arguments = json.loads(call.arguments)
            blocks.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}
            )
        if reply.pieces:
            blocks.append({"type": "text", "text": reply.text})
        return blocks

    def _finish(self, reply: Reply) -> str | None:
        return None if reply.finish is None else self.FINISHES.get(reply.finish, reply.finish)

    def _usage(self, reply: Reply) -> dict[str, int]:
        sent, received = reply.usage or (0, 0)
        counts = {"input_tokens": sent, "output_tokens": received}
        if reply.cached is not None:
            read, written = reply.cached
            counts |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
        return counts


class BedrockConverse:
    """Bedrock's Converse and ConverseStream, with AWS event stream frames."""

    ERRORS: Mapping[int, str] = {
        400: "ValidationException",
        403: "AccessDeniedException",
        404: "ResourceNotFoundException",
        408: "ModelTimeoutException",
        424: "ModelErrorException",
        429: "ThrottlingException",
        500: "InternalServerException",
        503: "ServiceUnavailableException",
    }
    FINISHES = AnthropicMessages.FINISHES

    def echo(self, request: Request) -> Reply:
        return _echo(request)

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:
        if request.path.endswith("/converse-stream"):
            return tuple(self._stream(reply))
        body = {
            "output": {"message": {"role": "assistant", "content": self._blocks(reply)}},
            "stopReason": self._finish(reply),
            "metrics": {"latencyMs": number},
        }
        if reply.usage is not None:
            body["usage"] = self._usage(reply, reply.usage)
        return tuple(_whole_reply(reply, body))

    def error(self, status: int, message: str, code: str | None) -> bytes:  # noqa: ARG002
        return json.dumps({"message": message}).encode()

    def error_headers(self, status: int, code: str | None) -> dict[str, str]:
        kind = code or self.ERRORS.get(status, "InternalServerException")
        shape = "http://internal.amazon.com/coral/com.amazon.bedrock/"
        return {"x-amzn-RequestId": "1", "x-amzn-ErrorType": f"{kind}:{shape}"}

    def _stream(self, reply: Reply) -> Iterator[Step]:
        yield Head(headers={"Content-Type": "application/vnd.amazon.eventstream"}, chunked=True)
        yield from self._event(reply, "messageStart", {"role": "assistant"})
        place = 0
        for start, deltas in self._openings(reply):
            at = {"contentBlockIndex": place}
            if start is not None:
                yield from self._event(reply, "contentBlockStart", at | {"start": start})
            for delta in deltas:
                yield from self._event(reply, "contentBlockDelta", at | {"delta": delta})
            yield from self._event(reply, "contentBlockStop", at)
            place += 1
        stopped = yield from self._pieces(reply, place)
        if not stopped and reply.usage is not None:
            metadata = {"usage": self._usage(reply, reply.usage), "metrics": {"latencyMs": 1}}
            yield from self._event(reply, "metadata", metadata)

    def _openings(
        self, reply: Reply
    ) -> Iterator[tuple[dict[str, Any] | None, list[dict[str, Any]]]]:
        if reply.reasoning:
            thoughts = [{"reasoningContent": {"text": text}} for text in reply.reasoning]
            yield None, [*thoughts, {"reasoningContent": {"signature": reply.signature}}]
        for call in reply.tool_calls:
            start = {"toolUse": {"toolUseId": call.id, "name": call.name}}
            yield start, [{"toolUse": {"input": half}} for half in _halves(call.arguments)]

    def _pieces(self, reply: Reply, place: int) -> Generator[Step, None, bool]:
        """Yield the text and the finish reason; return whether the stream stops there."""
        at = {"contentBlockIndex": place}
        for index, piece in enumerate((*reply.pieces, None)):
            if index in reply.hold:
                yield Hold(reply.hold[index])
            if piece is None:
                yield from self._ending(reply, at)
            if index == reply.stop_after:
                if reply.error is not None:
                    kind, message = reply.error
                    yield from _packets(reply, exception_frame(kind, message))
                elif reply.abrupt:
                    yield Cut()
                return True
            if index == reply.garbage_before:
                yield from _packets(reply, b"<html>Bad gateway, and a little more</html>")
            if piece is not None:
                delta = {"delta": {"text": piece}}
                yield from self._event(reply, "contentBlockDelta", at | delta)
        return False

    def _ending(self, reply: Reply, at: dict[str, Any]) -> Iterator[Step]:
        if reply.pieces:
            yield from self._event(reply, "contentBlockStop", at)
        if reply.finish is not None and reply.done:
            yield from self._event(reply, "messageStop", {"stopReason": self._finish(reply)})

    def _event(self, reply: Reply, name: str, event: dict[str, Any]) -> Iterator[Step]:
        yield from _packets(reply, event_frame(name, event | {"p": "abcdefgh"}))

    def _blocks(self, reply: Reply) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if reply.reasoning:
            thought = {"text": "".join(reply.reasoning), "signature": reply.signature}
            blocks.append({"reasoningContent": {"reasoningText": thought}})
        for call in reply.tool_calls:
            use = {"toolUseId": call.id, "name": call.name, "input": json.loads(call.arguments)}
            blocks.append({"toolUse": use})
        if reply.pieces:
            blocks.append({"text": reply.text})
        return blocks

    def _finish(self, reply: Reply) -> str:
        return self.FINISHES.get(reply.finish or "stop", reply.finish or "")

    def _usage(self, reply: Reply, counts: tuple[int, int]) -> dict[str, int]:
        sent, received = counts
        read, written = reply.cached or (0, 0)
        total = sent + received + read + written
        usage = {"inputTokens": sent, "outputTokens": received, "totalTokens": total}
        if reply.cached is not None:
            usage |= {"cacheReadInputTokens": read, "cacheWriteInputTokens": written}
        return usage


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode an AWS event stream frame: prelude and its CRC, headers, payload, CRC."""
    encoded = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value
        for name, value in ((name, text.encode()) for name, text in headers.items())
    )
    prelude = struct.pack("!II", 16 + len(encoded) + len(payload), len(encoded))
    checked = prelude + struct.pack("!I", binascii.crc32(prelude)) + encoded + payload
    return checked + struct.pack("!I", binascii.crc32(checked))


def event_frame(name: str, event: dict[str, Any]) -> bytes:
    headers = {
        ":event-type": name,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return frame(headers, json.dumps(event, ensure_ascii=False).encode())


def exception_frame(kind: str, message: str) -> bytes:
    """Encode a modelled exception in a stream; its type is in a header."""
    headers = {
        ":exception-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame(headers, json.dumps({"message": message}).encode())


def error_frame(code: str, message: str) -> bytes:
    """Encode an unmodelled error in a stream; code and message are in the headers."""
    headers = {":error-code": code, ":error-message": message, ":message-type": "error"}
    return frame(headers, b"")


class CountTokens:
    """A token-counting endpoint; returns the number of characters of the request."""

    def __init__(self, protocol: WireProtocol, name: str) -> None:
        self._protocol = protocol
        self._name = name

    def echo(self, request: Request) -> Reply:
        return Reply(usage=(len(request.body), 0))

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:  # noqa: ARG002
        sent, _ = reply.usage or (0, 0)
        return response_steps(200, json.dumps({self._name: sent, "novel": True}).encode())

    def error(self, status: int, message: str, code: str | None) -> bytes:
        return self._protocol.error(status, message, code)

    def error_headers(self, status: int, code: str | None) -> dict[str, str]:
        return self._protocol.error_headers(status, code)


PROTOCOLS: dict[str, WireProtocol] = {
    "/v1/chat/completions": OpenAIChat(),
    "/v1/messages": AnthropicMessages(),
    "/model/{id}/converse": BedrockConverse(),
    "/model/{id}/converse-stream": BedrockConverse(),
    "/v1/messages/count_tokens": CountTokens(AnthropicMessages(), "input_tokens"),
    "/model/{id}/count-tokens": CountTokens(BedrockConverse(), "inputTokens"),
}


def find_protocol(path: str) -> WireProtocol | None:
    """Return the protocol of a path. A model ID in it is escaped, between two slashes."""
    return PROTOCOLS.get(re.sub(r"^/model/[^/]+/", "/model/{id}/", path))


def _echo(request: Request) -> Reply:
    """Return the newest user text, from blocks or a string."""
    texts = [_text(m.get("content")) for m in request.json["messages"] if m["role"] == "user"]
    return Reply(pieces=("echo: ", texts[-1] if texts else ""))


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _packets(reply: Reply, encoded: bytes) -> Iterator[Step]:
    size = reply.packet or len(encoded)
    for start in range(0, len(encoded), size):
        yield Send(encoded[start : start + size])


def _whole_reply(reply: Reply, body: dict[str, Any]) -> Iterator[Step]:
    """Yield a complete response, with the gates and the cut of the reply."""
    for _, gate in sorted(reply.hold.items()):
        yield Hold(gate)
    data = json.dumps(body, ensure_ascii=False).encode()
    if reply.stop_after is None:
        yield from response_steps(200, data)
        return
    yield Head(headers={"Content-Type": "application/json", "Content-Length": str(len(data))})
    yield Send(data[: len(data) // 2])
    yield Cut()


def response_steps(status: int, data: bytes, **headers: str) -> tuple[Step, ...]:
    """Return the steps of a complete response. Header names have underscores for hyphens."""
    extra = {name.replace("_", "-").title(): value for name, value in headers.items()}
    defaults = {"Content-Type": "application/json", "Content-Length": str(len(data))}
    return (Head(status=status, headers=defaults | extra), Send(data))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part.get("text", "") for part in parts if isinstance(part, dict))


def _usage(counts: tuple[int, int]) -> dict[str, int]:
    sent, received = counts
    return {
        "prompt_tokens": sent,
        "completion_tokens": received,
        "total_tokens": sent + received,
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _event(data: str, reply: Reply) -> Iterator[Step]:
    end = reply.line_end
    comment = f": ping{end}{end}" if reply.comments else ""
    encoded = f"{comment}data: {data}{end}{end}".encode()
    size = reply.packet or len(encoded)
    for start in range(0, len(encoded), size):
        yield Send(encoded[start : start + size])


def _chunk(
    reply: Reply, frame: dict[str, Any], delta: dict[str, Any], finish: str | None = None
) -> Iterator[Step]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    yield from _event(json.dumps(frame | {"choices": [choice]}, ensure_ascii=False), reply)


class FakeProvider:
    """The server. Use it as a context manager."""

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
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(WAIT):
            raise TimeoutError("the fake provider did not start")
        return self

    def __exit__(self, *_: object) -> None:
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
