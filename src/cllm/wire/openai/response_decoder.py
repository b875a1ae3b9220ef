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
    Usage,
)
from cllm.wire.errors import NO_NAMES, UNREADABLE, MalformedError, ReportedError, check_utf8
from cllm.wire.openai.fields import (
    CHOICES,
    FUNCTION_CALL,
    LOGPROBS,
    NULL,
    TOOL_CALLS,
    StreamedFields,
    decode_error,
    decode_usage,
    error_details,
    extra_choices_notice,
    extra_field,
    join_pieces,
    other_fields,
    replace_message,
)
from cllm.wire.openai.tool_calls import (
    CallPiece,
    ToolCallBuilder,
    call_events,
    extended_piece,
    repair_calls,
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


EXTRA_FIELDS = (
    "reasoning_details",
    "annotations",
    "audio",
    FUNCTION_CALL,
    "provider_specific_fields",
)
DELTA_FIELDS = frozenset(ChunkDelta.__struct_fields__)
EVENT_FIELDS = DELTA_FIELDS.difference(EXTRA_FIELDS)


def _extended_delta(fields: dict[str, Any]) -> ExtendedDelta:
    known = {name: fields[name] for name in fields if name in DELTA_FIELDS and name != TOOL_CALLS}
    delta = msgspec.convert(known, ExtendedDelta)
    if fields.get(TOOL_CALLS):
        pieces = msgspec.convert(fields[TOOL_CALLS], list[dict[str, Any]])
        delta.tool_calls = [extended_piece(piece) for piece in pieces]
    delta.rest = {name: fields[name] for name in fields if name not in DELTA_FIELDS}
    return delta


decode_known_chunk = msgspec.json.Decoder(Chunk[ChunkDelta]).decode
_extended_chunk_decoder = msgspec.json.Decoder(Chunk[dict[str, Any]])


def decode_extended_chunk(data: bytes) -> Chunk[ChunkDelta]:
    """Decode a chunk whose deltas may have any field."""
    chunk: Any = _extended_chunk_decoder.decode(data)
    for choice in chunk.choices or ():
        choice.delta = None if choice.delta is None else _extended_delta(choice.delta)
    usual: Chunk[ChunkDelta] = chunk
    return usual


def decode_any_chunk(data: bytes) -> Chunk[ChunkDelta]:
    """Decode a chunk with unknown fields; raises MalformedError if it is no chunk."""
    try:
        return decode_extended_chunk(data)
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
REASONING_FIELD = "reasoning"
EMPTY_VALUES: tuple[Any, ...] = (None, [], {})


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: Any = None
    model: str | None = None
    usage: Any = None


_answer_decoder = msgspec.json.Decoder(_Answer)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_answer(body: bytes, *, names: Mapping[str, str] = NO_NAMES) -> list[ReplyEvent]:
    """Decode a whole reply to events; `names` maps aliases to tool names."""
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
    changed = repair_calls(choice.message, names, reply=body) or bool(names)
    finished = ReplyFinished(
        message=_reply_message(choice.message),
        stop_reason=_stop_reason(
            choice.finish_reason,
            has_calls=bool(choice.message.get(TOOL_CALLS)),
            is_refused=bool(choice.message.get("refusal")),
        ),
        usage=decode_usage(answer.usage),
        model=answer.model,
        raw=replace_message(body, choice.message) if changed else body,
    )
    notices = [extra_choices_notice()] if len(answer.choices) > 1 else []
    return [*notices, *_whole_deltas(choice.message), finished]


def _whole_deltas(message: dict[str, Any]) -> Iterator[ReplyEvent]:
    for name, field in (("reasoning_content", None), (REASONING_FIELD, REASONING_FIELD)):
        reasoning = message.get(name)
        if isinstance(reasoning, str) and reasoning:
            yield ThinkingDelta(text=reasoning, field=field)
            break
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, str) and content:
        yield TextDelta(text=content)
    elif isinstance(content, list):
        yield from _block_deltas(content)
    if isinstance(refusal, str) and refusal:
        yield RefusalDelta(text=refusal)
    yield from call_events(message.get(TOOL_CALLS))
    for name, value in message.items():
        if name not in EVENT_FIELDS and value not in EMPTY_VALUES:
            yield extra_field(name, value)


