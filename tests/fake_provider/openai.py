"""OpenAI's Chat Completions for the fake provider."""

import json
from collections.abc import Generator, Iterator
from typing import Any

from tests.fake_provider.model import Cut, Head, Hold, Reply, Request, Send, Step, ToolCall
from tests.fake_provider.steps import json_reply_steps, read_text


class OpenAIChat:
    """OpenAI Chat Completions."""

    def echo(self, request: Request) -> Reply:
        texts = [
            read_text(message.get("content"))
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
        yield from json_reply_steps(reply, body)

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
