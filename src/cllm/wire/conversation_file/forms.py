"""Converts messages of any protocol to OpenAI messages, for a conversation file.

This form has no thinking and no `cache_control`; the file stores the original separately.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    Message,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    plain_message,
)
from cllm.wire.convert import parts_of
from cllm.wire.errors import MalformedError
from cllm.wire.openai.parts import encode_parts
from cllm.wire.reasoning import without_reasoning

FormPart = Text | Refusal | Image | Document | ToolCall


def openai_forms(message: Message) -> tuple[Message, ...]:
    """Return the messages that represent this one in a file, at least one.

    Several only if it has tool results: OpenAI has one message per result. Fields that other
    programs added are preserved.
    """
    if message.dialect == "openai":
        return (Message(role=message.role, raw=without_reasoning(message.raw)),)
    try:
        parts = parts_of(message)
    except MalformedError:
        role: Role = "user" if message.role == "tool" else message.role
        return (plain_message(role, message.text),)
    match message.role:
        case "system":
            return (encode_parts("system", _convert_parts("system", parts)),)
        case "assistant":
            form = encode_parts("assistant", _convert_parts("assistant", parts))
            return (form, *(encode_parts("tool", [_result_form(r)]) for r in _results(parts)))
        case "user" | "tool":
            return tuple(_user_forms(parts))
        case _:
            assert_never(message.role)


def _user_forms(parts: Sequence[AnyPart]) -> Iterator[Message]:
    results = _results(parts)
    for result in results:
        yield encode_parts("tool", [_result_form(result)])
    inner = [part for result in results for part in result.content]
    media = [part for part in _convert_parts("user", inner) if not isinstance(part, Text)]
    content = media + _convert_parts("user", parts)
    if content or not results:
        yield encode_parts("user", content)


def _results(parts: Sequence[AnyPart]) -> list[ToolResult]:
    return [part for part in parts if isinstance(part, ToolResult)]


def _result_form(result: ToolResult) -> ToolResult:
    texts = (part for part in _convert_parts("tool", result.content) if isinstance(part, Text))
    return ToolResult(call_id=result.call_id, content=tuple(texts))


def _convert_parts(role: Role, parts: Sequence[AnyPart]) -> list[AnyPart]:
    forms = (PART_FORMS[type(part)](part) for part in parts if type(part) in PART_FORMS)
    return [form for form in forms if form is not None and isinstance(form, ALLOWED_PARTS[role])]


def _image_form(part: Image) -> Image | None:
    if part.data is None and part.url is None:
        return None
    return Image(media_type=part.media_type, data=part.data, url=part.url)


def _document_form(part: Document) -> Document | Text:
    if part.text is not None:
        return Text(text=part.text)
    if part.data is not None:
        media_type = part.media_type or "application/octet-stream"
        name = part.name or f"document.{media_type.rpartition('/')[2]}"
        return Document(media_type=media_type, data=part.data, name=name)
    if part.file_id is not None:
        return Document(file_id=part.file_id, name=part.name)
    return Text(text=part.url or "")


PART_FORMS: dict[type, Callable[[Any], FormPart | None]] = {
    Document: _document_form,
    Image: _image_form,
    Refusal: lambda part: Refusal(text=part.text),
    Text: lambda part: Text(text=part.text),
    ToolCall: lambda part: ToolCall(id=part.id, name=part.name, arguments=part.arguments or "{}"),
}
ALLOWED_PARTS: dict[Role, tuple[type, ...]] = {
    "assistant": (Text, Refusal, ToolCall),
    "system": (Text,),
    "tool": (Text,),
    "user": (Text, Image, Document),
}
