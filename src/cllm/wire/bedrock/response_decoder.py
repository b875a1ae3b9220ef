"""Decodes Converse responses and streams to reply events.

`providers/bedrock.py` decodes the frames and their checksums.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from cllm.core.message import Message, RedactedThinking, Text, Thinking, ToolCall
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
from cllm.wire.anthropic.events import convert_citation, get_citations, wrap_citation
from cllm.wire.bedrock.parts import decode_blocks, encode_blocks
from cllm.wire.errors import (
    NO_NAMES,
    UNREADABLE,
    Count,
    ErrorDetails,
    MalformedError,
    ReportedError,
    check_utf8,
    is_context_overflow,
    is_out_of_quota,
)
from cllm.wire.messages import to_delta


class TokenUsage(msgspec.Struct, rename="camel"):
    """Cache reads and writes are not part of the input tokens."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None
    cache_details: Any = None


class CacheDetail(msgspec.Struct, rename="camel"):
    ttl: str
    input_tokens: Count


class PromptRouter(msgspec.Struct, rename="camel"):
    invoked_model_id: str | None = None


class ConverseTrace(msgspec.Struct, rename="camel"):
    prompt_router: PromptRouter | None = None


class ConverseMetadata(msgspec.Struct):
    usage: Any = None
    trace: ConverseTrace | None = None


class ConverseMessage(msgspec.Struct):
    content: list[msgspec.Raw]


class ConverseOutput(msgspec.Struct):
    message: ConverseMessage


class ConverseMessageStop(msgspec.Struct, rename="camel"):
    stop_reason: str
    additional_model_response_fields: Any = None


class ConverseResponse(ConverseMessageStop):
    output: ConverseOutput | None = None
    usage: Any = None
    trace: ConverseTrace | None = None


class ToolStart(msgspec.Struct, rename="camel"):
    tool_use_id: str
    name: str
    type: str | None = None


class ConverseStart(msgspec.Struct, rename="camel"):
    tool_use: ToolStart | None = None
    tool_result: dict[str, Any] | None = None
    image: dict[str, Any] | None = None


class ConverseBlockStart(msgspec.Struct, rename="camel"):
    content_block_index: int
    start: ConverseStart = msgspec.field(default_factory=ConverseStart)


class ToolInput(msgspec.Struct):
    input: str = ""


