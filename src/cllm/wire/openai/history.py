"""Converts messages of other protocols to OpenAI messages. Does not check their order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.messages import (
    AliasRule,
    NoticeMerger,
    OutgoingMessage,
    check_not_emptied,
    replace_parts,
)
from cllm.wire.openai.options import MAX_CALL_ID
from cllm.wire.openai.parts import message_fields
from cllm.wire.reasoning import REASONING_FIELDS, TAKES_NONE, ReasoningRule, put_reasoning_text

IDS = AliasRule(allowed=None, max_length=MAX_CALL_ID)
MEDIA_PARTS = (Image, Document)
TEXT_PARTS = (Text, Unknown)
THINKING_PARTS = (Thinking, RedactedThinking)


Writable = msgspec.Raw | dict[str, Any]


class PartLocation(NamedTuple):
    """The role and path of a part, with the notices about it.

    `reasoning` defines which past reasoning the server accepts.
    """

    role: Role
    path: str
    notes: NoticeMerger
    reasoning: ReasoningRule = TAKES_NONE

    def report(self, reason: str, index: int, *, subject: str = "") -> None:
        self.notes.report(reason, f"{self.path}[{index}]", subject=subject)


def build_system_message(
    system: Sequence[AnyPart], raw: bytes | None, notes: NoticeMerger
) -> tuple[OutgoingMessage, ...]:
    """Return the system prompt as the first message; none if it is empty."""
    if raw is not None:
        return (OutgoingMessage(role="system", parts=tuple(system), raw=raw),)
    parts = _convert_parts(enumerate(system), PartLocation("system", "system", notes))
    return (OutgoingMessage(role="system", parts=tuple(parts)),) if parts else ()


def convert_messages(
    messages: Sequence[OutgoingMessage], notes: NoticeMerger, reasoning: ReasoningRule
) -> Iterator[OutgoingMessage]:
    """Convert messages to parts that OpenAI has; drop empty ones, except the newest."""
    for number, message in enumerate(messages, start=1):
        converted = _with_blank_thinking(
            convert_message(message, notes, reasoning), notes, reasoning
        )
        if converted.role != "user" or converted.parts or not message.parts:
            yield converted
        elif number < len(messages):
            notes.report("message", f"messages[{message.prompt_index}]")
        else:
            check_not_emptied(message, converted, "OpenAI")


def _with_blank_thinking(
    message: OutgoingMessage, notes: NoticeMerger, reasoning: ReasoningRule
) -> OutgoingMessage:
    """Add blank thinking to a foreign tool call if the server refuses calls without any."""
    kinds = set(map(type, message.parts))
    needs_blank = message.raw is None and ToolCall in kinds and Thinking not in kinds
    if reasoning.blank is None or not needs_blank:
        return message
    notes.report("blank", f"messages[{message.prompt_index}]")
    return replace_parts(message, (Thinking(text=reasoning.blank), *message.parts))


def convert_message(
    message: OutgoingMessage, notes: NoticeMerger, reasoning: ReasoningRule = TAKES_NONE
) -> OutgoingMessage:
    """Convert a message to parts that OpenAI has; OpenAI messages are unchanged."""
    if message.raw is not None:
        return message
    path = f"messages[{message.prompt_index}].content"
    numbered = list(enumerate(message.parts))
    if message.role == "assistant" or not _has_result(message):
        role: Role = "user" if message.role == "tool" else message.role
        parts = _convert_parts(numbered, PartLocation(role, path, notes, reasoning))
        return OutgoingMessage(role=role, parts=tuple(parts), prompt_index=message.prompt_index)
    location = PartLocation("user", path, notes)
    converted = [_convert_result(p, n, location) for n, p in numbered if isinstance(p, ToolResult)]
    media = [part for _, moved in converted for part in moved]
    others = [(number, part) for number, part in numbered if not isinstance(part, ToolResult)]
    results = [result for result, _ in converted]
    return replace_parts(message, [*results, *media, *_convert_parts(others, location)])


def encode_history(
    messages: Sequence[OutgoingMessage], reasoning: ReasoningRule = TAKES_NONE
) -> list[Writable]:
    """Encode messages, with results after their calls and in the order of the calls."""
    encoded: list[Writable] = []
    caller: OutgoingMessage | None = None
    followers: list[OutgoingMessage] = []
    for message in messages:
        if message.role == "assistant":
            encoded.extend(_encode_exchange(caller, followers, reasoning))
            caller, followers = message, []
        else:
            followers.append(message)
    encoded.extend(_encode_exchange(caller, followers, reasoning))
    return encoded


def _encode_exchange(
    caller: OutgoingMessage | None, followers: list[OutgoingMessage], reasoning: ReasoningRule
) -> Iterator[Writable]:
    if caller is not None:
        yield _encode_message(caller, reasoning)
    results: list[tuple[str, Writable]] = []
    rest: list[Writable] = []
    for message in followers:
        if not _has_result(message):
            rest.append(_encode_message(message, reasoning))
            continue
        for call_id, encoded in _encode_results(message):
            if call_id is None or caller is None:
                rest.append(encoded)
            else:
                results.append((call_id, encoded))
    if caller is not None and len(results) > 1:
        calls = [part.id for part in caller.parts if isinstance(part, ToolCall)]
        # The first of equal ids counts; results without a call are last.
        order = {call: index for index, call in reversed(list(enumerate(calls)))}
        results.sort(key=lambda result: order.get(result[0], len(order)))
    yield from (encoded for _, encoded in results)
    yield from rest


def _has_result(message: OutgoingMessage) -> bool:
    return ToolResult in map(type, message.parts)


def _encode_results(message: OutgoingMessage) -> Iterator[tuple[str | None, Writable]]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if message.raw is not None:
        yield results[0].call_id, msgspec.Raw(message.raw)
        return
    for result in results:
        yield result.call_id, _message_fields("tool", [result])
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    if rest:
        yield None, _message_fields("user", rest)


def _convert_result(
    result: ToolResult, index: int, location: PartLocation
) -> tuple[ToolResult, list[AnyPart]]:
    if result.is_error:
        location.report("error_flag", index)
    sendable_fields(result, index, location)
    inner = PartLocation("user", f"{location.path}[{index}].content", location.notes)
    content: list[Text | Image | Document | Unknown] = []
    media: list[AnyPart] = []
    for number, part in enumerate(result.content):
        converted = CONVERTERS[type(part)](part, number, inner)
        if isinstance(converted, MEDIA_PARTS):
            inner.report("media_moved", number)
            media.append(converted)
        elif isinstance(converted, TEXT_PARTS):
            content.append(converted)
    return ToolResult(call_id=result.call_id, content=tuple(content)), media


def _encode_message(message: OutgoingMessage, reasoning: ReasoningRule) -> Writable:
    if message.raw is not None:
        return msgspec.Raw(message.raw)
    parts = [part for part in message.parts if not isinstance(part, THINKING_PARTS)]
    fields = _message_fields(message.role, parts)
    thinking = [part.text for part in message.parts if isinstance(part, Thinking)]
    if thinking and message.extra.keys().isdisjoint(REASONING_FIELDS):
        put_reasoning_text(fields, "\n".join(thinking), reasoning)
    return {**fields, **message.extra} if message.extra else fields


def _message_fields(role: Role, parts: Sequence[AnyPart]) -> dict[str, Any]:
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text):
        return {"role": role, "content": only.text}
    return message_fields(role, parts)


def _convert_parts(parts: Iterable[tuple[int, AnyPart]], location: PartLocation) -> list[AnyPart]:
    result: list[AnyPart] = []
    allowed = ALLOWED[location.role]
    for index, part in parts:
        converted = CONVERTERS[type(part)](part, index, location)
        if converted is None:
            continue
        if isinstance(converted, allowed):
            result.append(converted)
        else:
            location.report("part", index, subject=type(part).__name__)
    return _without_blanks(result, location.role)


def _without_blanks(parts: list[AnyPart], role: Role) -> list[AnyPart]:
    """Drop empty text, and white space next to a call or in a system prompt."""
    needs_substance = role == "system" or any(isinstance(part, ToolCall) for part in parts)
    rest = [
        part
        for part in parts
        if not isinstance(part, Text) or (part.text.strip() if needs_substance else part.text)
    ]
    return rest or ([] if role == "system" else parts[:1])


def sendable_fields(
    part: AnyPart,
    index: int,
    location: PartLocation,
    *,
    allowed_fields: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the known extra fields; report the others and `cache_control`."""
    if part.cache is not None:
        location.report("cache_control", index)
    for name in part.extra:
        if name not in allowed_fields:
            location.notes.report("field", f"{location.path}[{index}].{name}", subject=name)
    return {name: value for name, value in part.extra.items() if name in allowed_fields}


