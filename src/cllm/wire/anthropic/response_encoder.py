"""Answers of any provider for Anthropic clients: whole messages, streams and errors."""

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
from cllm.wire.messages import ObjectScanner, to_delta, to_json_object

Fields = dict[str, Any]

STOP_REASON_NAMES: dict[StopReason, str | None] = {
    "content_filter": "refusal",
    "end": "end_turn",
    "length": "max_tokens",
    "pause": "pause_turn",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "unknown": None,
}
ENDING_FIELDS = ("container", "stop_details")


def encode_answer(
    finished: ReplyFinished, *, message_id: str, model: str, parts: Sequence[AnyPart] | None = None
) -> bytes:
    """Encode a whole answer. `parts` are those of a message in another protocol."""
    own = finished.message.dialect == DIALECT
    if own and finished.raw is not None:
        return finished.raw
    said = decode_parts(finished.message) if parts is None and own else parts or ()
    shown = said if own else [_shown(part) for part in said]
    content = list(_sayable(shown)) or [{"type": "text", "text": ""}]
    ending, usage = _ending(finished)
    return msgspec.json.encode(
        {**_head(message_id, model), "content": content, **ending, "usage": usage}
    )


def _sayable(parts: Sequence[AnyPart]) -> Iterator[Fields | msgspec.Raw]:
    for part in parts:
        try:
            block = encode_block(_signed(part))
        except NotExpressibleError:
            continue
        yield block


def _shown(part: AnyPart) -> AnyPart:
    if isinstance(part, Text):
        citations = get_citations(part)
        return Text(text=part.text, extra={"citations": citations} if citations else {})
    if isinstance(part, ToolCall):
        return ToolCall(id=part.id, name=part.name, arguments=to_json_object(part.arguments))
    return msgspec.structs.replace(part, extra={}) if part.extra else part


def _signed(part: AnyPart) -> AnyPart:
    """Add an empty signature: Anthropic's thinking always has one."""
    if isinstance(part, Thinking) and part.signature is None:
        return msgspec.structs.replace(part, signature="")
    return part


def _head(message_id: str, model: str) -> Fields:
    return {"id": message_id, "type": "message", "role": "assistant", "model": model}


def _ending(finished: ReplyFinished) -> tuple[Fields, Fields]:
    word, sequence = STOP_REASON_NAMES[finished.stop_reason], finished.stop_sequence
    said: Fields = {"stop_reason": word, "stop_sequence": sequence}
    usage = encode_usage(finished.usage)
    if finished.raw is None or finished.message.dialect != DIALECT:
        return said, usage
    own: Fields = msgspec.json.decode(finished.raw)
    said |= {name: own[name] for name in ("stop_reason", *ENDING_FIELDS) if name in own}
    counts = own.get("usage")
    return said, usage | counts if isinstance(counts, dict) else usage


def encode_usage(usage: Usage | None) -> Fields:
    """Encode token counts; thinking is part of the output."""
    counted = usage or Usage()
    fields: Fields = {
        "input_tokens": counted.input,
        "cache_creation_input_tokens": counted.cache_write,
        "cache_read_input_tokens": counted.cache_read,
        "output_tokens": counted.output + counted.reasoning,
    }
    if counted.cache_write_hour:
        fields["cache_creation"] = {
            "ephemeral_5m_input_tokens": counted.cache_write - counted.cache_write_hour,
            "ephemeral_1h_input_tokens": counted.cache_write_hour,
        }
    if counted.reasoning:
        fields["output_tokens_details"] = {"thinking_tokens": counted.reasoning}
    return fields


