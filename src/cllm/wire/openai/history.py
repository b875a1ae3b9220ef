"""Messages of other protocols as OpenAI messages. The order of messages is not checked here."""

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
from cllm.wire.reasoning import REASONING_FIELDS, TAKES_NONE, ReasoningRule, put_text

IDS = AliasRule(allowed=None, longest=MAX_CALL_ID)
MEDIA = (Image, Document)
WORDS = (Text, Unknown)
OTHERS = ("anthropic", "bedrock")
THOUGHTS = (Thinking, RedactedThinking)


Writable = msgspec.Raw | dict[str, Any]


class PartLocation(NamedTuple):
    """Where a part is: role and path, with the notes about it.

    `has_files`: a file id may be OpenAI's. `reasoning` says which past reasoning the server
    accepts.
    """

    role: Role
    path: str
    notes: NoticeMerger
    has_files: bool = True
    reasoning: ReasoningRule = TAKES_NONE

    def left_out(self, reason: str, index: int, *, subject: str = "") -> None:
        self.notes.report(reason, f"{self.path}[{index}]", subject=subject)


def head(
    system: Sequence[AnyPart], raw: bytes | None, notes: NoticeMerger
) -> tuple[OutgoingMessage, ...]:
    """Return the system prompt as the first message; none if it is empty."""
    if raw is not None:
        return (OutgoingMessage(role="system", parts=tuple(system), raw=raw),)
    said = _translated(enumerate(system), PartLocation("system", "system", notes))
    return (OutgoingMessage(role="system", parts=tuple(said)),) if said else ()


def all_at_home(
    messages: Sequence[OutgoingMessage], notes: NoticeMerger, reasoning: ReasoningRule
) -> Iterator[OutgoingMessage]:
    """Convert messages to parts that OpenAI has; drop empty ones, except the newest."""
    for number, message in enumerate(messages, start=1):
        home = _with_blank(at_home(message, notes, reasoning), notes, reasoning)
        if home.role != "user" or home.parts or not message.parts:
            yield home
        elif number < len(messages):
            notes.report("message", f"messages[{message.prompt_index}]")
        else:
            check_not_emptied(message, home, "OpenAI")


def _with_blank(
    message: OutgoingMessage, notes: NoticeMerger, reasoning: ReasoningRule
) -> OutgoingMessage:
    """Add blank thinking to a foreign tool call if the server refuses calls without any."""
    kinds = set(map(type, message.parts))
    needs_blank = message.raw is None and ToolCall in kinds and Thinking not in kinds
    if reasoning.blank is None or not needs_blank:
        return message
    notes.report("blank", f"messages[{message.prompt_index}]")
    return replace_parts(message, (Thinking(text=reasoning.blank), *message.parts))


def at_home(
    message: OutgoingMessage, notes: NoticeMerger, reasoning: ReasoningRule = TAKES_NONE
) -> OutgoingMessage:
    """Convert a message to parts that OpenAI has; its own stay unchanged."""
    if message.raw is not None:
        return message
    path = f"messages[{message.prompt_index}].content"
    numbered = list(enumerate(message.parts))
    has_files = message.dialect not in OTHERS
    if message.role == "assistant" or not _has_result(message):
        role: Role = "user" if message.role == "tool" else message.role
        said = _translated(numbered, PartLocation(role, path, notes, has_files, reasoning))
        return OutgoingMessage(role=role, parts=tuple(said), prompt_index=message.prompt_index)
    location = PartLocation("user", path, notes, has_files)
    found = [_translate_result(p, n, location) for n, p in numbered if isinstance(p, ToolResult)]
    media = [part for _, moved in found for part in moved]
    others = [(number, part) for number, part in numbered if not isinstance(part, ToolResult)]
    results = [result for result, _ in found]
    return replace_parts(message, [*results, *media, *_translated(others, location)])


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
        for call_id, encoded in _encode_answering(message):
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


def _encode_answering(message: OutgoingMessage) -> Iterator[tuple[str | None, Writable]]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if message.raw is not None:
        yield results[0].call_id, msgspec.Raw(message.raw)
        return
    for result in results:
        yield result.call_id, _written("tool", [result])
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    if rest:
        yield None, _written("user", rest)


def _translate_result(
    result: ToolResult, index: int, location: PartLocation
) -> tuple[ToolResult, list[AnyPart]]:
    if result.is_error:
        location.left_out("error_flag", index)
    sendable_fields(result, index, location)
    inner = PartLocation(
        "user", f"{location.path}[{index}].content", location.notes, location.has_files
    )
    content: list[Text | Image | Document | Unknown] = []
    media: list[AnyPart] = []
    for number, part in enumerate(result.content):
        said = TRANSLATORS[type(part)](part, number, inner)
        if isinstance(said, MEDIA):
            inner.left_out("media_moved", number)
            media.append(said)
        elif isinstance(said, WORDS):
            content.append(said)
    return ToolResult(call_id=result.call_id, content=tuple(content)), media