def sendable_image(part: Image, extra: dict[str, Any]) -> Image:
    if not isinstance(extra.get("image_url", {}), dict):
        del extra["image_url"]
    return msgspec.structs.replace(part, cache=None, extra=extra)


def sendable_document(
    part: Document, index: int, location: PartLocation, extra: dict[str, Any]
) -> AnyPart:
    """Return a text document as text, and data with a name, which OpenAI requires."""
    if part.text is not None:
        if part.name is not None:
            location.report("document_name", index)
        return Text(text=part.text)
    if part.data is None:
        return msgspec.structs.replace(part, cache=None, extra=extra)
    media_type = part.media_type or "application/octet-stream"
    name = part.name or f"document.{media_type.rpartition('/')[2]}"
    return Document(media_type=media_type, data=part.data, name=name, extra=extra)


def _convert_text(part: Text | Refusal, index: int, location: PartLocation) -> Text | Refusal:
    if part.cache is None and not part.extra:
        return part
    sendable_fields(part, index, location)
    return type(part)(text=part.text)


def _convert_image(part: Image, index: int, location: PartLocation) -> Image:
    extra = sendable_fields(part, index, location, allowed_fields=frozenset({"image_url"}))
    return sendable_image(part, extra)


def _convert_document(part: Document, index: int, location: PartLocation) -> AnyPart:
    sendable_fields(part, index, location)
    if part.text is None and part.data is None:
        return Document(file_id=part.file_id, name=part.name)
    return sendable_document(part, index, location, {})