def _block_deltas(content: list[Any]) -> Iterator[TextDelta | ThinkingDelta]:
    for block in content:
        fields = block if isinstance(block, dict) else {}
        if isinstance(fields.get("text"), str):
            yield TextDelta(text=fields["text"])
        thought = fields.get("thinking")
        for piece in thought if isinstance(thought, list) else ():
            if isinstance(piece, dict) and isinstance(piece.get("text"), str):
                yield ThinkingDelta(text=piece["text"])


def _reply_message(fields: dict[str, Any]) -> Message:
    rest = {name: value for name, value in fields.items() if value not in EMPTY_VALUES}
    rest.pop("role", None)
    ordered = {"role": "assistant", "content": rest.pop("content", None), **rest}
    return Message(role="assistant", raw=msgspec.json.encode(ordered))


def _stop_reason(finish_reason: str | None, *, has_calls: bool, is_refused: bool) -> StopReason:
    """Return the stop reason.

    OpenAI reports a forced call and a refusal as `stop`. Some servers send no reason with a
    complete answer.
    """
    reason = STOP_REASONS.get(finish_reason, "unknown") if finish_reason else "end"
    if reason != "end":
        return reason
    return "tool_calls" if has_calls else "refusal" if is_refused else "end"


class OpenAIStreamDecoder:
    """Decodes one stream to reply events.

    The reply is complete after a finish reason or `[DONE]`. `done` is True after `[DONE]`.
    `reported_model` and `reported_usage` are those of the chunks so far.
    """

    def __init__(self, *, names: Mapping[str, str] = NO_NAMES) -> None:
        self._read: Callable[[bytes], Chunk[ChunkDelta]] = decode_known_chunk
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._thinking = StreamedThinking()
        self._calls = ToolCallBuilder(names)
        self._finish_reason: str | None = None
        self.done = False
        self._usage: Any = None
        self.reported_model: str | None = None
        self._first = self._ending = self._last = b"{}"
        self._surrogates = SurrogateJoiner()
        self._extra = StreamedFields()
        self._started = False
        self._has_several_choices = False

    def decode(self, data: bytes) -> list[ReplyEvent]:
        try:
            chunk = self._read(data)
        except UNREADABLE as error:
            if data.strip() == DONE:
                self.done = True
                return []
            if isinstance(error, msgspec.ValidationError):
                self._read = decode_extended_chunk
            data = self._surrogates.join(data) or data
            chunk = decode_any_chunk(data)
        if chunk.error is not None:
            raise ReportedError(error_details(chunk.error))
        self.reported_model = chunk.model or self.reported_model
        self._usage = chunk.usage or self._usage
        self._last = data
        if not self._started:
            self._started, self._first = True, data
            self._calls.first_chunk = data
        events: list[ReplyEvent] = []
        others: list[Any] | None = None
        for number, choice in enumerate(chunk.choices or ()):
            if choice.index == 0:
                self._add_choice(choice, data, events)
            else:
                others = others or msgspec.json.decode(data)[CHOICES]
                events.extend(self._other_choice(others[number]))
        return events

    def _add_choice(
        self, choice: ChunkChoice[ChunkDelta], data: bytes, events: list[ReplyEvent]
    ) -> None:
        if choice.finish_reason:
            self._finish_reason, self._ending = choice.finish_reason, data
        if choice.delta is not None:
            self._add_deltas(choice.delta, events)
        if choice.logprobs is not None:
            self._extra.add_logprobs(choice.logprobs)
            events.append(extra_field(LOGPROBS, choice.logprobs))

    def _other_choice(self, choice: Any) -> Iterator[ReplyEvent]:
        if not self._has_several_choices:
            self._has_several_choices = True
            yield extra_choices_notice()
        yield extra_field(CHOICES, choice)

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
            events.extend(self._extra_deltas(delta))

    def _add_reasoning(self, delta: ChunkDelta, events: list[ReplyEvent]) -> None:
        for name in TEXT_FIELDS:
            piece = getattr(delta, name)
            if isinstance(piece, str):
                self._reasoning.setdefault(name, []).append(piece)
        if delta.reasoning_content:
            events.append(ThinkingDelta(text=delta.reasoning_content))
        elif delta.reasoning and isinstance(delta.reasoning, str):
            events.append(ThinkingDelta(text=delta.reasoning, field=REASONING_FIELD))

    def _blocks(self, content: list[Any]) -> Iterator[ReplyEvent]:
        for block in content:
            if is_thinking(block):
                self._thinking.add(block, before=len(self._content))
            for event in _block_deltas([block]):
                if isinstance(event, TextDelta):
                    self._content.append(event.text)
                yield event

    def _extra_deltas(self, delta: ChunkDelta) -> Iterator[ReplyEvent]:
        fields = {name: getattr(delta, name) for name in EXTRA_FIELDS}
        fields |= delta.rest if isinstance(delta, ExtendedDelta) else {}
        for name, value in fields.items():
            if value not in EMPTY_VALUES:
                self._extra.add(name, value)
                yield extra_field(name, value)

    @property
    def reported_usage(self) -> Usage | None:
        return None if self._usage is None else decode_usage(self._usage)

    def finish(self) -> ReplyFinished | None:
        """Return the last event, or None if the reply is incomplete."""
        if not self.done and self._finish_reason is None:
            return None
        message = self.message()
        stop_reason = _stop_reason(
            self._finish_reason, has_calls=bool(self._calls), is_refused=bool(self._refusal)
        )
        # Free the pieces: the reply may be long.
        for pieces in (self._content, self._refusal, self._reasoning):
            pieces.clear()
        self._thinking = StreamedThinking()
        self._extra.head = self._head()
        return ReplyFinished(
            message=message,
            stop_reason=stop_reason,
            usage=decode_usage(self._usage),
            model=self.reported_model,
            raw=self._extra.whole(
                message=message.raw, finish_reason=self._finish_reason, usage=self._usage
            ),
        )

    def _head(self) -> dict[str, Any]:
        """Return the fields of the reply as a whole, from the first chunk and the last ones."""
        head: dict[str, Any] = {"id": None, "created": None, "model": self.reported_model}
        try:
            first, *others = map(_fields_decoder.decode, (self._first, self._ending, self._last))
            for name in ("id", "created"):
                head[name] = msgspec.json.decode(first.get(name, NULL))
            for chunk in (first, *others):
                fields = other_fields(chunk).items()
                decoded = {name: msgspec.json.decode(value) for name, value in fields}
                head |= {name: value for name, value in decoded.items() if value is not None}
        except UNREADABLE as error:
            raise MalformedError(f"not a chunk of a chat completion: {error}") from error
        return head

    def message(self) -> Message:
        """Return the reply so far."""
        calls = self._calls.fields()
        refusal = "".join(self._refusal)
        content = self._thinking.whole(self._content) or "".join(self._content)
        has_calls = bool(calls) or FUNCTION_CALL in self._extra.fields
        # With a call some servers require even empty reasoning back.
        blank = "" if calls else None
        reasoning = {name: "".join(pieces) or blank for name, pieces in self._reasoning.items()}
        return _reply_message(
            {
                "content": content or (None if has_calls or refusal else ""),
                "refusal": refusal or None,
                **reasoning,
                "tool_calls": calls,
                **join_pieces(self._extra.fields),
                DETAILS: self._extra.details.whole(),
            }
        )