def _encode_message(message: OutgoingMessage, reasoning: ReasoningRule) -> Writable:
    if message.raw is not None:
        return msgspec.Raw(message.raw)
    parts = [part for part in message.parts if not isinstance(part, THOUGHTS)]
    written = _written(message.role, parts)
    thinking = [part.text for part in message.parts if isinstance(part, Thinking)]
    if thinking and message.extra.keys().isdisjoint(REASONING_FIELDS):
        put_text(written, "\n".join(thinking), reasoning)
    return {**written, **message.extra} if message.extra else written


def _written(role: Role, parts: Sequence[AnyPart]) -> dict[str, Any]:
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text):
        return {"role": role, "content": only.text}
    return message_fields(role, parts)


def _translated(parts: Iterable[tuple[int, AnyPart]], location: PartLocation) -> list[AnyPart]:
    said: list[AnyPart] = []
    allowed = ALLOWED[location.role]
    for index, part in parts:
        translated = TRANSLATORS[type(part)](part, index, location)
        if translated is None:
            continue
        if isinstance(translated, allowed):
            said.append(translated)
        else:
            location.left_out("part", index, subject=type(part).__name__)
    return _without_blanks(said, location.role)


def _without_blanks(said: list[AnyPart], role: Role) -> list[AnyPart]:
    """Drop empty text, and white space beside a call or in a system prompt."""
    substance = role == "system" or any(isinstance(part, ToolCall) for part in said)
    kept = [
        part
        for part in said
        if not isinstance(part, Text) or (part.text.strip() if substance else part.text)
    ]
    return kept or ([] if role == "system" else said[:1])


def sendable_fields(
    part: AnyPart, index: int, location: PartLocation, *, known: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the known extra fields; add notices for the others and for cache marks."""
    if part.cache is not None:
        location.left_out("cache_mark", index)
    for name in part.extra:
        if name not in known:
            location.notes.report("field", f"{location.path}[{index}].{name}", subject=name)
    return {name: value for name, value in part.extra.items() if name in known}


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
            location.left_out("document_name", index)
        return Text(text=part.text)
    if part.data is None:
        return msgspec.structs.replace(part, cache=None, extra=extra)
    media_type = part.media_type or "application/octet-stream"
    name = part.name or f"document.{media_type.rpartition('/')[2]}"
    return Document(media_type=media_type, data=part.data, name=name, extra=extra)


def _translate_text(part: Text | Refusal, index: int, location: PartLocation) -> Text | Refusal:
    if part.cache is None and not part.extra:
        return part
    sendable_fields(part, index, location)
    return type(part)(text=part.text)


def _translate_image(part: Image, index: int, location: PartLocation) -> Image | None:
    if part.url is None and (part.data is None or part.media_type is None):
        return location.left_out("image", index)
    extra = sendable_fields(part, index, location, known=frozenset({"image_url"}))
    return sendable_image(part, extra)


def _translate_document(part: Document, index: int, location: PartLocation) -> AnyPart | None:
    if part.text is None and part.data is None and not (part.file_id and location.has_files):
        if part.url is None:
            return location.left_out("document", index)
        location.left_out("url_document", index)
        return Text(text=part.url)
    sendable_fields(part, index, location)
    if part.text is None and part.data is None:
        return Document(file_id=part.file_id, name=part.name)
    return sendable_document(part, index, location, {})


def _translate_call(part: ToolCall, index: int, location: PartLocation) -> ToolCall:
    sendable_fields(part, index, location)
    return ToolCall(id=part.id, name=part.name, arguments=part.arguments or "{}")


def _translate_thinking(part: Thinking, index: int, location: PartLocation) -> Thinking | None:
    if location.reasoning.text is None:
        return location.left_out("thinking", index)
    if not part.text:
        return location.left_out("sealed", index) if part.signature else None
    if part.signature:
        location.left_out("signature", index)
    return Thinking(text=part.text)


def _leave_redacted(_: RedactedThinking, index: int, location: PartLocation) -> None:
    location.left_out("thinking" if location.reasoning.text is None else "sealed", index)


def _translate_unknown(part: Unknown, index: int, location: PartLocation) -> Unknown | None:
    return part if part.dialect == "openai" else location.left_out("block", index)


TRANSLATORS: dict[type, Callable[[Any, int, PartLocation], AnyPart | None]] = {
    Document: _translate_document,
    Image: _translate_image,
    RedactedThinking: _leave_redacted,
    Refusal: _translate_text,
    Text: _translate_text,
    Thinking: _translate_thinking,
    ToolCall: _translate_call,
    ToolResult: lambda part, _index, _location: part,
    Unknown: _translate_unknown,
}
ALLOWED: dict[Role, tuple[type, ...]] = {
    "assistant": (Text, Refusal, Thinking, ToolCall, Unknown),
    "system": (Text, Unknown),
    "tool": (Text, Unknown),
    "user": (Text, Image, Document, Unknown),
}
