"""Encodes replies of any provider for Anthropic clients: messages, SSE streams and errors."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from cllm.core.message import AnyPart, Refusal, Text, Thinking, ToolCall, Unknown
from cllm.core.reply import (
    PartAdded,
    RefusalDelta,
    ReplyDelta,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.anthropic.events import get_citations
from cllm.wire.anthropic.parts import DIALECT, decode_parts, encode_block
from cllm.wire.errors import MalformedError, NotExpressibleError
from cllm.wire.messages import to_delta
from cllm.wire.tool_arguments import ObjectScanner, to_json_object

Fields = dict[str, Any]

# An unknown reason is never `end_turn`: the reply may be incomplete.
STOP_REASON_NAMES: dict[StopReason, str] = {
    "content_filter": "refusal",
    "context_window": "model_context_window_exceeded",
    "end": "end_turn",
    "length": "max_tokens",
    "pause": "pause_turn",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "unknown": "max_tokens",
}
FINAL_FIELDS = ("container", "stop_details")


def encode_answer(
    finished: ReplyFinished, *, message_id: str, model: str, parts: Sequence[AnyPart] | None = None
) -> bytes:
    """Encode a response body. `parts`: the parts of a message in another protocol."""
    is_own = finished.message.dialect == DIALECT
    if is_own and finished.raw is not None:
        return finished.raw
    source = decode_parts(finished.message) if parts is None and is_own else parts or ()
    converted = source if is_own else [_convert_part(part) for part in source]
    content = list(_encode_blocks(converted)) or [{"type": "text", "text": ""}]
    ending, usage = _encode_ending(finished)
    return msgspec.json.encode(
        {**_encode_head(message_id, model), "content": content, **ending, "usage": usage}
    )


def _encode_blocks(parts: Sequence[AnyPart]) -> Iterator[Fields | msgspec.Raw]:
    """Skip parts that Anthropic cannot express."""
    for part in parts:
        try:
            block = encode_block(_add_signature(part))
        except NotExpressibleError:
            continue
        yield block


def _convert_part(part: AnyPart) -> AnyPart:
    if isinstance(part, Text):
        citations = get_citations(part)
        return Text(text=part.text, extra={"citations": citations} if citations else {})
    if isinstance(part, ToolCall):
        return ToolCall(id=part.id, name=part.name, arguments=to_json_object(part.arguments))
    return msgspec.structs.replace(part, extra={}) if part.extra else part


def _add_signature(part: AnyPart) -> AnyPart:
    """Add an empty signature: thinking always has one in Anthropic's protocol."""
    if isinstance(part, Thinking) and part.signature is None:
        return msgspec.structs.replace(part, signature="")
    return part


def _encode_head(message_id: str, model: str) -> Fields:
    return {"id": message_id, "type": "message", "role": "assistant", "model": model}


def _encode_ending(finished: ReplyFinished) -> tuple[Fields, Fields]:
    fields: Fields = {
        "stop_reason": STOP_REASON_NAMES[finished.stop_reason],
        "stop_sequence": finished.stop_sequence,
    }
    usage = encode_usage(finished.usage)
    if finished.raw is None or finished.message.dialect != DIALECT:
        return fields, usage
    original: Fields = msgspec.json.decode(finished.raw)
    fields |= {name: original[name] for name in FINAL_FIELDS if name in original}
    fields["stop_reason"] = original.get("stop_reason") or fields["stop_reason"]
    counts = original.get("usage")
    return fields, usage | counts if isinstance(counts, dict) else usage


def encode_usage(usage: Usage | None) -> Fields:
    """Encode token counts; thinking is part of the output tokens."""
    usage = usage or Usage()
    fields: Fields = {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output + usage.reasoning,
    }
    if usage.cache_write_hour:
        fields["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write - usage.cache_write_hour,
            "ephemeral_1h_input_tokens": usage.cache_write_hour,
        }
    if usage.reasoning:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return fields