class ReasoningContent(msgspec.Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class ConverseDelta(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: ToolInput | None = None
    reasoning_content: ReasoningContent | None = None
    citation: dict[str, Any] | None = None
    tool_result: list[Any] | None = None
    image: dict[str, Any] | None = None


class ConverseBlockDelta(msgspec.Struct, rename="camel"):
    content_block_index: int
    delta: ConverseDelta


class ConverseBlockStop(msgspec.Struct, rename="camel"):
    content_block_index: int


class ErrorBody(msgspec.Struct):
    message: str | None = None
    Message: str | None = None
    type: str | None = msgspec.field(default=None, name="__type")


class BuiltBlock(msgspec.Struct):
    index: int
    text: list[str] = msgspec.field(default_factory=list)
    thinking: list[str] = msgspec.field(default_factory=list)
    signature: list[str] = msgspec.field(default_factory=list)
    redacted: list[bytes] = msgspec.field(default_factory=list)
    citations: list[Any] = msgspec.field(default_factory=list)
    call: ToolStart | None = None
    input: list[str] = msgspec.field(default_factory=list)
    result: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    is_added: bool = False

    def to_block(self, names: Mapping[str, str]) -> Any:  # noqa: PLR0911
        if self.call is not None:
            extra = {} if self.call.type is None else {"type": self.call.type}
            name = names.get(self.call.name, self.call.name)
            arguments = "".join(self.input)
            call = ToolCall(id=self.call.tool_use_id, name=name, arguments=arguments, extra=extra)
            return encode_blocks(call)[0]
        if self.redacted:
            data = base64.b64encode(b"".join(self.redacted)).decode()
            return encode_blocks(RedactedThinking(data=data))[0]
        if self.thinking or self.signature:
            signature = "".join(self.signature) or None
            thinking = Thinking(text="".join(self.thinking), signature=signature)
            return encode_blocks(thinking)[0]
        if self.citations:
            content = [{"text": "".join(self.text)}]
            return {"citationsContent": {"content": content, "citations": self.citations}}
        if self.result is not None:
            return {"toolResult": self.result}
        if self.image is not None:
            return {"image": self.image}
        return {"text": "".join(self.text)}


STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_window",
    "stop_sequence": "stop_sequence",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "refusal": "refusal",
    "pause_turn": "pause",
}
INVALID_REQUEST = "validationException"
STATUSES = {
    "internalServerException": 500,
    "modelStreamErrorException": 424,
    "modelTimeoutException": 408,
    "serviceQuotaExceededException": 400,
    "serviceUnavailableException": 503,
    "throttlingException": 429,
    INVALID_REQUEST: 400,
}
HOUR = "1h"


_response_decoder = msgspec.json.Decoder(ConverseResponse)
_start_decoder = msgspec.json.Decoder(ConverseBlockStart)
_delta_decoder = msgspec.json.Decoder(ConverseBlockDelta)
_block_stop_decoder = msgspec.json.Decoder(ConverseBlockStop)
_stop_decoder = msgspec.json.Decoder(ConverseMessageStop)
_metadata_decoder = msgspec.json.Decoder(ConverseMetadata)
_error_decoder = msgspec.json.Decoder(ErrorBody)


def decode_answer(body: bytes, *, names: Mapping[str, str] = NO_NAMES) -> list[ReplyEvent]:
    """Decode a response body to events; `names` maps aliases to tool names."""
    try:
        check_utf8(body)
        response = _response_decoder.decode(body)
        if response.output is None:
            raise MalformedError("a Converse response without a message")
        blocks = [
            msgspec.Raw(msgspec.json.format(bytes(block), indent=-1))
            for block in response.output.message.content
        ]
        events, blocks = _decode_events(blocks, names)
    except UNREADABLE as error:
        raise MalformedError(f"not a Converse response: {error}") from error
    finished = ReplyFinished(
        message=_make_message(blocks),
        stop_reason=STOP_REASONS.get(response.stop_reason, "unknown"),
        stop_sequence=_get_stop_sequence(response),
        usage=_decode_usage(response.usage),
        model=_get_model(response.trace),
        raw=body,
    )
    return [*events, finished]


def _decode_events(
    blocks: list[msgspec.Raw], names: Mapping[str, str]
) -> tuple[list[ReplyEvent], list[Any]]:
    events: list[ReplyEvent] = []
    renamed: list[Any] = list(blocks)
    parts = decode_blocks(blocks)
    for index, part in enumerate(parts):
        if isinstance(part, Text):
            if part.text:
                events.append(TextDelta(text=part.text, index=index))
            citations = map(wrap_citation, get_citations(part))
            events.extend(PartAdded(part=citation, index=index) for citation in citations)
            continue
        if isinstance(part, ToolCall) and part.name in names:
            part = msgspec.structs.replace(part, name=names[part.name])  # noqa: PLW2901
            if len(parts) == len(blocks):
                renamed[index] = encode_blocks(part)[0]
        events.append(to_delta(part, index))
    return events, renamed


def _make_message(blocks: list[Any]) -> Message:
    raw = msgspec.json.encode({"role": "assistant", "content": blocks})
    return Message(role="assistant", dialect="bedrock", raw=raw)


def _get_stop_sequence(stop: ConverseMessageStop) -> str | None:
    fields = stop.additional_model_response_fields
    matched = fields.get("stop_sequence") if isinstance(fields, dict) else None
    return matched if isinstance(matched, str) else None


def _decode_usage(value: Any) -> Usage | None:
    try:
        usage = msgspec.convert(value, TokenUsage | None)
    except msgspec.ValidationError:
        return None
    if usage is None:
        return None
    details = _decode_cache_details(usage.cache_details)
    written = usage.cache_write_input_tokens
    if written is None:
        written = sum(detail.input_tokens for detail in details)
    hour = sum(detail.input_tokens for detail in details if detail.ttl == HOUR)
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_input_tokens or 0,
        cache_write=written,
        cache_write_hour=min(hour, written),
    )


def _decode_cache_details(value: Any) -> list[CacheDetail]:
    try:
        return msgspec.convert(value or [], list[CacheDetail])
    except msgspec.ValidationError:
        return []


def _get_model(trace: ConverseTrace | None) -> str | None:
    router = trace.prompt_router if trace else None
    return router.invoked_model_id if router else None


def decode_error(body: bytes, *, kind: str = "") -> ErrorDetails:
    """Decode an error body; `kind`: its type, if the headers contain it."""
    try:
        error = _error_decoder.decode(body)
    except UNREADABLE:
        error = ErrorBody()
    name = kind or (error.type or "").rpartition("#")[2]
    lowered = name[:1].lower() + name[1:]
    message = error.message or error.Message or ""
    return ErrorDetails(
        message=message,
        type=name,
        status=STATUSES.get(lowered),
        too_long=lowered == INVALID_REQUEST and is_context_overflow(message),
        out_of_quota=is_out_of_quota(message, lowered),
    )


