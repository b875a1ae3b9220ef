"""Chat Completions answers and streams, decoded to reply events. Unknown fields are preserved."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from cllm.core.message import Message
from cllm.core.reply import (
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
)
from cllm.wire.errors import NO_NAMES, UNREADABLE, MalformedError, ReportedError, check_utf8
from cllm.wire.openai.fields import (
    CHOICES,
    FUNCTION_CALL,
    LOGPROBS,
    OF_ANSWER,
    TOOL_CALLS,
    StreamedFields,
    beside,
    decode_error,
    decode_usage,
    error_details,
    joined,
    more_choices,
    with_message,
)
from cllm.wire.openai.tool_calls import (
    BuiltCalls,
    CallPiece,
    mend_calls,
    odd_piece,
    whole_calls,
)
from cllm.wire.reasoning import DETAILS, TEXT_FIELDS, StreamedThinking, is_thinking
from cllm.wire.sse import SurrogateJoiner

__all__ = ["OpenAIStreamDecoder", "decode_answer", "decode_error"]


class ChunkDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The usual fields of a delta; with any other field it is an `ExtendedDelta`."""

    role: Any = None
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[CallPiece] | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None
    reasoning_details: list[Any] | None = None
    function_call: Any = None
    provider_specific_fields: Any = None


class ExtendedDelta(ChunkDelta, forbid_unknown_fields=False):
    """A delta with unknown fields, in `rest`."""

    rest: Any = None


D = TypeVar("D")


class ChunkChoice(msgspec.Struct, Generic[D], gc=False):
    index: int = 0
    delta: D | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class Chunk(msgspec.Struct, Generic[D], gc=False):
    choices: list[ChunkChoice[D]] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


BESIDE = ("reasoning_details", "annotations", "audio", FUNCTION_CALL, "provider_specific_fields")
NAMED = frozenset(ChunkDelta.__struct_fields__)
SPOKEN = NAMED.difference(BESIDE)


def _odd_delta(given: dict[str, Any]) -> ExtendedDelta:
    named = {name: given[name] for name in given if name in NAMED and name != TOOL_CALLS}
    delta = msgspec.convert(named, ExtendedDelta)
    if given.get(TOOL_CALLS):
        pieces = msgspec.convert(given[TOOL_CALLS], list[dict[str, Any]])
        delta.tool_calls = [odd_piece(piece) for piece in pieces]
    delta.rest = {name: given[name] for name in given if name not in NAMED}
    return delta


decode_usual = msgspec.json.Decoder(Chunk[ChunkDelta]).decode
_odd_chunks = msgspec.json.Decoder(Chunk[dict[str, Any]])


def read_odd(data: bytes) -> Chunk[ChunkDelta]:
    """Decode a chunk whose deltas may have any field."""
    chunk: Any = _odd_chunks.decode(data)
    for choice in chunk.choices or ():
        choice.delta = None if choice.delta is None else _odd_delta(choice.delta)
    usual: Chunk[ChunkDelta] = chunk
    return usual


def decode_odd(data: bytes) -> Chunk[ChunkDelta]:
    """Decode a chunk with unknown fields; raises MalformedError if it is no chunk."""
    try:
        return read_odd(data)
    except UNREADABLE as error:
        raise MalformedError(f"not a chunk of a chat completion: {error}") from error


STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
DONE = b"[DONE]"
NOTHING: tuple[Any, ...] = (None, [], {})


class _Head(msgspec.Struct):
    """Fields of the answer as a whole, read from the first and last chunk only."""

    id: Any = None
    created: Any = None
    service_tier: Any = None
    system_fingerprint: Any = None


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: Any = None
    model: str | None = None
    usage: Any = None


_answer_decoder = msgspec.json.Decoder(_Answer)
_head_decoder = msgspec.json.Decoder(_Head)


