"""Encodes replies of any provider as Chat Completions, whole or as SSE chunks.

`pause` and `unknown` become `length`, never `stop`: the reply is not complete.
"""

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from cllm.core.message import (
    AnyPart,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    Unknown,
)
from cllm.core.reply import (
    ModelReported,
    Noticed,
    PartAdded,
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
    Verbatim,
)
from cllm.wire.messages import to_delta
from cllm.wire.openai.fields import (
    CHOICES,
    FUNCTION_CALL,
    LOGPROBS,
    TOOL_CALLS,
    encode_usage,
    get_answer_fields,
)

FINISH_REASONS: dict[StopReason, str] = {
    "end": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "context_window": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "pause": "length",
    "unknown": "length",
}
DELTA_FIELDS = {TextDelta: "content", ThinkingDelta: "reasoning_content", RefusalDelta: "refusal"}
NO_ARGUMENTS = "{}"
DONE = b"data: [DONE]\n\n"

encode = msgspec.json.Encoder().encode


class _Function(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class _Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    index: int
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


def finish_reason(stop_reason: StopReason, *, refused: bool) -> str:
    """Return the finish reason; a refusal with text is `stop`, one without is a filter."""
    return "stop" if refused and stop_reason == "refusal" else FINISH_REASONS[stop_reason]


def encode_answer(
    parts: Sequence[AnyPart],
    *,
    stop_reason: StopReason,
    usage: Usage | None,
    model: str,
    id: str,  # noqa: A002  the protocol's name
    created: int,
    functions: bool = False,
) -> bytes:
    """Encode a whole reply, without blocks that OpenAI does not have.

    `functions`: write the first call as a legacy function call.
    """
    refused = any(isinstance(part, Refusal) for part in parts)
    message = _answer_message(parts)
    reason = finish_reason(stop_reason, refused=refused)
    if functions and TOOL_CALLS in message:
        message[FUNCTION_CALL] = message.pop(TOOL_CALLS)[0]["function"]
        reason = FUNCTION_CALL if stop_reason == "tool_calls" else reason
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    answer = {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
    }
    if usage is not None:
        answer["usage"] = encode_usage(usage)
    return encode(answer)


def encode_reply(
    finished: ReplyFinished,
    *,
    parts: Sequence[AnyPart],
    model: str | None = None,
    id: str | None = None,  # noqa: A002  the protocol's name
    created: int | None = None,
    functions: bool = False,
) -> bytes:
    """Encode a reply; `parts` are the parts of its message.

    A reply from an OpenAI provider keeps all its other fields.
    """
    if finished.message.dialect != "openai" or finished.raw is None:
        return encode_answer(
            parts,
            stop_reason=finished.stop_reason,
            usage=finished.usage,
            model=model or finished.model or "",
            id=id or "",
            created=created or 0,
            functions=functions,
        )
    values = {"id": id, "created": created, "model": model}
    changes = {name: value for name, value in values.items() if value is not None}
    if not changes:
        return finished.raw
    fields = msgspec.json.decode(finished.raw, type=dict[str, msgspec.Raw])
    return encode({**fields, **changes})


def _answer_message(parts: Sequence[AnyPart]) -> dict[str, Any]:
    calls = [
        {
            "id": part.id,
            "type": "function",
            "function": {"name": part.name, "arguments": part.arguments or NO_ARGUMENTS},
        }
        for part in parts
        if isinstance(part, ToolCall)
    ]
    text = "".join(part.text for part in parts if isinstance(part, Text))
    refusal = "".join(part.text for part in parts if isinstance(part, Refusal))
    thinking = "".join(part.text for part in parts if isinstance(part, Thinking))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text or (None if calls or refusal else ""),
        "refusal": refusal or None,
    }
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = calls
    return message


class _OpenCall(msgspec.Struct):
    index: int
    has_name: bool = False
    has_id: bool = False
    has_arguments: bool = False


