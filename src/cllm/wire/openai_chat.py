"""OpenAI Chat Completions: requests, whole answers and streams, between JSON and values.

Carries nothing and decides nothing: a field that it has no name for stays where it stood.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.malformed import ErrorDetails, MalformedError, ProviderSaidError
from cllm.wire.reasoning import without_reasoning

STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error")


def encode_request(prompt: Prompt) -> bytes:
    """The request body: the same prompt gives the same bytes."""
    body: dict[str, Any] = {
        "model": prompt.model,
        "messages": [_encode_message(message) for message in prompt.all_messages],
    }
    body = body | prompt.parameters | body
    if prompt.stream:
        options = prompt.parameters.get("stream_options")
        chosen = options if isinstance(options, dict) else {}
        body |= {"stream": True, "stream_options": {"include_usage": True, **chosen}}
    return msgspec.json.encode(body)


def _encode_message(message: Message) -> msgspec.Raw:
    """The message's own bytes, but for reasoning, which servers refuse to be sent back."""
    if message.dialect != "openai":
        raise MalformedError(f"a message in the words of {message.dialect} has to be translated")
    return msgspec.Raw(without_reasoning(message.raw))


Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Details(msgspec.Struct):
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCallPiece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[_ToolCallPiece] | None = None


class _ChunkChoice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_ChunkChoice] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: Any = None
    model: str | None = None
    usage: Any = None


_chunk_decoder = msgspec.json.Decoder(_Chunk)
_answer_decoder = msgspec.json.Decoder(_Answer)


def decode_answer(body: bytes) -> list[ReplyEvent]:
    """The events of an answer that came in one piece."""
    try:
        answer = _answer_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"not a chat completion: {error}") from error
    if answer.error is not None:
        raise ProviderSaidError(_error_details(answer.error))
    if not answer.choices:
        raise MalformedError("a chat completion without a choice")
    choice = answer.choices[0]
    finished = ReplyFinished(
        message=_reply_message(choice.message),
        stop_reason=_stop_reason(choice.finish_reason),
        usage=_usage(answer.usage),
        model=answer.model,
        raw=body,
    )
    return [*_whole_deltas(choice.message), finished]


def _whole_deltas(message: dict[str, Any]) -> Iterator[ReplyEvent]:
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        yield ThinkingDelta(text=reasoning)
    for field in ("content", "refusal"):
        if isinstance(message.get(field), str) and message[field]:
            yield TextDelta(text=message[field])
    try:
        calls = msgspec.convert(message.get("tool_calls") or [], list[_ToolCallPiece])
    except msgspec.ValidationError as error:
        raise MalformedError(f"a tool call that cannot be read: {error}") from error
    for index, call in enumerate(calls):
        function = call.function or _Function()
        yield ToolCallDelta(
            index=index, id=call.id, name=function.name, arguments=function.arguments or ""
        )


def _reply_message(fields: dict[str, Any]) -> Message:
    """The reply as it is kept: what the provider said, without the fields it left empty."""
    said = {name: value for name, value in fields.items() if value not in (None, [], {})}
    said.pop("role", None)
    ordered = {"role": "assistant", "content": said.pop("content", None), **said}
    return Message(role="assistant", raw=msgspec.json.encode(ordered))


def _stop_reason(finish_reason: str | None) -> StopReason:
    return STOP_REASONS.get(finish_reason or "", "unknown")


def _usage(reported: Any) -> Usage | None:
    """The counts as reported. Counts that make no sense are unknown; the answer stays one."""
    try:
        usage = msgspec.convert(reported, _Usage | None)
    except msgspec.ValidationError:
        return None
    if usage is None or usage.prompt_tokens is None:
        return None
    read = (usage.prompt_tokens_details or _Details()).cached_tokens or 0
    reasoning = (usage.completion_tokens_details or _Details()).reasoning_tokens or 0
    return Usage(
        input=max(usage.prompt_tokens - read, 0),
        cache_read=read,
        output=max((usage.completion_tokens or 0) - reasoning, 0),
        reasoning=reasoning,
    )


