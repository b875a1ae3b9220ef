"""Decodes Anthropic's responses, streams and errors to reply events.

Unknown blocks are preserved.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, assert_never

import msgspec

from cllm.core.message import AnyPart, Message, Text
from cllm.core.reply import (
    PartAdded,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.anthropic.events import (
    KNOWN_DELTAS,
    KNOWN_EVENTS,
    AnthropicCitationDelta,
    AnthropicJsonDelta,
    AnthropicSignatureDelta,
    AnthropicTextDelta,
    AnthropicThinkingDelta,
    AnyAnthropicDelta,
    BlockDelta,
    BlockStart,
    BlockStop,
    ErrorEvent,
    MessageDelta,
    MessageStart,
    MessageStop,
    decode_error,
    error_details,
    event_decoder,
    unknown_event_decoder,
    wrap_citation,
)
from cllm.wire.anthropic.parts import DIALECT, decode_block, decode_parts
from cllm.wire.errors import (
    NO_NAMES,
    UNREADABLE,
    Count,
    MalformedError,
    ReportedError,
    check_utf8,
)
from cllm.wire.messages import to_delta
from cllm.wire.sse import SurrogateJoiner
from cllm.wire.tool_arguments import to_json_object

__all__ = ["AnthropicStreamDecoder", "decode_answer", "decode_error"]


class _OutputDetails(msgspec.Struct):
    thinking_tokens: Count | None = None


class _Usage(msgspec.Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: dict[str, Count | None] | None = None
    output_tokens_details: _OutputDetails | None = None


def decode_usage(value: Any) -> Usage | None:
    """Decode token counts; None if they are missing or invalid."""
    try:
        usage = msgspec.convert(value, _Usage)
    except msgspec.ValidationError:
        return None
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    details = usage.output_tokens_details
    output = usage.output_tokens or 0
    thinking = min((details.thinking_tokens if details is not None else 0) or 0, output)
    written = usage.cache_creation_input_tokens
    if written is None:
        written = sum(count or 0 for count in (usage.cache_creation or {}).values())
    hour = (usage.cache_creation or {}).get("ephemeral_1h_input_tokens") or 0
    return Usage(
        input=usage.input_tokens or 0,
        cache_read=usage.cache_read_input_tokens or 0,
        cache_write=written,
        cache_write_hour=min(hour, written),
        output=output - thinking,
        reasoning=thinking,
    )


Fields = dict[str, Any]

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_window",
    "pause_turn": "pause",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
}


class _Response(msgspec.Struct):
    type: str = ""
    error: Any = None
    content: msgspec.Raw = msgspec.Raw(b"")
    model: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Any = None


_response_decoder = msgspec.json.Decoder(_Response)


def decode_answer(body: bytes, *, names: Mapping[str, str] = NO_NAMES) -> list[ReplyEvent]:
    """Decode a response body to events; its content is preserved byte for byte.

    Only tool aliases are replaced by the client's `names`.
    """
    finished = _decode_finished(body, names)
    parts = enumerate(decode_parts(finished.message))
    return [*(event for index, part in parts for event in _part_events(part, index)), finished]


def _decode_finished(body: bytes, names: Mapping[str, str] = NO_NAMES) -> ReplyFinished:
    try:
        check_utf8(body)
        response = _response_decoder.decode(body)
    except UNREADABLE as error:
        raise MalformedError(f"not an Anthropic message: {error}") from error
    if response.type == "error" or response.error is not None:
        raise ReportedError(error_details(response.error))
    content = bytes(response.content)
    if not content.startswith(b"["):
        raise MalformedError("a response without a list of content")
    if names:
        content = _replace_aliases(content, names)
        body = msgspec.json.encode({**_block_decoder.decode(body), "content": msgspec.Raw(content)})
    return ReplyFinished(
        message=_make_message(content),
        stop_reason=STOP_REASONS.get(response.stop_reason or "", "unknown"),
        stop_sequence=response.stop_sequence,
        usage=decode_usage(response.usage),
        model=response.model,
        raw=body,
    )


def _replace_aliases(content: bytes, names: Mapping[str, str]) -> bytes:
    try:
        blocks = msgspec.json.decode(content, type=list[dict[str, msgspec.Raw]])
    except UNREADABLE as error:
        raise MalformedError(f"not a list of blocks: {error}") from error
    return msgspec.json.encode([_replace_alias(block, names) for block in blocks])


def _replace_alias(block: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    if _as_text(block.get("type")) != "tool_use":
        return block
    name = _as_text(block.get("name"))
    return {**block, "name": names[name]} if name in names else block


def _make_message(content: bytes) -> Message:
    raw = b'{"role":"assistant","content":' + content + b"}"
    return Message(role="assistant", raw=raw, dialect=DIALECT)


def _part_events(part: AnyPart, index: int) -> Iterator[ReplyEvent]:
    if not isinstance(part, Text):
        yield to_delta(part, index)
        return
    if part.text:
        yield TextDelta(text=part.text, index=index)
    for citation in _as_list(part.extra.get("citations")):
        yield _citation_event(citation, index)


def _citation_event(citation: Any, index: int) -> PartAdded:
    return PartAdded(part=wrap_citation(citation), index=index)


_block_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Block(msgspec.Struct):
    fields: dict[str, Any]
    kind: str
    texts: dict[str, list[str]] = msgspec.field(default_factory=dict)
    citations: list[Any] = msgspec.field(default_factory=list)
    is_complete: bool = False

    def add(self, field: str, text: str) -> None:
        self.texts.setdefault(field, []).append(text)

    def encode(self) -> bytes:
        fields = dict(self.fields)
        for name, texts in self.texts.items():
            text = "".join(texts)
            if name == "input":
                fields[name] = (
                    msgspec.Raw(to_json_object(text).encode()) if text else fields.get(name, {})
                )
            else:
                fields[name] = _as_text(fields.get(name)) + text
        if self.citations:
            fields["citations"] = [*_as_list(fields.get("citations")), *self.citations]
        return msgspec.json.encode(fields)


def _as_text(raw: Any) -> str:
    value = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw
    return value if isinstance(value, str) else ""


def _as_list(raw: Any) -> list[Any]:
    value = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw
    return value if isinstance(value, list) else []


class AnthropicStreamDecoder:
    """Decodes one stream to reply events.

    `message_stop` completes the reply and sets `done`. `reported_model` and `reported_usage` are
    those of the events so far.
    """

    def __init__(self, *, names: Mapping[str, str] = NO_NAMES) -> None:
        self._names = names
        self._fields: Fields = {}
        self._usage: Fields = {}
        self._blocks: dict[int, _Block] = {}
        self._surrogates = SurrogateJoiner()
        self.reported_model: str | None = None
        self.reported_usage: Usage | None = None
        self.done = False

    def decode(self, name: str, data: bytes) -> list[ReplyEvent]:
        """Decode one event; `name` is used only if the data is not valid JSON."""
        try:
            event = event_decoder.decode(data)
        except msgspec.ValidationError as error:
            return self._decode_loosely(name, data, error)
        except UNREADABLE as error:
            joined = self._surrogates.join(data)
            if joined is None:
                raise MalformedError(f"not an event of a message: {error}") from error
            return self.decode(name, joined)
        if type(event) is BlockDelta:
            return self._decode_delta(event.index, event.delta)
        return self._decode_event(event)

    def _decode_event(self, event: Any) -> list[ReplyEvent]:
        match event:
            case BlockStart():
                return self._start_block(event)
            case BlockStop():
                return self._stop_block(event.index)
            case MessageStart():
                self._start_message(event.message)
            case MessageDelta():
                self._update_message(event)
            case MessageStop():
                return self._stop_message()
            case ErrorEvent():
                raise ReportedError(error_details(event.error))
        return []

    def _decode_loosely(self, name: str, data: bytes, problem: Exception) -> list[ReplyEvent]:
        try:
            event = unknown_event_decoder.decode(data)
        except UNREADABLE as error:
            if name == "error":
                raise ReportedError(decode_error(data)) from error
            raise MalformedError(f"not an event of a message: {error}") from error
        if event.type not in KNOWN_EVENTS:
            return []
        kind = None if event.delta is None else event.delta.pop("type", None)
        unknown_delta = isinstance(kind, str) and kind not in KNOWN_DELTAS
        if event.type != "content_block_delta" or not unknown_delta or event.index is None:
            raise MalformedError(f"not an event of a message: {problem}") from problem
        self._merge(self._get_block(event.index), event.delta or {})
        return []

    def _merge(self, block: _Block, delta: Fields) -> None:
        for name, value in delta.items():
            if isinstance(value, str):
                block.add(name, value)
            elif isinstance(value, list):
                values = block.fields[name] = _as_list(block.fields.get(name))
                values += value
            else:
                block.fields[name] = value

    def _get_block(self, index: int) -> _Block:
        block = self._blocks.get(index)
        if block is None:
            raise MalformedError(f"a delta for block {index}, which was not started")
        return block

    def _start_message(self, message: Fields) -> None:
        if self._fields:
            raise MalformedError("a second message_start")
        self._fields = message
        model = message.get("model")
        self.reported_model = model if isinstance(model, str) else None
        usage = message.get("usage")
        self._usage = usage if isinstance(usage, dict) else {}
        self.reported_usage = decode_usage(self._usage)

    def _update_message(self, event: MessageDelta) -> None:
        self._fields.update(event.delta)
        if event.context_management is not msgspec.UNSET:
            self._fields["context_management"] = event.context_management
        usage = event.usage or {}
        self._usage.update({name: count for name, count in usage.items() if count is not None})
        self.reported_usage = decode_usage(self._usage)

    def _start_block(self, event: BlockStart) -> list[ReplyEvent]:
        try:
            check_utf8(event.content_block)
            fields = _block_decoder.decode(event.content_block)
            kind = msgspec.json.decode(fields["type"], type=str)
        except (*UNREADABLE, KeyError) as error:
            raise MalformedError(f"not a content block: {error}") from error
        if event.index in self._blocks:
            raise MalformedError(f"block {event.index} was started twice")
        if self._names:
            fields = _replace_alias(fields, self._names)
        self._blocks[event.index] = _Block(fields=fields, kind=kind)
        first = BLOCK_STARTERS[kind](fields, event.index) if kind in BLOCK_STARTERS else None
        return [] if first is None else [first]

    def _decode_delta(self, index: int, delta: AnyAnthropicDelta) -> list[ReplyEvent]:
        block = self._get_block(index)
        match delta:
            case AnthropicTextDelta():
                block.add("text", delta.text)
                return [TextDelta(text=delta.text, index=index)]
            case AnthropicJsonDelta():
                block.add("input", delta.partial_json)
                if block.kind != "tool_use" or not delta.partial_json:
                    return []
                return [ToolCallDelta(index=index, arguments=delta.partial_json)]
            case AnthropicThinkingDelta():
                block.add("thinking", delta.thinking)
                return [ThinkingDelta(text=delta.thinking, index=index)]
            case AnthropicSignatureDelta():
                block.add("signature", delta.signature)
                return [ThinkingDelta(signature=delta.signature, index=index)]
            case AnthropicCitationDelta():
                block.citations.append(delta.citation)
                return [_citation_event(delta.citation, index)]
            case _:
                assert_never(delta)

    def _stop_block(self, index: int) -> list[ReplyEvent]:
        block = self._get_block(index)
        if block.is_complete or block.kind in BLOCK_STARTERS:
            return []
        block.is_complete = True
        return [PartAdded(part=decode_block(block.encode()), index=index)]

    def _stop_message(self) -> list[ReplyEvent]:
        if not self._fields:
            raise MalformedError("a message_stop without a message_start")
        self.done = True
        return [event for index in self._blocks for event in self._stop_block(index)]

    def finish(self) -> ReplyFinished | None:
        """Return the last event, or None if the reply is incomplete."""
        if not self.done:
            return None
        content = msgspec.Raw(self._encode_content())
        body = {**self._fields, "content": content, "usage": self._usage}
        return _decode_finished(msgspec.json.encode(body))

    def message(self) -> Message:
        """Return the message decoded so far."""
        return _make_message(self._encode_content())

    def _encode_content(self) -> bytes:
        return b"[" + b",".join(block.encode() for _, block in sorted(self._blocks.items())) + b"]"


def _start_text(fields: dict[str, msgspec.Raw], index: int) -> ReplyEvent | None:
    text = _as_text(fields.get("text"))
    return TextDelta(text=text, index=index) if text else None


def _start_thinking(fields: dict[str, msgspec.Raw], index: int) -> ReplyEvent | None:
    text, signature = _as_text(fields.get("thinking")), _as_text(fields.get("signature"))
    delta = ThinkingDelta(text=text, signature=signature or None, index=index)
    return delta if text or signature else None


def _start_call(fields: dict[str, msgspec.Raw], index: int) -> ReplyEvent:
    text = bytes(fields.get("input", b"")).decode()
    arguments = "" if text.replace(" ", "") in ("", "{}") else text
    call_id, name = _as_text(fields.get("id")), _as_text(fields.get("name"))
    return ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments)


BLOCK_STARTERS: dict[str, Callable[[dict[str, msgspec.Raw], int], ReplyEvent | None]] = {
    "text": _start_text,
    "thinking": _start_thinking,
    "tool_use": _start_call,
}