class OpenAIStreamEncoder:
    """Encodes one stream: reply events in, bytes of server-sent events out.

    Ends with a finish reason, usage on request and `[DONE]`, or with an error. Nothing follows
    either.
    """

    def __init__(
        self,
        *,
        model: str,
        id: str,  # noqa: A002  the protocol's name
        created: int,
        include_usage: bool = False,
    ) -> None:
        head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = b"data: " + encode(head)[:-1]
        self._before = self._head + b',"choices":[{"index":0,"delta":'
        end = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._after = b',"logprobs":null,"finish_reason":null}]' + end
        self._end = end
        self._include_usage = include_usage
        self._calls: dict[int, _OpenCall] = {}
        self._started = False
        self._refused = False
        self._legacy = False
        self._closed = False

    def encode(self, event: ReplyEvent) -> bytes:
        """Encode one event; empty for events that OpenAI clients do not receive."""
        if self._closed:
            return b""
        match event:
            case TextDelta() | ThinkingDelta() | RefusalDelta() if event.text:
                self._refused = self._refused or isinstance(event, RefusalDelta)
                field = event.field if isinstance(event, ThinkingDelta) else None
                return self._chunk(**{field or DELTA_FIELDS[type(event)]: event.text})
            case ToolCallDelta():
                return self._call(event)
            case PartAdded():
                return self._part(event)
            case ReplyFinished():
                return self._finish(event)
            case (
                TextDelta()
                | ThinkingDelta()
                | RefusalDelta()
                | Noticed()
                | UsageReported()
                | ModelReported()
                | Verbatim()
            ):
                return b""
            case _:
                assert_never(event)

    def error(self, message: str, *, type: str, code: str | None = None) -> bytes:  # noqa: A002
        """Encode an error that ends the stream."""
        if self._closed:
            return b""
        self._closed = True
        details = {"message": message, "type": type, "code": code, "param": None}
        return b"data: " + encode({"error": details}) + b"\n\n"

    def _chunk(self, **delta: Any) -> bytes:
        return self._before + encode(self._role() | delta) + self._after

    def _call(self, event: ToolCallDelta) -> bytes:
        """Encode a piece of a call.

        Clients concatenate the pieces of every field, so a name is sent once.
        """
        call = self._calls.get(event.index)
        if call is None:
            call = self._open_call(event.index)
            call.has_id, call.has_name = event.id is not None, event.name is not None
            function = _Function(name=event.name or "", arguments=event.arguments)
            piece = _Piece(call.index, event.id or "", "function", function)
        else:
            late_id = None if call.has_id else event.id
            late_name = None if call.has_name else event.name
            if not event.arguments and late_id is None and late_name is None:
                return b""
            call.has_id = call.has_id or bool(late_id)
            call.has_name = call.has_name or bool(late_name)
            piece = _Piece(call.index, late_id, None, _Function(late_name, event.arguments))
        call.has_arguments = call.has_arguments or bool(event.arguments)
        return self._chunk(tool_calls=(piece,))

    def _open_call(self, index: int) -> _OpenCall:
        call = self._calls[index] = _OpenCall(index=len(self._calls))
        return call

    def _part(self, event: PartAdded) -> bytes:
        part = event.part
        if isinstance(part, Unknown):
            return self._extra_field(part) if part.dialect == "openai" else b""
        delta = to_delta(part, event.index)
        return b"" if isinstance(delta, PartAdded) else self.encode(delta)

    def _extra_field(self, part: Unknown) -> bytes:
        if part.field == CHOICES:
            return self._head + b',"choices":[' + part.raw + b"]" + self._end
        if part.field == LOGPROBS:
            after = b',"logprobs":' + part.raw + b',"finish_reason":null}]'
            return self._before + encode(self._role()) + after + self._end
        self._legacy = self._legacy or part.field == FUNCTION_CALL
        raw = self._with_call_indexes(part.raw) if part.field == TOOL_CALLS else part.raw
        return self._chunk(**{part.field: msgspec.Raw(raw)})

    def _with_call_indexes(self, raw: bytes) -> bytes:
        pieces = msgspec.json.decode(raw)
        for piece in pieces:
            call = self._calls.get(piece["index"])
            if call is None:
                call = self._open_call(piece["index"])
                call.has_arguments = True
            piece["index"] = call.index
        return encode(pieces)

    def _role(self) -> dict[str, Any]:
        started, self._started = self._started, True
        return {} if started else {"role": "assistant"}

    def _finish(self, event: ReplyFinished) -> bytes:
        self._closed = True
        out = [b"" if self._started else self._chunk(content="")]
        for call in self._calls.values():
            if not call.has_arguments:
                empty = _Piece(call.index, function=_Function(arguments=NO_ARGUMENTS))
                out.append(self._chunk(tool_calls=(empty,)))
        reason = finish_reason(event.stop_reason, refused=self._refused)
        if event.stop_reason == "tool_calls" and self._legacy and not self._calls:
            reason = FUNCTION_CALL
        answer_fields, usage_fields = get_answer_fields(event)
        more = b"," + encode(answer_fields)[1:-1] if answer_fields else b""
        out += [self._before, b'{},"logprobs":null,"finish_reason":', encode(reason), b"}]"]
        out += [more, self._end]
        if event.usage is not None and self._include_usage:
            counts = encode({**encode_usage(event.usage), **usage_fields})
            out += [self._head, b',"choices":[]', more, b',"usage":', counts, b"}\n\n"]
        return b"".join((*out, DONE))
