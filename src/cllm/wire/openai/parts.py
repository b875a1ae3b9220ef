"""OpenAI messages as typed parts and back. Unknown blocks are preserved."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    Part,
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
from cllm.wire.reasoning import REASONING_FIELDS, block_text, is_thinking, reasoning_text

Block = dict[str, Any]
ResultPart = Text | Image | Document | Unknown

DATA_URL = "data:"
BASE64 = ";base64,"
TOOL_CALLS = "tool_calls"
PART_FIELDS = frozenset({"role", "content", "refusal", TOOL_CALLS})


def decode_parts(message: Message) -> tuple[AnyPart, ...]:
    return decode_message(message)[0]


def decode_message(message: Message) -> tuple[tuple[AnyPart, ...], Mapping[str, Any]]:
    """Return the parts (thinking, content, refusal, tool calls) and the remaining non-empty fields.

    Reasoning fields are in both: a part does not record the field it came from.
    """
    fields = message.json()
    if message.role == "tool":
        return (_decode_result(fields),), EMPTY
    extra = {
        name: value
        for name, value in fields.items()
        if name not in PART_FIELDS and (value or (name in REASONING_FIELDS and value == ""))
    }
    return tuple(_decode_fields(fields)), extra


def _decode_fields(fields: Block) -> Iterator[AnyPart]:
    thinking = reasoning_text({name: fields.get(name) for name in REASONING_FIELDS})
    if thinking:
        yield Thinking(text=thinking)
    yield from _decode_content(fields.get("content"))
    if isinstance(fields.get("refusal"), str):
        yield Refusal(text=fields["refusal"])
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield _decode_call(call)


def _decode_content(content: Any) -> Iterator[AnyPart]:
    if isinstance(content, str):
        if content:
            yield Text(text=content)
        return
    for block in content if isinstance(content, list) else ():
        yield _decode_block(block)


def _decode_block(block: Any) -> AnyPart:
    kind = block.get("type") if isinstance(block, dict) else None
    decode = DECODERS.get(kind) if isinstance(kind, str) else None
    part = None if decode is None else decode(dict(block))
    return _unknown(block) if part is None else part


def _decode_text(block: Block) -> AnyPart | None:
    text = block.pop("text", None)
    return Text(text=text, **_decode_cache_and_extra(block)) if isinstance(text, str) else None


def _decode_refusal(block: Block) -> AnyPart | None:
    text = block.pop("refusal", None)
    return Refusal(text=text, **_decode_cache_and_extra(block)) if isinstance(text, str) else None


def _decode_image(block: Block) -> AnyPart | None:
    image = block.pop("image_url", None)
    # Mistral's clients, and some others, send the URL itself.
    image = {"url": image} if isinstance(image, str) else image
    if not isinstance(image, dict) or not isinstance(image.get("url"), str):
        return None
    url = image["url"]
    if set(image) - {"url"}:
        block["image_url"] = {name: value for name, value in image.items() if name != "url"}
    return Image(**image_source(url), **_decode_cache_and_extra(block))


def image_source(url: str) -> dict[str, Any]:
    """Split a data URL into media type and data; any other stays a URL."""
    head, comma, data = url.partition(BASE64)
    if url.startswith(DATA_URL) and comma:
        return {"media_type": head.removeprefix(DATA_URL), "data": data}
    return {"url": url}


def data_url(part: Image | Document) -> str | None:
    return None if part.data is None else f"{DATA_URL}{part.media_type}{BASE64}{part.data}"


def _decode_file(block: Block) -> AnyPart | None:
    file = block.pop("file", None)
    if not isinstance(file, dict):
        return None
    known = {"file_data", "file_id", "filename"}
    if set(file) - known or not all(isinstance(value, str) for value in file.values()):
        return None
    source = image_source(file["file_data"]) if "file_data" in file else {}
    if "url" in source:
        return None
    return Document(
        file_id=file.get("file_id"),
        name=file.get("filename"),
        **source,
        **_decode_cache_and_extra(block),
    )


DECODERS: dict[str, Callable[[Block], AnyPart | None]] = {
    "file": _decode_file,
    "image_url": _decode_image,
    "refusal": _decode_refusal,
    "text": _decode_text,
    "thinking": lambda block: Thinking(text=block_text(block)) if is_thinking(block) else None,
}


def _decode_call(call: Any) -> AnyPart:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return _unknown(call, field=TOOL_CALLS)
    extra = {key: call[key] for key in call if key not in ("id", "type", "function")}
    return ToolCall(
        id=str(call.get("id") or ""),
        name=function["name"],
        arguments=_as_json_text(function.get("arguments")),
        extra=extra,
    )


def _as_json_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()


def _decode_result(fields: Block) -> ToolResult:
    content = tuple(_decode_result_content(fields.get("content")))
    extra = {k: fields[k] for k in fields if k not in ("role", "content", "tool_call_id")}
    return ToolResult(call_id=str(fields.get("tool_call_id") or ""), content=content, extra=extra)


def _decode_result_content(content: Any) -> Iterator[ResultPart]:
    blocks = content if isinstance(content, list) else ()
    if isinstance(content, str) and content:
        yield Text(text=content)
    for block in blocks:
        part = _decode_block(block)
        yield part if isinstance(part, ResultPart) else _unknown(block)


def _unknown(block: Any, *, field: str = "content") -> Unknown:
    return Unknown(dialect="openai", raw=msgspec.json.encode(block), field=field)


def _decode_cache_and_extra(block: Block) -> dict[str, Any]:
    block.pop("type")
    cache_control = block.get("cache_control")
    if isinstance(cache_control, dict) and set(cache_control) <= {"type", "ttl"}:
        block.pop("cache_control")
        return {"cache": CacheMark(ttl=cache_control.get("ttl")), "extra": block}
    return {"extra": block}


def encode_parts(role: Role, parts: Sequence[AnyPart]) -> Message:
    """Encode a message; a tool result must be its only part."""
    fields = message_fields(role, parts)
    return Message(role=fields["role"], raw=msgspec.json.encode(fields))


def message_fields(role: Role, parts: Sequence[AnyPart]) -> Block:
    if len(parts) == 1 and isinstance(parts[0], ToolResult):
        result = parts[0]
        content = _encode_content(result.content) or ""
        return {"role": "tool", "tool_call_id": result.call_id, "content": content, **result.extra}
    thinking = [part.text for part in parts if isinstance(part, Thinking)]
    calls = [_encode_call(part) for part in parts if _is_call(part)]
    rest = [p for p in parts if not (_is_call(p) or isinstance(p, Thinking | RedactedThinking))]
    fields: Block = {"role": role, "content": _encode_content(rest) or (None if calls else "")}
    if thinking:
        fields["reasoning_content"] = "\n".join(thinking)
    if calls:
        fields["tool_calls"] = calls
    return fields


def _encode_content(parts: Sequence[AnyPart]) -> str | list[Any] | None:
    if not parts:
        return None
    only = parts[0]
    if len(parts) == 1 and isinstance(only, Text) and not only.extra and only.cache is None:
        return only.text
    return [_encode_block(part) for part in parts]


def _encode_block(part: AnyPart) -> Any:
    match part:
        case Text():
            return {"type": "text", "text": part.text, **_encode_cache_and_extra(part)}
        case Refusal():
            return {"type": "refusal", "refusal": part.text, **_encode_cache_and_extra(part)}
        case Image():
            return _encode_image(part)
        case Document():
            return _encode_document(part)
        case Unknown():
            return msgspec.Raw(part.raw)
        case ToolCall() | ToolResult() | Thinking() | RedactedThinking():
            raise ValueError(
                f"a part of kind {type(part).__name__} is not a block of a content list"
            )
        case _:
            assert_never(part)


def _encode_image(part: Image) -> Block:
    extra = _encode_cache_and_extra(part)
    image = {"url": data_url(part) or part.url, **extra.pop("image_url", {})}
    return {"type": "image_url", "image_url": image, **extra}


def _encode_document(part: Document) -> Block:
    if part.text is not None:
        return {"type": "text", "text": part.text, **_encode_cache_and_extra(part)}
    file = {"filename": part.name, "file_data": data_url(part), "file_id": part.file_id}
    return {
        "type": "file",
        "file": {name: value for name, value in file.items() if value is not None},
        **_encode_cache_and_extra(part),
    }


def _is_call(part: AnyPart) -> bool:
    return isinstance(part, ToolCall) or (isinstance(part, Unknown) and part.field == TOOL_CALLS)


def _encode_call(part: AnyPart) -> Any:
    if not isinstance(part, ToolCall):
        return _encode_block(part)
    function = {"name": part.name, "arguments": part.arguments}
    return {"id": part.id, "type": "function", "function": function, **part.extra}


def _encode_cache_and_extra(part: Part) -> Block:
    if part.cache is None:
        return dict(part.extra)
    ttl = {} if part.cache.ttl is None else {"ttl": part.cache.ttl}
    return {**part.extra, "cache_control": {"type": "ephemeral", **ttl}}