def encode_error(error_type: str, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": error_type, "message": message}})


def _encode_frame(name: str, fields: Fields) -> bytes:
    data = msgspec.json.encode({"type": name, **fields})
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


PING = b'event: ping\ndata: {"type":"ping"}\n\n'
Kind = Literal["text", "refusal", "thinking", "tool_use"]
Key = tuple[Kind, int]
EMPTY_BLOCKS: dict[Kind, Fields] = {
    "text": {"type": "text", "text": ""},
    "refusal": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
TEXT_DELTAS = (TextDelta, RefusalDelta)
KINDS: dict[type, Kind] = {
    TextDelta: "text",
    RefusalDelta: "refusal",
    ThinkingDelta: "thinking",
    ToolCallDelta: "tool_use",
}
# Templates of delta frames for an index and a value.
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
TEXT_DELTA = DELTA + b'"delta":{"type":"text_delta","text":%b}}\n\n'
THINKING_DELTA = DELTA + b'"delta":{"type":"thinking_delta","thinking":%b}}\n\n'
JSON_DELTA = DELTA + b'"delta":{"type":"input_json_delta","partial_json":%b}}\n\n'
SIGNATURE_DELTA = DELTA + b'"delta":{"type":"signature_delta","signature":%b}}\n\n'
CITATION_DELTA = DELTA + b'"delta":{"type":"citations_delta","citation":%b}}\n\n'
encode_json = msgspec.json.Encoder().encode


class AnthropicStreamEncoder:
    """Encodes the reply events of one stream as frames.

    Blocks are opened once each, one after another. Deltas of other blocks are queued until the
    arguments of an open call are complete.
    """

    def __init__(self, *, message_id: str, model: str, usage: Usage | None = None) -> None:
        self._head = _encode_head(message_id, model)
        self._usage = encode_usage(usage)
        self._started = False
        self._open: Key | None = None
        self._index = -1
        self._arguments: list[str] = []
        self._scanner: ObjectScanner | None = None
        """Of the arguments of an open call."""
        self._signature: list[str] = []
        self._closed_calls: set[int] = set()
        self._queued: deque[list[ReplyDelta]] = deque()
        self._queued_calls: dict[int, list[ReplyDelta]] = {}

    def start(self) -> bytes:
        """Return the first frame, once."""
        if self._started:
            return b""
        self._started = True
        empty: Fields = {"content": [], "stop_reason": None, "stop_sequence": None}
        return _encode_frame(
            "message_start", {"message": {**self._head, **empty, "usage": self._usage}}
        )

    def error(self, error_type: str, message: str) -> bytes:
        return b"event: error\ndata: %b\n\n" % encode_error(error_type, message)

    def encode(self, event: ReplyEvent) -> bytes:
        """Encode one event; empty for events without content."""
        if isinstance(event, ReplyFinished):
            out = [self.start()]
            self._finish(event, out)
        elif isinstance(event, ReplyDelta):
            out = [] if self._started else [self.start()]
            for delta in _split_event(event):
                self._add(delta, out)
        else:
            return b""
        return b"".join(out)

    def _add(self, delta: ReplyDelta, out: list[bytes]) -> None:
        if self._write_to_known(delta, out):
            return
        while self._queued and self._can_close():
            self._write_next(out)
        if self._write_to_known(delta, out):
            return
        if self._can_close():
            self._close(out)
            self._open_block(delta, _block_key(delta), out)
        else:
            self._queue(delta)

    def _write_to_known(self, delta: ReplyDelta, out: list[bytes]) -> bool:
        key = _block_key(delta)
        if key is not None and key == self._open:
            self._write(delta, out)
            return True
        if not isinstance(delta, ToolCallDelta) or delta.index not in self._closed_calls:
            return False
        if delta.arguments.strip():
            raise MalformedError("a delta of a complete tool call")
        return True

    def _queue(self, delta: ReplyDelta) -> None:
        """Queue a delta until the open call is complete, after other deltas of its call."""
        deltas = [delta]
        if isinstance(delta, ToolCallDelta):
            queued = self._queued_calls.setdefault(delta.index, deltas)
            if queued is not deltas:
                queued.append(delta)
                return
        self._queued.append(deltas)

    def _write_next(self, out: list[bytes]) -> None:
        first, *more = self._queued.popleft()
        if isinstance(first, ToolCallDelta):
            del self._queued_calls[first.index]
        if not self._write_to_known(first, out):
            self._close(out)
            self._open_block(first, _block_key(first), out)
        for delta in more:
            self._write(delta, out)

    def _can_close(self) -> bool:
        return self._scanner is None or self._scanner.is_object()

    def _open_block(self, delta: ReplyDelta, key: Key | None, out: list[bytes]) -> None:
        if key is None:
            self._write_block(delta, out)
        else:
            self._index += 1
            self._open, self._arguments = key, []
            if key[0] == "tool_use":
                self._scanner = ObjectScanner(self._arguments)
            out.append(self._encode_block_start(delta, key[0]))
            self._write(delta, out)

    def _encode_block_start(self, delta: ReplyDelta, kind: Kind) -> bytes:
        block = EMPTY_BLOCKS.get(kind)
        if isinstance(delta, ToolCallDelta):
            call_id = delta.id or f"toolu_{self._index}"
            block = {"type": kind, "id": call_id, "name": delta.name or "", "input": {}}
        return _encode_frame("content_block_start", {"index": self._index, "content_block": block})

    def _write(self, delta: ReplyDelta, out: list[bytes]) -> None:
        if isinstance(delta, TEXT_DELTAS):
            out.append(self._encode_delta(TEXT_DELTA, delta.text))
        elif isinstance(delta, ToolCallDelta):
            if delta.arguments:
                self._arguments.append(delta.arguments)
                out.append(self._encode_delta(JSON_DELTA, delta.arguments))
        elif isinstance(delta, ThinkingDelta):
            if delta.text:
                out.append(self._encode_delta(THINKING_DELTA, delta.text))
            if delta.signature:
                self._signature.append(delta.signature)
        else:
            citations = delta.part.extra.get("citations") or ()
            out.extend(self._encode_delta(CITATION_DELTA, citation) for citation in citations)

    def _encode_delta(self, template: bytes, value: Any) -> bytes:
        return template % (self._index, encode_json(value))

    def _write_block(self, delta: ReplyDelta, out: list[bytes]) -> None:
        for block in _encode_blocks([delta.part] if isinstance(delta, PartAdded) else []):
            self._index += 1
            start = {"index": self._index, "content_block": block}
            out.append(_encode_frame("content_block_start", start))
            out.append(_encode_frame("content_block_stop", {"index": self._index}))

    def _close(self, out: list[bytes]) -> None:
        if self._open is not None:
            if self._signature:
                # Clients expect a complete signature, so its deltas are joined.
                out.append(self._encode_delta(SIGNATURE_DELTA, "".join(self._signature)))
                self._signature = []
            out.append(_encode_frame("content_block_stop", {"index": self._index}))
            if self._open[0] == "tool_use":
                self._closed_calls.add(self._open[1])
            self._open = self._scanner = None

    def _finish(self, finished: ReplyFinished, out: list[bytes]) -> None:
        while self._queued:
            self._write_next(out)
        self._close(out)
        if self._index < 0:
            self._open_block(TextDelta(text=""), ("text", 0), out)
            self._close(out)
        ending, usage = _encode_ending(finished)
        out.append(_encode_frame("message_delta", {"delta": ending, "usage": usage}))
        out.append(_encode_frame("message_stop", {}))


def _split_event(event: ReplyDelta) -> Iterator[ReplyDelta]:
    if isinstance(event, PartAdded):
        yield from _split_part(event)
    elif isinstance(event, ToolCallDelta) or event.text or getattr(event, "signature", None):
        yield event


def _split_part(event: PartAdded) -> Iterator[ReplyDelta]:
    part = event.part
    if isinstance(part, Unknown) and part.dialect != DIALECT:
        return
    delta = to_delta(part, event.index)
    if not isinstance(part, Text | Refusal) or part.text:
        yield delta
    if isinstance(part, Text) and part.extra.get("citations"):
        yield event


def _block_key(delta: ReplyDelta) -> Key | None:
    """Return the block that a delta belongs to; None for a complete block."""
    if type(delta) is PartAdded:
        return ("text", delta.index) if isinstance(delta.part, Text) else None
    return KINDS[type(delta)], delta.index
