"""Responses API replies, streams and errors, decoded to reply events.

Unknown items are preserved.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Message, Refusal, Text, Thinking, ToolCall
from cllm.core.reply import (
    PartAdded,
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.errors import (
    NO_NAMES,
    UNREADABLE,
    Count,
    ErrorDetails,
    MalformedError,
    ReportedError,
    check_utf8,
)
from cllm.wire.messages import to_delta
from cllm.wire.openai.fields import UsageDetails, decode_error
from cllm.wire.responses.parts import (
    DIALECT,
    SUMMARY_SEPARATOR,
    Block,
    decode_item,
    decode_parts,
    item_kind,
)
from cllm.wire.sse import SurrogateJoiner


class _Usage(msgspec.Struct):
    input_tokens: Count
    output_tokens: Count = 0
    input_tokens_details: UsageDetails | None = None
    output_tokens_details: UsageDetails | None = None


def decode_usage(reported: Any) -> Usage | None:
    """Decode token counts; None if they are missing or invalid."""
    try:
        usage = msgspec.convert(reported, _Usage)
    except msgspec.ValidationError:
        return None
    details = usage.input_tokens_details or UsageDetails()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    reasoning = (usage.output_tokens_details or UsageDetails()).reasoning_tokens or 0
    return Usage(
        input=max(usage.input_tokens - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=max(usage.output_tokens - reasoning, 0),
        reasoning=reasoning,
    )


BAD_REQUEST = 400
STATUSES = {
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "server_is_overloaded": 503,
    "vector_store_timeout": 504,
}
BAD_REQUESTS = ("bio_policy", "data_residency", "empty_image", "image", "invalid", "misalignment")


def error_details(error: Any) -> ErrorDetails:
    """Return the details of an error, with the HTTP status of its code."""
    details = decode_error(msgspec.json.encode({"error": error}))
    status = STATUSES.get(details.code) or details.status
    if status is None and (details.too_long or details.code.startswith(BAD_REQUESTS)):
        status = BAD_REQUEST
    return msgspec.structs.replace(details, status=status)


# Items that require an action of the client.
CALL_ITEMS = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "function_call",
        "local_shell_call",
    }
)
REFUSAL = b'"refusal"'
INCOMPLETE_REASONS: dict[str, StopReason] = {
    "content_filter": "content_filter",
    "max_output_tokens": "length",
}


class _Details(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str = ""
    error: Any = None
    incomplete_details: _Details | None = None
    model: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: Any = None


_responses = msgspec.json.Decoder(_Response)


def decode_answer(body: bytes, *, names: Mapping[str, str] = NO_NAMES) -> list[ReplyEvent]:
    """Decode a whole reply to events; `names` maps aliases to tool names."""
    response = _decode_response(body)
    if response.error is not None:
        raise ReportedError(error_details(response.error))
    if response.output is None:
        raise MalformedError("a response without an output list")
    items = [_restore_name(item, names) for item in response.output]
    raw = _with_output(body, items) if names else body
    finished = _finish_reply(response, items, raw)
    parts = enumerate(decode_parts(finished.message))
    return [*(event for index, part in parts for event in _part_events(part, index)), finished]


def _decode_response(body: bytes | msgspec.Raw) -> _Response:
    try:
        check_utf8(body)
        return _responses.decode(body)
    except UNREADABLE as error:
        raise MalformedError(f"not a response: {error}") from error


def _with_output(body: bytes, items: Sequence[msgspec.Raw]) -> bytes:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**fields, "output": items})


def _finish_reply(response: _Response, items: Sequence[msgspec.Raw], raw: bytes) -> ReplyFinished:
    if response.status not in ("completed", "incomplete"):
        raise ReportedError(
            ErrorDetails(message=f"the response is {response.status or 'incomplete'}")
        )
    return ReplyFinished(
        message=_message(items),
        stop_reason=_stop_reason(response, items),
        usage=decode_usage(response.usage),
        model=response.model,
        raw=raw,
    )


def _message(items: Sequence[msgspec.Raw]) -> Message:
    content = b",".join(map(bytes, items))
    raw = msgspec.json.format(b'{"role":"assistant","content":[' + content + b"]}", indent=-1)
    return Message(role="assistant", raw=raw, dialect=DIALECT)


def _restore_name(item: msgspec.Raw, names: Mapping[str, str]) -> msgspec.Raw:
    if not names:
        return item
    fields = _item_fields(item)
    name = fields.get("name")
    if item_kind(fields) != "function_call" or not isinstance(name, str) or name not in names:
        return item
    return msgspec.Raw(msgspec.json.encode({**fields, "name": names[name]}))


def _item_fields(raw: msgspec.Raw) -> Block:
    try:
        item = msgspec.json.decode(raw)
    except UNREADABLE as error:
        raise MalformedError(f"not an item of a response: {error}") from error
    if not isinstance(item, dict):
        raise MalformedError("an item of a response that is not an object")
    return item


class _Kind(msgspec.Struct):
    type: str = ""


def _stop_reason(response: _Response, items: Sequence[msgspec.Raw]) -> StopReason:
    if response.status == "incomplete":
        reason = (response.incomplete_details or _Details()).reason
        return INCOMPLETE_REASONS.get(reason or "", "unknown")
    try:
        kinds = {msgspec.json.decode(item, type=_Kind).type for item in items}
    except UNREADABLE as error:
        raise MalformedError(f"not an item of a response: {error}") from error
    if not kinds.isdisjoint(CALL_ITEMS):
        return "tool_calls"
    return "refusal" if any(map(_is_refusal, items)) else "end"


def _is_refusal(item: msgspec.Raw) -> bool:
    if REFUSAL not in bytes(item):
        return False
    return any(isinstance(part, Refusal) for part in decode_item(_item_fields(item)))


def _part_events(part: AnyPart, index: int) -> Iterator[ReplyEvent]:
    if isinstance(part, Thinking) and isinstance(part.extra.get("id"), str):
        yield _reasoning_id_event(part.extra["id"], index)
    if not isinstance(part, Text) or part.text:
        yield to_delta(part, index)
    if isinstance(part, Text):
        for annotation in part.extra.get("annotations") or ():
            yield _annotation_event(annotation, index)


def _annotation_event(annotation: Any, index: int) -> PartAdded:
    return PartAdded(part=Text(text="", extra={"annotations": [annotation]}), index=index)


def _reasoning_id_event(item_id: str, index: int) -> PartAdded:
    """Return the id of reasoning, which the API requires back, as an empty thinking part."""
    return PartAdded(part=Thinking(text="", extra={"id": item_id}), index=index)


class _Event(msgspec.Struct):
    type: str = ""
    item_id: Any = None
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: Any = None
    annotation: Any = None
    item: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None
    code: Any = None
    message: Any = None


_events = msgspec.json.Decoder(_Event)


class _Head(msgspec.Struct):
    model: str | None = None


class _OpenItem(msgspec.Struct):
    indexes: dict[int, int] = msgspec.field(default_factory=dict)
    has_output: bool = False
    source: str = ""
    summary: int = 0


class ResponsesStreamDecoder:
    """Decodes one stream to reply events.

    The reply is complete after `response.completed` or `response.incomplete`. `reported_model` is
    that of `response.created`.
    """

    def __init__(self, *, names: Mapping[str, str] = NO_NAMES) -> None:
        self._names = names
        self._open: dict[int, _OpenItem] = {}
        self._items: dict[int, msgspec.Raw] = {}
        self._parts = 0
        self._surrogates = SurrogateJoiner()
        self._response: _Response | None = None
        self._raw = b""
        self.reported_model: str | None = None
        self._readers: dict[str, Callable[[_Event], Iterable[ReplyEvent]]] = {
            "": self._event_without_type,
            "error": self._fail,
            "response.completed": self._finish,
            "response.created": self._start,
            "response.failed": self._fail,
            "response.function_call_arguments.delta": self._arguments,
            "response.incomplete": self._finish,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.output_text.annotation.added": self._annotation,
            "response.output_text.delta": self._text,
            "response.reasoning_summary_text.delta": self._thinking,
            "response.reasoning_text.delta": self._thinking,
            "response.refusal.delta": self._text,
        }

    @property
    def done(self) -> bool:
        """Whether the last event was received."""
        return self._response is not None

    def decode(self, data: bytes) -> list[ReplyEvent]:
        """Decode the data of one event; unknown kinds are skipped."""
        try:
            event = _events.decode(data)
        except UNREADABLE as error:
            joined = self._surrogates.join(data)
            return self._skip_unknown(data, error) if joined is None else self.decode(joined)
        read = self._readers.get(event.type)
        return [] if read is None else list(read(event))

    def _skip_unknown(self, data: bytes, problem: Exception) -> list[ReplyEvent]:
        """Skip an event of an unknown kind whose fields have other types."""
        try:
            kind = msgspec.json.decode(data, type=_Kind).type
        except UNREADABLE:
            kind = ""
        if kind in self._readers:
            raise MalformedError(f"not an event of a response: {problem}") from problem
        return []

    def finish(self) -> ReplyFinished | None:
        """Return the last event, or None if the reply is incomplete."""
        if self._response is None:
            return None
        items = [item for _, item in sorted(self._items.items())]
        output = [_restore_name(item, self._names) for item in self._response.output or ()]
        if output and not self._names:
            return _finish_reply(self._response, output, self._raw)
        return _finish_reply(
            self._response, output or items, _with_output(self._raw, output or items)
        )

    def _start(self, event: _Event) -> Iterable[ReplyEvent]:
        # Only the last event must have a valid response.
        with suppress(msgspec.DecodeError):
            self.reported_model = msgspec.json.decode(event.response, type=_Head).model
        return ()

    def _item(self, event: _Event) -> _OpenItem:
        open_item = self._open.get(event.output_index)
        if open_item is None:
            open_item = self._open[event.output_index] = _OpenItem()
        return open_item

    def _part_index(self, open_item: _OpenItem, inner: int = 0) -> int:
        index = open_item.indexes.get(inner)
        if index is None:
            index = open_item.indexes[inner] = self._parts
            self._parts += 1
        return index

    def _text(self, event: _Event) -> Iterable[ReplyEvent]:
        open_item = self._item(event)
        index = self._part_index(open_item, event.content_index)
        if not isinstance(event.delta, str) or not event.delta:
            return ()
        open_item.has_output = True
        kind = RefusalDelta if event.type == "response.refusal.delta" else TextDelta
        return (kind(text=event.delta, index=index),)

    def _annotation(self, event: _Event) -> Iterator[ReplyEvent]:
        open_item = self._item(event)
        yield _annotation_event(event.annotation, self._part_index(open_item, event.content_index))

    def _thinking(self, event: _Event) -> Iterator[ReplyEvent]:
        open_item = self._item(event)
        open_item.source = open_item.source or event.type
        if open_item.source != event.type or not isinstance(event.delta, str) or not event.delta:
            return
        between = SUMMARY_SEPARATOR if event.summary_index > open_item.summary else ""
        open_item.summary = event.summary_index
        index = self._part_index(open_item)
        if not open_item.has_output and isinstance(event.item_id, str):
            yield _reasoning_id_event(event.item_id, index)
        open_item.has_output = True
        yield ThinkingDelta(text=between + event.delta, index=index)

    def _arguments(self, event: _Event) -> Iterable[ReplyEvent]:
        open_item = self._item(event)
        if not isinstance(event.delta, str) or not event.delta:
            return ()
        open_item.has_output = True
        return (ToolCallDelta(index=self._part_index(open_item), arguments=event.delta),)

    def _item_added(self, event: _Event) -> Iterator[ReplyEvent]:
        open_item = self._item(event)
        item = _item_fields(_restore_name(event.item, self._names))
        if item_kind(item) != "function_call":
            return
        for part in decode_item(item):
            if isinstance(part, ToolCall):
                open_item.has_output = bool(part.arguments)
                yield from _part_events(part, self._part_index(open_item))

    def _item_done(self, event: _Event) -> Iterator[ReplyEvent]:
        open_item = self._item(event)
        item = self._items[event.output_index] = _restore_name(event.item, self._names)
        # Texts and calls are complete with their deltas; reasoning also has a signature.
        if open_item.has_output and not open_item.source:
            return
        for inner, part in enumerate(decode_item(_item_fields(item))):
            if not open_item.has_output:
                yield from self._rest_of_part(part, open_item, inner)
            elif isinstance(part, Thinking) and part.signature:
                yield ThinkingDelta(signature=part.signature, index=self._part_index(open_item))

    def _rest_of_part(
        self, part: AnyPart, open_item: _OpenItem, inner: int
    ) -> Iterator[ReplyEvent]:
        announced = inner in open_item.indexes
        index = self._part_index(open_item, inner)
        if announced and isinstance(part, ToolCall):
            if part.arguments:
                yield ToolCallDelta(index=index, arguments=part.arguments)
        else:
            yield from _part_events(part, index)

    def _finish(self, event: _Event) -> Iterable[ReplyEvent]:
        status = event.type.removeprefix("response.")
        self._raw = bytes(event.response)
        self._response = msgspec.structs.replace(_decode_response(event.response), status=status)
        return ()

    def _event_without_type(self, event: _Event) -> Iterable[ReplyEvent]:
        if event.error is None:
            raise MalformedError("not an event of a response: it has no type")
        return self._fail(event)

    def _fail(self, event: _Event) -> Iterable[ReplyEvent]:
        error = event.error
        if event.type == "response.failed":
            error = _decode_response(event.response).error
        if error is None:
            error = {"code": event.code, "message": event.message}
        raise ReportedError(error_details(error))