class BedrockStreamDecoder:
    """Decodes the events of one stream, by name and payload, to reply events.

    `messageStop` completes the reply; the usage follows it.
    """

    def __init__(self, *, names: Mapping[str, str] = NO_NAMES) -> None:
        self._names = names
        self._blocks: dict[int, BuiltBlock] = {}
        self._stop: ConverseMessageStop | None = None
        self._usage: Any = None
        self._model: str | None = None
        self._decoders: dict[str, Callable[[bytes], list[ReplyEvent]]] = {
            "contentBlockDelta": self._decode_delta,
            "contentBlockStart": self._decode_start,
            "contentBlockStop": self._decode_block_stop,
            "messageStop": self._decode_stop,
            "metadata": self._decode_metadata,
        }

    def decode(self, event_name: str, payload: bytes) -> list[ReplyEvent]:
        """Decode one event; raises ReportedError for Bedrock's exceptions."""
        decode = self._decoders.get(event_name)
        if decode is None:
            if event_name.endswith(("Exception", "Error")):
                raise ReportedError(decode_error(payload, kind=event_name))
            return []
        try:
            return decode(payload)
        except UNREADABLE as error:
            raise MalformedError(f"not a Converse event: {error}") from error

    def _get_block(self, index: int) -> BuiltBlock:
        """Return the block with Converse's index; our own indexes have no gaps."""
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = BuiltBlock(index=len(self._blocks))
        return block

    def _decode_start(self, payload: bytes) -> list[ReplyEvent]:
        event = _start_decoder.decode(payload)
        block = self._get_block(event.content_block_index)
        start = event.start
        if start.tool_use is not None:
            block.call = start.tool_use
            name = self._names.get(block.call.name, block.call.name)
            return [ToolCallDelta(index=block.index, id=block.call.tool_use_id, name=name)]
        if start.tool_result is not None:
            block.result = {**start.tool_result, "content": []}
        block.image = start.image
        return []

    def _decode_delta(self, payload: bytes) -> list[ReplyEvent]:
        event = _delta_decoder.decode(payload)
        block = self._get_block(event.content_block_index)
        delta = event.delta
        if delta.text is not None:
            block.text.append(delta.text)
            return [TextDelta(text=delta.text, index=block.index)] if delta.text else []
        if delta.tool_use is not None:
            if block.call is None:
                raise MalformedError("a delta of a tool call that was not started")
            block.input.append(delta.tool_use.input)
            return [ToolCallDelta(index=block.index, arguments=delta.tool_use.input)]
        if delta.reasoning_content is not None:
            return list(_add_reasoning(block, delta.reasoning_content))
        return list(_add_other_deltas(block, delta))

    def _decode_block_stop(self, payload: bytes) -> list[ReplyEvent]:
        block = self._blocks.get(_block_stop_decoder.decode(payload).content_block_index)
        if block is None or block.is_added:
            return []
        if not block.redacted and block.result is None and block.image is None:
            return []
        block.is_added = True
        raw = msgspec.Raw(msgspec.json.encode(block.to_block(self._names)))
        return [PartAdded(part=part, index=block.index) for part in decode_blocks([raw])]

    def _decode_stop(self, payload: bytes) -> list[ReplyEvent]:
        self._stop = _stop_decoder.decode(payload)
        return []

    def _decode_metadata(self, payload: bytes) -> list[ReplyEvent]:
        metadata = _metadata_decoder.decode(payload)
        self._usage = metadata.usage or self._usage
        self._model = _get_model(metadata.trace) or self._model
        return []

    def finish(self) -> ReplyFinished | None:
        """Return the last event, or None if the reply is incomplete."""
        if self._stop is None:
            return None
        return ReplyFinished(
            message=self.message(),
            stop_reason=STOP_REASONS.get(self._stop.stop_reason, "unknown"),
            stop_sequence=_get_stop_sequence(self._stop),
            usage=_decode_usage(self._usage),
            model=self._model,
        )

    def message(self) -> Message:
        """Return the message decoded so far."""
        return _make_message([block.to_block(self._names) for block in self._blocks.values()])


def _add_reasoning(block: BuiltBlock, delta: ReasoningContent) -> Iterator[ReplyEvent]:
    if delta.redacted_content is not None:
        try:
            block.redacted.append(base64.b64decode(delta.redacted_content, validate=True))
        except ValueError as error:
            raise MalformedError(f"redacted thinking that is not base64: {error}") from error
    if delta.text is not None:
        block.thinking.append(delta.text)
    if delta.signature:
        block.signature.append(delta.signature)
    if delta.text or delta.signature:
        yield ThinkingDelta(text=delta.text or "", signature=delta.signature, index=block.index)


def _add_other_deltas(block: BuiltBlock, delta: ConverseDelta) -> Iterator[ReplyEvent]:
    if delta.citation is not None:
        block.citations.append(delta.citation)
        citation = convert_citation(delta.citation)
        if citation is not None:
            yield PartAdded(part=wrap_citation(citation), index=block.index)
    if delta.tool_result is not None:
        block.result = block.result or {"content": []}
        block.result["content"] += delta.tool_result
    if delta.image is not None:
        block.image = block.image or {}
        block.image |= delta.image