def decode_answer(body: bytes, *, names: Mapping[str, str] = NO_NAMES) -> list[ReplyEvent]:
    """Decode a whole answer to events; `names` maps aliases to tool names."""
    try:
        check_utf8(body)
        answer = _answer_decoder.decode(body)
    except UNREADABLE as error:
        raise MalformedError(f"not a chat completion: {error}") from error
    if answer.error is not None:
        raise ReportedError(error_details(answer.error))
    if not answer.choices:
        raise MalformedError("a chat completion without a choice")
    choice = answer.choices[0]
    changed = mend_calls(choice.message, names) or bool(names)
    finished = ReplyFinished(
        message=_reply_message(choice.message),
        stop_reason=_stop_reason(
            choice.finish_reason, calls=bool(choice.message.get("tool_calls"))
        ),
        usage=decode_usage(answer.usage),
        model=answer.model,
        raw=with_message(body, choice.message) if changed else body,
    )
    several = [more_choices()] if len(answer.choices) > 1 else []
    return [*several, *_whole_deltas(choice.message), finished]


def _whole_deltas(message: dict[str, Any]) -> Iterator[ReplyEvent]:
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        yield ThinkingDelta(text=reasoning)
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, str) and content:
        yield TextDelta(text=content)
    elif isinstance(content, list):
        yield from _from_blocks(content)
    if isinstance(refusal, str) and refusal:
        yield RefusalDelta(text=refusal)
    yield from whole_calls(message.get(TOOL_CALLS))
    for name, value in message.items():
        if name not in SPOKEN and value not in NOTHING:
            yield beside(name, value)


def _from_blocks(content: list[Any]) -> Iterator[TextDelta | ThinkingDelta]:
    for block in content:
        fields = block if isinstance(block, dict) else {}
        if isinstance(fields.get("text"), str):
            yield TextDelta(text=fields["text"])
        thought = fields.get("thinking")
        for piece in thought if isinstance(thought, list) else ():
            if isinstance(piece, dict) and isinstance(piece.get("text"), str):
                yield ThinkingDelta(text=piece["text"])


def _reply_message(fields: dict[str, Any]) -> Message:
    said = {name: value for name, value in fields.items() if value not in NOTHING}
    said.pop("role", None)
    ordered = {"role": "assistant", "content": said.pop("content", None), **said}
    return Message(role="assistant", raw=msgspec.json.encode(ordered))


def _stop_reason(finish_reason: str | None, *, calls: bool) -> StopReason:
    """Return the stop reason; OpenAI reports a forced call as `stop`."""
    reason = STOP_REASONS.get(finish_reason or "", "unknown")
    return "tool_calls" if calls and reason == "end" else reason