class StreamDecoder:
    """Decodes one stream: the data of each event in, reply events out.

    The answer is whole once the provider named a finish reason or sent `[DONE]`; `finish` gives
    the last event then, and None when the stream ended before its answer did.
    """

    def __init__(self) -> None:
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _BuiltCall] = {}
        self._finish_reason: str | None = None
        self._done = False
        self._usage: Any = None
        self._model: str | None = None

    @property
    def done(self) -> bool:
        """Whether `[DONE]` came, after which nothing is read any more."""
        return self._done

    def decode(self, data: bytes) -> list[ReplyEvent]:
        """The events in one event's data."""
        if data.strip() == b"[DONE]":
            self._done = True
            return []
        try:
            chunk = _chunk_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedError(f"not a chunk of a chat completion: {error}") from error
        if chunk.error is not None:
            raise ProviderSaidError(_error_details(chunk.error))
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        events: list[ReplyEvent] = []
        for choice in chunk.choices or []:
            if choice.index == 0:
                self._finish_reason = choice.finish_reason or self._finish_reason
                if choice.delta is not None:
                    events.extend(self._deltas(choice.delta))
        return events

    def _deltas(self, delta: _Delta) -> Iterator[ReplyEvent]:
        reasoning = delta.reasoning_content or delta.reasoning
        if isinstance(reasoning, str) and reasoning:
            self._reasoning.append(reasoning)
            yield ThinkingDelta(text=reasoning)
        if delta.content:
            self._content.append(delta.content)
            yield TextDelta(text=delta.content)
        if delta.refusal:
            self._refusal.append(delta.refusal)
            yield TextDelta(text=delta.refusal)
        for piece in delta.tool_calls or []:
            yield self._call_delta(piece)

    def _call_delta(self, piece: _ToolCallPiece) -> ToolCallDelta:
        index = piece.index if piece.index is not None else self._index_for(piece)
        call = self._calls.setdefault(index, _BuiltCall())
        function = piece.function or _Function()
        call.id = call.id or piece.id
        call.name = call.name or function.name
        call.arguments.append(function.arguments or "")
        return ToolCallDelta(
            index=index, id=piece.id, name=function.name, arguments=function.arguments or ""
        )

    def _index_for(self, piece: _ToolCallPiece) -> int:
        """A piece without a number begins a call if it has an id, else goes on with the last."""
        return len(self._calls) if piece.id else max(self._calls, default=0)

    def finish(self) -> ReplyFinished | None:
        """The last event, if the answer is whole."""
        if not self._done and self._finish_reason is None:
            return None
        return ReplyFinished(
            message=self.message(),
            stop_reason=_stop_reason(self._finish_reason),
            usage=_usage(self._usage),
            model=self._model,
        )

    def message(self) -> Message:
        """The reply so far."""
        calls = [call.fields() for _, call in sorted(self._calls.items())]
        return _reply_message(
            {
                "content": "".join(self._content) or None if calls else "".join(self._content),
                "refusal": "".join(self._refusal) or None,
                "reasoning_content": "".join(self._reasoning) or None,
                "tool_calls": calls,
            }
        )


class _BuiltCall(msgspec.Struct):
    """A tool call, put together from its pieces."""

    id: str | None = None
    name: str | None = None
    arguments: list[str] = msgspec.field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        arguments = "".join(self.arguments) or "{}"
        function = {"name": self.name or "", "arguments": arguments}
        return {"id": self.id or "", "type": "function", "function": function}


def decode_error(body: bytes) -> ErrorDetails:
    """What an error body says, whatever shape it has; nothing if it is not JSON."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ErrorDetails()
    if not isinstance(decoded, dict):
        return ErrorDetails()
    return _error_details(decoded.get("error", decoded))


def _error_details(error: Any) -> ErrorDetails:
    if isinstance(error, str):
        return ErrorDetails(message=error)
    if not isinstance(error, dict):
        return ErrorDetails()
    message, kind, code = (
        "" if error.get(name) is None else str(error[name]) for name in ("message", "type", "code")
    )
    too_long = kind in TOO_LONG_CODES or code in TOO_LONG_CODES
    return ErrorDetails(message=message, type=kind, code=code, too_long=too_long)
