"""Decodes Responses API messages to typed parts, and encodes parts.

The items of one answer are one message with the items as its content; so is the output of a tool. A
user or system message is one item. The id of reasoning is preserved: the API requires it back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec

from cllm.core.message import (
    AnyPart,
    Dialect,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.messages import EMPTY
from cllm.wire.openai.parts import data_url, image_source
from cllm.wire.responses import custom_tools
from cllm.wire.responses.custom_tools import encode_arguments
from cllm.wire.responses.ids import is_generated_id, read_provider_id

Block = dict[str, Any]
Item = Block | msgspec.Raw
ResultPart = Text | Image | Document | Unknown

DIALECT: Dialect = "responses"
ITEMS = "items"
AUTO = "auto"
SUMMARY_SEPARATOR = "\n\n"
ENVELOPE_FIELDS = ("id", "role", "status", "type")


def decode_parts(message: Message) -> tuple[AnyPart, ...]:
    fields = message.json()
    content = fields.get("content")
    if message.role == "user" and item_kind(fields) != "message":
        return tuple(decode_item(fields))
    if message.role in ("user", "system") or isinstance(content, str):
        return tuple(_decode_content(content))
    return tuple(part for item in _as_list(content) for part in decode_item(item))


def decode_message(message: Message) -> tuple[tuple[AnyPart, ...], Mapping[str, Any]]:
    """Return the parts; these messages have no other fields."""
    return decode_parts(message), EMPTY


def decode_item(item: Any) -> Iterator[AnyPart]:
    """Yield the parts of one item: a message has several, any other item is one."""
    kind = item_kind(item)
    if kind == "message":
        yield from _decode_content(item.get("content"))
        return
    decode = ITEM_DECODERS.get(kind)
    part = None if decode is None else decode(item)
    yield _unknown(item, field=ITEMS) if part is None else part


def item_kind(item: Any) -> str:
    """Return the kind of an item; one with a role and no type is a message."""
    if not isinstance(item, dict):
        return ""
    kind = item.get("type", "message" if "role" in item else "")
    return kind if isinstance(kind, str) else ""


def _decode_content(content: Any) -> Iterator[AnyPart]:
    if isinstance(content, str):
        if content:
            yield Text(text=content)
        return
    for block in _as_list(content):
        yield _decode_block(block)


def _decode_block(block: Any) -> AnyPart:
    kind = block.get("type") if isinstance(block, dict) else None
    decode = BLOCK_DECODERS.get(kind) if isinstance(kind, str) else None
    part = None if decode is None else decode(_without_fields(block, "type"))
    return _unknown(block) if part is None else part


def _decode_text(block: Block) -> Text | None:
    text = block.pop("text", None)
    # Every text has lists, most of them empty.
    extra = {name: value for name, value in block.items() if value != []}
    return Text(text=text, extra=extra) if isinstance(text, str) else None


def _decode_refusal(block: Block) -> Refusal | None:
    text = block.pop("refusal", None)
    return Refusal(text=text, extra=block) if isinstance(text, str) else None


def _decode_image(block: Block) -> Image | None:
    url, detail = block.pop("image_url", None), block.pop("detail", AUTO)
    if not isinstance(url, str) and not isinstance(block.get("file_id"), str):
        return None
    if detail != AUTO:
        block["image_url"] = {"detail": detail}
    if not isinstance(url, str):
        return Image(extra=block)
    return Image(**image_source(url), extra=block)


def _decode_file(block: Block) -> Document | None:
    sources = {name: block.pop(name, None) for name in ("file_data", "file_id", "file_url")}
    name = block.pop("filename", None)
    if not all(isinstance(value, str | None) for value in (*sources.values(), name)):
        return None
    data = sources["file_data"]
    source = {} if data is None else image_source(data)
    if "url" in source:
        return None
    source |= {"file_id": sources["file_id"], "url": sources["file_url"]}
    return Document(name=name, extra=block, **source)


BLOCK_DECODERS: dict[str, Callable[[Block], AnyPart | None]] = {
    "input_file": _decode_file,
    "input_image": _decode_image,
    "input_text": _decode_text,
    "output_text": _decode_text,
    "refusal": _decode_refusal,
}


def _decode_call(item: Block) -> ToolCall | None:
    name, arguments = item.get("name"), item.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str | None):
        return None
    extra = _without_fields(item, *ENVELOPE_FIELDS, "call_id", "name", "arguments")
    call_id = str(item.get("call_id") or "")
    return ToolCall(id=call_id, name=name, arguments=arguments or "", extra=extra)


def _decode_result(item: Block) -> ToolResult:
    parts = _decode_content(item.get("output"))
    content = tuple(
        part if isinstance(part, ResultPart) else _unknown(_encode_block(part, "input_text"))
        for part in parts
    )
    extra = _without_fields(item, *ENVELOPE_FIELDS, "call_id", "output")
    return ToolResult(call_id=str(item.get("call_id") or ""), content=content, extra=extra)


def _decode_reasoning(item: Block) -> Thinking | RedactedThinking:
    """Decode reasoning by its text or summary; redacted if it has neither.

    `extra` has the summary only if it is not one text, so that it can be restored.
    """
    encrypted = item.get("encrypted_content")
    signature = encrypted if isinstance(encrypted, str) else None
    item_id = read_provider_id(str(item.get("id") or ""))
    extra = _without_fields({**item, "id": item_id or None}, "type", "encrypted_content")
    text = reasoning_text(item)
    if extra.get("summary") == _summary(text) and not item.get("content"):
        del extra["summary"]
        extra.pop("content", None)
    if not text and signature is not None:
        return RedactedThinking(data=signature, extra=extra)
    return Thinking(text=text, signature=signature, extra=extra)


def has_generated_id(item: Block) -> bool:
    """Whether cllm generated the id of this item: OpenAI does not accept it back."""
    return is_generated_id(str(item.get("id") or ""))


def reasoning_text(item: Block) -> str:
    """Return the readable text of a reasoning item, else its summaries."""
    whole = "".join(_texts(item.get("content")))
    return whole or SUMMARY_SEPARATOR.join(_texts(item.get("summary")))


def _texts(blocks: Any) -> Iterator[str]:
    for block in _as_list(blocks):
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"]


def _decode_custom_call(item: Block) -> ToolCall | None:
    name, text = item.get("name"), item.get("input")
    if not isinstance(name, str) or not isinstance(text, str):
        return None
    return ToolCall(id=str(item.get("call_id") or ""), name=name, arguments=encode_arguments(text))


ITEM_DECODERS: dict[str, Callable[[Block], AnyPart | None]] = {
    custom_tools.CALL: _decode_custom_call,
    custom_tools.OUTPUT: _decode_result,
    "function_call": _decode_call,
    "function_call_output": _decode_result,
    "reasoning": _decode_reasoning,
}


def _unknown(block: Any, *, field: str = "content") -> Unknown:
    return Unknown(dialect=DIALECT, raw=msgspec.json.encode(block), field=field)


def _without_fields(fields: Block, *omitted: str) -> Block:
    return {
        name: fields[name] for name in fields if name not in omitted and fields[name] is not None
    }


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def encode_parts(role: Role, parts: Sequence[AnyPart]) -> Message:
    items = list(encode_items(role, parts))
    if role in ("assistant", "tool"):
        fields: Item = {"role": role, "content": items}
    elif len(items) == 1:
        fields = items[0]
    else:
        raise ValueError(f"a message of the role {role} is one item, not {len(items)}")
    return Message(role=role, raw=msgspec.json.encode(fields), dialect=DIALECT)


def encode_items(role: Role, parts: Sequence[AnyPart]) -> Iterator[Item]:
    """Yield the items of these parts; adjacent texts and media are one message item."""
    content: list[AnyPart] = []
    for part in parts:
        if is_content_part(part):
            content.append(part)
            continue
        if content:
            yield encode_message_item(role, content)
            content = []
        yield encode_item(part)
    if content or (role in ("user", "system") and not parts):
        yield encode_message_item(role, content)


def is_content_part(part: AnyPart) -> bool:
    """Whether a part belongs inside a message item; others are items."""
    if isinstance(part, Unknown):
        return part.field != ITEMS
    return isinstance(part, Text | Refusal | Image | Document)


def encode_message_item(role: Role, parts: Sequence[AnyPart]) -> Block:
    content = _encode_content(parts, "output_text" if role == "assistant" else "input_text")
    return {"type": "message", "role": role, "content": content}


def _encode_content(parts: Sequence[AnyPart], text_kind: str) -> Any:
    if not parts:
        return ""
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text) and not only.extra:
        return only.text
    return [_encode_block(part, text_kind) for part in parts]


def encode_block(part: AnyPart, role: Role) -> Any:
    return _encode_block(part, "output_text" if role == "assistant" else "input_text")


def _encode_block(part: AnyPart, text_kind: str) -> Any:
    match part:
        case Text():
            lists: Block = {"annotations": []} if text_kind == "output_text" else {}
            return {"type": text_kind, "text": part.text, **lists, **part.extra}
        case Refusal():
            return {"type": "refusal", "refusal": part.text, **part.extra}
        case Image():
            return _encode_image(part)
        case Document():
            return _encode_document(part)
        case Unknown():
            return msgspec.Raw(part.raw)
        case ToolCall() | ToolResult() | Thinking() | RedactedThinking():
            raise ValueError(f"a part of kind {type(part).__name__} is not a block of a message")
        case _:
            assert_never(part)


def _encode_image(part: Image) -> Block:
    extra = dict(part.extra)
    more = extra.pop("image_url", {})
    url = data_url(part) or part.url
    image_url = {} if url is None else {"image_url": url}
    return {"type": "input_image", "detail": AUTO, **image_url, **more, **extra}


def _encode_document(part: Document) -> Block:
    if part.text is not None:
        return {"type": "input_text", "text": part.text, **part.extra}
    file = {
        "filename": part.name,
        "file_data": data_url(part),
        "file_id": part.file_id,
        "file_url": part.url,
    }
    present = {name: value for name, value in file.items() if value is not None}
    return {"type": "input_file", **present, **part.extra}


def encode_item(part: AnyPart) -> Item:
    match part:
        case ToolCall():
            return {
                "type": "function_call",
                "call_id": part.id,
                "name": part.name,
                "arguments": part.arguments,
                **part.extra,
            }
        case ToolResult():
            return _encode_result(part)
        case Thinking():
            return _encode_reasoning(part.text, part.signature, part.extra)
        case RedactedThinking():
            return _encode_reasoning("", part.data, part.extra)
        case Unknown():
            return msgspec.Raw(part.raw)
        case Text() | Refusal() | Image() | Document():
            raise ValueError(f"a part of kind {type(part).__name__} is not an item")
        case _:
            assert_never(part)


def _encode_result(part: ToolResult) -> Block:
    output = _encode_content(part.content, "input_text")
    call = {"type": "function_call_output", "call_id": part.call_id}
    return {**call, "output": output, **part.extra}


def _encode_reasoning(text: str, encrypted: str | None, extra: Block) -> Block:
    id_field = {"id": extra["id"]} if "id" in extra else {}
    encrypted_field = {} if encrypted is None else {"encrypted_content": encrypted}
    return {"type": "reasoning", **id_field, "summary": _summary(text), **extra, **encrypted_field}


def _summary(text: str) -> list[Block]:
    return [{"type": "summary_text", "text": text}] if text else []