class OpenAIStreamDecoder:
    """Decodes one stream to reply events.

    The answer is complete after a finish reason or `[DONE]`. `done` is True after `[DONE]`.
    """

    def __init__(self, *, names: Mapping[str, str] = NO_NAMES) -> None:
        self._read: Callable[[bytes], Chunk[ChunkDelta]] = decode_usual
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._thoughts = StreamedThinking()
        self._calls = BuiltCalls(names)
        self._finish_reason: str | None = None
        self.done = False
        self._usage: Any = None
        self._model: str | None = None
        self._first = self._last = b"{}"
        self._halves = SurrogateJoiner()
        self._beside = StreamedFields()
        self._begun = False
        self._several = False

    def decode(self, data: bytes) -> list[ReplyEvent]:
        """Decode the data of one event."""
        try:
            chunk = self._read(data)
        except UNREADABLE as error:
            if data.strip() == DONE:
                self.done = True
                return []
            if isinstance(error, msgspec.ValidationError):
                self._read = read_odd
            data = self._halves.join(data) or data
            chunk = decode_odd(data)
        if chunk.error is not None:
            raise ReportedError(error_details(chunk.error))
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        self._last = data
        if not self._begun:
            self._begun, self._first = True, data
        events: list[ReplyEvent] = []
        others: list[Any] | None = None
        for number, choice in enumerate(chunk.choices or ()):
            if choice.index == 0:
                self._finish_reason = choice.finish_reason or self._finish_reason
                if choice.delta is not None:
                    self._add_deltas(choice.delta, events)
                if choice.logprobs is not None:
                    self._beside.add_logprobs(choice.logprobs)
                    events.append(beside(LOGPROBS, choice.logprobs))
            else:
                others = others or msgspec.json.decode(data)[CHOICES]
                events.extend(self._other_choice(others[number]))
        return events

    def _other_choice(self, choice: Any) -> Iterator[ReplyEvent]:
        if not self._several:
            self._several = True
            yield more_choices()
        yield beside(CHOICES, choice)

    def _add_deltas(self, delta: ChunkDelta, events: list[ReplyEvent]) -> None:
        if delta.reasoning_content is not None or delta.reasoning is not None:
            self._add_reasoning(delta, events)
        content = delta.content
        if content:
            if isinstance(content, str):
                self._content.append(content)
                events.append(TextDelta(text=content))
            else:
                events.extend(self._blocks(content))
        if delta.refusal:
            self._refusal.append(delta.refusal)
            events.append(RefusalDelta(text=delta.refusal))
        if delta.tool_calls:
            for piece in delta.tool_calls:
                self._calls.add(piece, events)
        if (
            type(delta) is not ChunkDelta
            or delta.annotations
            or delta.audio
            or delta.reasoning_details
            or delta.function_call
            or delta.provider_specific_fields
        ):
            events.extend(self._beside_deltas(delta))

    def _add_reasoning(self, delta: ChunkDelta, events: list[ReplyEvent]) -> None:
        for name in TEXT_FIELDS:
            piece = getattr(delta, name)
            if isinstance(piece, str):
                self._reasoning.setdefault(name, []).append(piece)
        text = delta.reasoning_content or delta.reasoning
        if text and isinstance(text, str):
            events.append(ThinkingDelta(text=text))

    def _blocks(self, content: list[Any]) -> Iterator[ReplyEvent]:
        for block in content:
            if is_thinking(block):
                self._thoughts.add(block, before=len(self._content))
            for event in _from_blocks([block]):
                if isinstance(event, TextDelta):
                    self._content.append(event.text)
                yield event

    def _beside_deltas(self, delta: ChunkDelta) -> Iterator[ReplyEvent]:
        said = {name: getattr(delta, name) for name in BESIDE}
        said |= delta.rest if isinstance(delta, ExtendedDelta) else {}
        for name, value in said.items():
            if value not in NOTHING:
                self._beside.add(name, value)
                yield beside(name, value)

    def finish(self) -> ReplyFinished | None:
        """Return the last event, or None if the answer is incomplete."""
        if not self.done and self._finish_reason is None:
            return None
        message = self.message()
        # Free the pieces: the answer may be long.
        for pieces in (self._content, self._refusal, self._reasoning):
            pieces.clear()
        self._thoughts = StreamedThinking()
        self._beside.head = self._head()
        return ReplyFinished(
            message=message,
            stop_reason=_stop_reason(self._finish_reason, calls=bool(self._calls)),
            usage=decode_usage(self._usage),
            model=self._model,
            raw=self._beside.whole(
                message=message.raw, finish_reason=self._finish_reason, usage=self._usage
            ),
        )

    def _head(self) -> dict[str, Any]:
        try:
            first, last = _head_decoder.decode(self._first), _head_decoder.decode(self._last)
        except UNREADABLE as error:
            raise MalformedError(f"not a chunk of a chat completion: {error}") from error
        said = {name: getattr(last, name) or getattr(first, name) for name in OF_ANSWER}
        return {"id": first.id, "created": first.created, "model": self._model, **said}

    def message(self) -> Message:
        """Return the reply so far."""
        calls = self._calls.fields()
        refusal = "".join(self._refusal)
        content = self._thoughts.whole(self._content) or "".join(self._content)
        asks = bool(calls) or FUNCTION_CALL in self._beside.fields
        # With a call some servers require even empty reasoning back.
        blank = "" if calls else None
        reasoning = {name: "".join(pieces) or blank for name, pieces in self._reasoning.items()}
        return _reply_message(
            {
                "content": content or (None if asks or refusal else ""),
                "refusal": refusal or None,
                **reasoning,
                "tool_calls": calls,
                **joined(self._beside.fields),
                DETAILS: self._beside.details.whole(),
            }
        )