def _convert_call(part: ToolCall, index: int, location: PartLocation) -> ToolCall:
    sendable_fields(part, index, location)
    return ToolCall(id=part.id, name=part.name, arguments=part.arguments or "{}")


def _convert_thinking(part: Thinking, index: int, location: PartLocation) -> Thinking | None:
    if location.reasoning.text is None:
        return location.report("thinking", index)
    if not part.text:
        return location.report("encrypted", index) if part.signature else None
    if part.signature:
        location.report("signature", index)
    return Thinking(text=part.text)


def _drop_redacted(_: RedactedThinking, index: int, location: PartLocation) -> None:
    location.report("thinking" if location.reasoning.text is None else "encrypted", index)


def _convert_unknown(part: Unknown, index: int, location: PartLocation) -> Unknown | None:
    return part if part.dialect == "openai" else location.report("block", index)


CONVERTERS: dict[type, Callable[[Any, int, PartLocation], AnyPart | None]] = {
    Document: _convert_document,
    Image: _convert_image,
    RedactedThinking: _drop_redacted,
    Refusal: _convert_text,
    Text: _convert_text,
    Thinking: _convert_thinking,
    ToolCall: _convert_call,
    ToolResult: lambda part, _index, _location: part,
    Unknown: _convert_unknown,
}
ALLOWED: dict[Role, tuple[type, ...]] = {
    "assistant": (Text, Refusal, Thinking, ToolCall, Unknown),
    "system": (Text, Unknown),
    "tool": (Text, Unknown),
    "user": (Text, Image, Document, Unknown),
}
