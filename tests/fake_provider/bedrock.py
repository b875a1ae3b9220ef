"""Bedrock's Converse API for the fake provider, with AWS event stream frames."""

import binascii
import json
import struct
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from tests.fake_provider.anthropic import AnthropicMessages
from tests.fake_provider.model import Cut, Head, Hold, Reply, Request, Step
from tests.fake_provider.steps import echo_reply, json_reply_steps, packet_steps, split_text


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
        return echo_reply(request)

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
        return tuple(json_reply_steps(reply, body))

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
            yield start, [{"toolUse": {"input": half}} for half in split_text(call.arguments)]

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
                    yield from packet_steps(reply, exception_frame(kind, message))
                elif reply.abrupt:
                    yield Cut()
                return True
            if index == reply.garbage_before:
                yield from packet_steps(reply, b"<html>Bad gateway, and a little more</html>")
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
        yield from packet_steps(reply, event_frame(name, event | {"p": "abcdefgh"}))

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
