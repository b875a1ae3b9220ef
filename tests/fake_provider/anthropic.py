"""Anthropic's Messages API for the fake provider."""

import json
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from tests.fake_provider.model import Cut, Head, Hold, Reply, Request, Step
from tests.fake_provider.steps import echo_reply, json_reply_steps, packet_steps, split_text


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
        return echo_reply(request)

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:
        if request.json.get("stream"):
            return tuple(self._stream(reply, request, number))
        body = self._message(request, number, self._blocks(reply))
        body |= {"stop_reason": self._finish(reply), "usage": self._usage(reply)}
        return tuple(json_reply_steps(reply, body))

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
        place = yield from self._blocks_from(reply, 0, self._openings(reply))
        stopped = yield from self._pieces(reply, place)
        if not stopped and reply.done:
            yield from self._event(reply, {"type": "message_stop"})

    def _openings(self, reply: Reply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        if reply.reasoning:
            thoughts = [{"type": "thinking_delta", "thinking": text} for text in reply.reasoning]
            signed = {"type": "signature_delta", "signature": reply.signature}
            yield {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signed]
        if not reply.text_first:
            yield from self._calls(reply)

    def _calls(self, reply: Reply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        for call in reply.tool_calls:
            start = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            halves = ("", *split_text(call.arguments))
            yield start, [{"type": "input_json_delta", "partial_json": half} for half in halves]

    def _blocks_from(
        self,
        reply: Reply,
        place: int,
        blocks: Iterator[tuple[dict[str, Any], list[dict[str, Any]]]],
    ) -> Generator[Step, None, int]:
        """Yield whole blocks, the first with this index; return the next index."""
        for start, deltas in blocks:
            yield from self._start(reply, place, start)
            for delta in deltas:
                yield from self._delta(reply, place, delta)
            yield from self._event(reply, {"type": "content_block_stop", "index": place})
            place += 1
        return place

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
                yield from packet_steps(
                    reply, b'event: content_block_delta\ndata: {"type": <html>\n\n'
                )
            if piece is not None:
                yield from self._delta(reply, place, {"type": "text_delta", "text": piece})
        return False

    def _ending(self, reply: Reply, place: int) -> Iterator[Step]:
        if reply.pieces:
            yield from self._event(reply, {"type": "content_block_stop", "index": place})
            place += 1
        if reply.text_first:
            yield from self._blocks_from(reply, place, self._calls(reply))
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
        yield from packet_steps(
            reply, f"event: {event['type']}{end}data: {data}{end}{end}".encode()
        )

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
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.name}
            | {"input": json.loads(call.arguments)}
            for call in reply.tool_calls
        ]
        texts = [{"type": "text", "text": reply.text}] if reply.pieces else []
        return [*blocks, *texts, *calls] if reply.text_first else [*blocks, *calls, *texts]

    def _finish(self, reply: Reply) -> str | None:
        return None if reply.finish is None else self.FINISHES.get(reply.finish, reply.finish)

    def _usage(self, reply: Reply) -> dict[str, int]:
        sent, received = reply.usage or (0, 0)
        counts = {"input_tokens": sent, "output_tokens": received}
        if reply.cached is not None:
            read, written = reply.cached
            counts |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
        return counts