def encode_error(error_type: str, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": error_type, "message": message}})


def _frame(name: str, fields: Fields) -> bytes:
    data = msgspec.json.encode({"type": name, **fields})
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


PING = b'event: ping\ndata: {"type":"ping"}\n\n'
Kind = Literal["text", "refusal", "thinking", "tool_use"]
Key = tuple[Kind, int]
OPENINGS: dict[Kind, Fields] = {
    "text": {"type": "text", "text": ""},
    "refusal": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
TEXTS = (TextDelta, RefusalDelta)
KINDS: dict[type, Kind] = {
    TextDelta: "text",
    RefusalDelta: "refusal",
    ThinkingDelta: "thinking",
    ToolCallDelta: "tool_use",
}
# The bytes of a delta around its index and its value.
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
TEXT_DELTA = DELTA + b'"delta":{"type":"text_delta","text":%b}}\n\n'
THINKING_DELTA = DELTA + b'"delta":{"type":"thinking_delta","thinking":%b}}\n\n'
JSON_DELTA = DELTA + b'"delta":{"type":"input_json_delta","partial_json":%b}}\n\n'
SIGNATURE_DELTA = DELTA + b'"delta":{"type":"signature_delta","signature":%b}}\n\n'
CITATION_DELTA = DELTA + b'"delta":{"type":"citations_delta","citation":%b}}\n\n'
encode_json = msgspec.json.Encoder().encode


class AnthropicStreamEncoder:
    """Encodes one stream: reply events in, frames out.

    Blocks are opened once each, one after another. Pieces of other blocks wait until the
    arguments of an open call are complete.
    """

    def __init__(self, *, message_id: str, model: str, usage: Usage | None = None) -> None:
        self._head = _head(message_id, model)
        self._usage = encode_usage(usage)
        self._started = False
        self._open: Key | None = None
        self._index = -1
        self._arguments: list[str] = []
        self._scanner = ObjectScanner(self._arguments)
        self._signature: list[str] = []
        self._closed_calls: set[int] = set()
        self._waiting: deque[list[ReplyDelta]] = deque()
        self._waiting_calls: dict[int, list[ReplyDelta]] = {}

    def start(self) -> bytes:
        """Return the first frame, once."""
        if self._started:
            return b""
        self._started = True
        begun: Fields = {"content": [], "stop_reason": None, "stop_sequence": None}
        return _frame("message_start", {"message": {**self._head, **begun, "usage": self._usage}})

    def error(self, error_type: str, message: str) -> bytes:
        return b"event: error\ndata: %b\n\n" % encode_error(error_type, message)

    def encode(self, event: ReplyEvent) -> bytes:
        """Encode one event; empty for events that are not of the answer."""
        if isinstance(event, ReplyFinished):
            out = [self.start()]
            self._finish(event, out)
        elif isinstance(event, ReplyDelta):
            out = [] if self._started else [self.start()]
            for piece in _pieces(event):
                self._take(piece, out)
        else:
            return b""
        return b"".join(out)

    def _take(self, piece: ReplyDelta, out: list[bytes]) -> None:
        if self._belongs_to_known(piece, out):
            return
        while self._waiting and self._may_close():
            self._write_next(out)
        if self._belongs_to_known(piece, out):
            return
        if self._may_close():
            self._close(out)
            self._begin(piece, _key(piece), out)
        else:
            self._hold(piece)

    def _belongs_to_known(self, piece: ReplyDelta, out: list[bytes]) -> bool:
        key = _key(piece)
        if key is not None and key == self._open:
            self._write(piece, out)
            return True
        if not isinstance(piece, ToolCallDelta) or piece.index not in self._closed_calls:
            return False
        if piece.arguments.strip():
            raise MalformedError("a piece of a tool call that was over")
        return True

    def _hold(self, piece: ReplyDelta) -> None:
        """Queue a piece until the open call is complete, behind other pieces of its call."""
        pieces = [piece]
        if isinstance(piece, ToolCallDelta):
            known = self._waiting_calls.setdefault(piece.index, pieces)
            if known is not pieces:
                known.append(piece)
                return
        self._waiting.append(pieces)

    def _write_next(self, out: list[bytes]) -> None:
        first, *more = self._waiting.popleft()
        if isinstance(first, ToolCallDelta):
            del self._waiting_calls[first.index]
        if not self._belongs_to_known(first, out):
            self._close(out)
            self._begin(first, _key(first), out)
        for piece in more:
            self._write(piece, out)

    def _may_close(self) -> bool:
        if self._open is None or self._open[0] != "tool_use":
            return True
        return self._scanner.is_object()

    def _begin(self, piece: ReplyDelta, key: Key | None, out: list[bytes]) -> None:
        if key is None:
            self._whole(piece, out)
        else:
            self._index += 1
            self._open, self._arguments = key, []
            self._scanner = ObjectScanner(self._arguments)
            out.append(self._opening(piece, key[0]))
            self._write(piece, out)

    def _opening(self, piece: ReplyDelta, kind: Kind) -> bytes:
        block = OPENINGS.get(kind)
        if isinstance(piece, ToolCallDelta):
            call_id = piece.id or f"toolu_{self._index}"
            block = {"type": kind, "id": call_id, "name": piece.name or "", "input": {}}
        return _frame("content_block_start", {"index": self._index, "content_block": block})

    def _write(self, piece: ReplyDelta, out: list[bytes]) -> None:
        if isinstance(piece, TEXTS):
            out.append(self._delta(TEXT_DELTA, piece.text))
        elif isinstance(piece, ToolCallDelta):
            if piece.arguments:
                self._arguments.append(piece.arguments)
                out.append(self._delta(JSON_DELTA, piece.arguments))
        elif isinstance(piece, ThinkingDelta):
            if piece.text:
                out.append(self._delta(THINKING_DELTA, piece.text))
            if piece.signature:
                self._signature.append(piece.signature)
        else:
            citations = piece.part.extra.get("citations") or ()
            out.extend(self._delta(CITATION_DELTA, one) for one in citations)

    def _delta(self, form: bytes, piece: Any) -> bytes:
        return form % (self._index, encode_json(piece))

    def _whole(self, piece: ReplyDelta, out: list[bytes]) -> None:
        for block in _sayable([piece.part] if isinstance(piece, PartAdded) else []):
            self._index += 1
            start = {"index": self._index, "content_block": block}
            out.append(_frame("content_block_start", start))
            out.append(_frame("content_block_stop", {"index": self._index}))

    def _close(self, out: list[bytes]) -> None:
        if self._open is not None:
            if self._signature:
                # Clients expect a whole signature, so its pieces are joined.
                out.append(self._delta(SIGNATURE_DELTA, "".join(self._signature)))
                self._signature = []
            out.append(_frame("content_block_stop", {"index": self._index}))
            if self._open[0] == "tool_use":
                self._closed_calls.add(self._open[1])
            self._open = None

    def _finish(self, finished: ReplyFinished, out: list[bytes]) -> None:
        while self._waiting:
            self._write_next(out)
        self._close(out)
        if self._index < 0:
            self._begin(TextDelta(text=""), ("text", 0), out)
            self._close(out)
        ending, usage = _ending(finished)
        out.append(_frame("message_delta", {"delta": ending, "usage": usage}))
        out.append(_frame("message_stop", {}))


def _pieces(event: ReplyDelta) -> Iterator[ReplyDelta]:
    if isinstance(event, PartAdded):
        yield from _pieces_of_part(event)
    elif isinstance(event, ToolCallDelta) or event.text or getattr(event, "signature", None):
        yield event


def _pieces_of_part(event: PartAdded) -> Iterator[ReplyDelta]:
    part = event.part
    if isinstance(part, Unknown) and part.dialect != DIALECT:
        return
    delta = to_delta(part, event.index)
    if not isinstance(part, Text | Refusal) or part.text:
        yield delta
    if isinstance(part, Text) and part.extra.get("citations"):
        yield event


def _key(piece: ReplyDelta) -> Key | None:
    """Return the block that a piece belongs to; None for a block by itself."""
    if type(piece) is PartAdded:
        return ("text", piece.index) if isinstance(piece.part, Text) else None
    return KINDS[type(piece)], piece.index
