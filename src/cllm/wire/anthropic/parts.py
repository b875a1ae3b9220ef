"""Decodes Anthropic messages to typed parts and encodes them. Unknown blocks are preserved.

Known blocks are decoded by typed structs in one pass, a message with any other block one by one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.errors import UNREADABLE, MalformedError, NotExpressibleError
from cllm.wire.messages import EMPTY
from cllm.wire.tool_arguments import is_json, unwrap_arguments, wrap_arguments

Block = dict[str, Any]
ResultPart = Text | Image | Document | Unknown

DIALECT: Literal["anthropic"] = "anthropic"
ENVELOPE = ("role", "content")


class _TypedBlock(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    """A block or a source; one with another field is decoded by `_decode_with_extra`."""


class _CacheControl(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["ephemeral"]
    ttl: str | msgspec.UnsetType = msgspec.UNSET


CacheControl = _CacheControl | msgspec.UnsetType
Rest = Any | msgspec.UnsetType


class _Base64(_TypedBlock, tag="base64"):
    media_type: str
    data: str


class _PlainText(_TypedBlock, tag="text"):
    media_type: str
    data: str


class _Url(_TypedBlock, tag="url"):
    url: str


class _File(_TypedBlock, tag="file"):
    file_id: str


class _Text(_TypedBlock, tag="text"):
    text: str
    citations: Rest = msgspec.UNSET
    cache_control: CacheControl = msgspec.UNSET


class _Content(_TypedBlock, tag="content"):
    content: str | list[_Text]


class _Image(_TypedBlock, tag="image"):
    source: _Base64 | _Url
    transformations: Rest = msgspec.UNSET
    cache_control: CacheControl = msgspec.UNSET


class _Document(_TypedBlock, tag="document"):
    source: _Base64 | _PlainText | _Url | _File | _Content
    title: str | msgspec.UnsetType = msgspec.UNSET
    context: Rest = msgspec.UNSET
    citations: Rest = msgspec.UNSET
    cache_control: CacheControl = msgspec.UNSET


class _ToolUse(_TypedBlock, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw
    caller: Rest = msgspec.UNSET
    toolset_name: Rest = msgspec.UNSET
    cache_control: CacheControl = msgspec.UNSET


class _ToolResult(_TypedBlock, tag="tool_result"):
    tool_use_id: str
    content: str | list[_Text | _Image | _Document] | msgspec.UnsetType = msgspec.UNSET
    is_error: bool = False
    toolset_name: Rest = msgspec.UNSET
    cache_control: CacheControl = msgspec.UNSET


class _Thinking(_TypedBlock, tag="thinking"):
    thinking: str
    signature: str | None = None


class _RedactedThinking(_TypedBlock, tag="redacted_thinking"):
    data: str


_AnyBlock = _Text | _Image | _Document | _ToolUse | _ToolResult | _Thinking | _RedactedThinking


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[_AnyBlock] | None = None


class _LooseMessage(msgspec.Struct):
    content: str | list[msgspec.Raw] | None = None


class _LooseResult(msgspec.Struct):
    content: str | list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


_messages = msgspec.json.Decoder(_Message)
_loose_messages = msgspec.json.Decoder(_LooseMessage)
_loose_results = msgspec.json.Decoder(_LooseResult)
_blocks = msgspec.json.Decoder(_AnyBlock)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_parts(message: Message) -> tuple[AnyPart, ...]:
    return decode_message(message)[0]


def decode_message(message: Message) -> tuple[tuple[AnyPart, ...], Mapping[str, Any]]:
    """Return the parts of a message, and its other non-empty fields."""
    try:
        content = _messages.decode(message.raw).content
    except msgspec.ValidationError:
        return _decode_loosely(message.raw)
    except UNREADABLE as error:
        raise MalformedError(f"not a message: {error}") from error
    if isinstance(content, str):
        return (Text(text=content),) if content else (), EMPTY
    return tuple([DECODERS[type(block)](block) for block in content or ()]), EMPTY


def _decode_loosely(raw: bytes) -> tuple[tuple[AnyPart, ...], Mapping[str, Any]]:
    try:
        content = _loose_messages.decode(raw).content
        fields = msgspec.json.decode(raw)
    except UNREADABLE as error:
        raise MalformedError(f"not a message: {error}") from error
    extra = {name: fields[name] for name in fields if name not in ENVELOPE and fields[name]}
    if isinstance(content, str):
        return (Text(text=content),) if content else (), extra
    return tuple([decode_block(bytes(block)) for block in content or ()]), extra


def decode_block(raw: bytes) -> AnyPart:
    """Decode one block: a known kind with other fields in `extra`, or Unknown."""
    try:
        block = _blocks.decode(raw)
    except msgspec.ValidationError:
        return _decode_with_extra(raw) or Unknown(dialect=DIALECT, raw=raw)
    except UNREADABLE as error:
        raise MalformedError(f"not a content block: {error}") from error
    part: AnyPart = DECODERS[type(block)](block)
    return part


def _decode_with_extra(raw: bytes) -> AnyPart | None:
    try:
        fields = _fields.decode(raw)
        kind = msgspec.json.decode(fields["type"], type=str)
        decoded = set(DECODED_FIELDS[kind])
        known = {name: value for name, value in fields.items() if name in decoded}
        extra = {name: msgspec.json.decode(fields[name]) for name in fields if name not in decoded}
    except (*UNREADABLE, KeyError):
        return None
    for name in [name for name in OPTIONAL_FIELDS if name in known]:
        if not _is_valid(name, known[name]):
            extra[name] = msgspec.json.decode(known.pop(name))
    if kind == "tool_result":
        return _decode_loose_result(raw, known, extra)
    return _with_extra(known, extra)


def _is_valid(name: str, value: msgspec.Raw) -> bool:
    try:
        msgspec.json.decode(value, type=OPTIONAL_FIELDS[name])
    except msgspec.MsgspecError:
        return False
    return True


def _with_extra(known: dict[str, msgspec.Raw], extra: Block) -> AnyPart | None:
    try:
        block = _blocks.decode(msgspec.json.encode(known))
    except UNREADABLE:
        return None
    part: AnyPart = DECODERS[type(block)](block)
    return msgspec.structs.replace(part, extra={**part.extra, **extra})


def _decode_loose_result(raw: bytes, known: dict[str, msgspec.Raw], extra: Block) -> AnyPart | None:
    known.pop("content", None)
    try:
        content = _loose_results.decode(raw).content
    except UNREADABLE:
        return None
    result = _with_extra(known, extra)
    if result is None or not isinstance(content, list):
        text = (Text(text=content),) if isinstance(content, str) and content else ()
        return result and msgspec.structs.replace(result, content=text)
    parts = [(decode_block(bytes(block)), block) for block in content]
    inner = tuple(
        part if isinstance(part, ResultPart) else Unknown(dialect=DIALECT, raw=bytes(block))
        for part, block in parts
    )
    return msgspec.structs.replace(result, content=inner)


OPTIONAL_FIELDS: dict[str, Any] = {"cache_control": _CacheControl, "title": str, "is_error": bool}
DECODED_FIELDS: dict[str, tuple[str, ...]] = {
    "text": ("type", "text", "cache_control"),
    "image": ("type", "source", "cache_control"),
    "document": ("type", "source", "title", "cache_control"),
    "tool_use": ("type", "id", "name", "input", "cache_control"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}


def _decode_cache_control(control: CacheControl) -> CacheMark | None:
    if isinstance(control, msgspec.UnsetType):
        return None
    return CacheMark(ttl=None if isinstance(control.ttl, msgspec.UnsetType) else control.ttl)


def _drop_unset(**fields: Any) -> Block:
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _decode_text(block: _Text) -> Text:
    if block.citations is block.cache_control is msgspec.UNSET:
        return Text(text=block.text)
    extra = _drop_unset(citations=block.citations)
    return Text(text=block.text, cache=_decode_cache_control(block.cache_control), extra=extra)


def _decode_image(block: _Image) -> Image:
    cache, extra = (
        _decode_cache_control(block.cache_control),
        _drop_unset(transformations=block.transformations),
    )
    source = block.source
    if isinstance(source, _Url):
        return Image(url=source.url, cache=cache, extra=extra)
    return Image(media_type=source.media_type, data=source.data, cache=cache, extra=extra)


def _decode_document(block: _Document) -> Document:
    extra = _drop_unset(context=block.context, citations=block.citations)
    if isinstance(block.source, _Content):
        # Preserve a document of blocks; other protocols get its text.
        extra["source"] = msgspec.to_builtins(block.source)
    return Document(
        name=None if isinstance(block.title, msgspec.UnsetType) else block.title,
        cache=_decode_cache_control(block.cache_control),
        extra=extra,
        **_document_source(block.source),
    )


def _document_source(source: _Base64 | _PlainText | _Url | _File | _Content) -> dict[str, str]:
    match source:
        case _Base64():
            return {"media_type": source.media_type, "data": source.data}
        case _PlainText():
            return {"media_type": source.media_type, "text": source.data}
        case _Url():
            return {"url": source.url}
        case _File():
            return {"file_id": source.file_id}
        case _Content(content=str(text)):
            return {"media_type": "text/plain", "text": text}
        case _Content(content=blocks):
            text = "\n".join(block.text for block in blocks if isinstance(block, _Text))
            return {"media_type": "text/plain", "text": text}


def _decode_call(block: _ToolUse) -> ToolCall:
    if block.caller is block.toolset_name is block.cache_control is msgspec.UNSET:
        return ToolCall(
            id=block.id, name=block.name, arguments=unwrap_arguments(bytes(block.input))
        )
    return ToolCall(
        id=block.id,
        name=block.name,
        arguments=unwrap_arguments(bytes(block.input)),
        cache=_decode_cache_control(block.cache_control),
        extra=_drop_unset(caller=block.caller, toolset_name=block.toolset_name),
    )


def _decode_result(block: _ToolResult) -> ToolResult:
    content = block.content
    parts: tuple[ResultPart, ...] = ()
    if isinstance(content, str):
        parts = (Text(text=content),) if content else ()
    elif isinstance(content, list):
        parts = tuple([DECODERS[type(inner)](inner) for inner in content])
    if block.toolset_name is block.cache_control is msgspec.UNSET:
        return ToolResult(call_id=block.tool_use_id, content=parts, is_error=block.is_error)
    return ToolResult(
        call_id=block.tool_use_id,
        content=parts,
        is_error=block.is_error,
        cache=_decode_cache_control(block.cache_control),
        extra=_drop_unset(toolset_name=block.toolset_name),
    )


DECODERS: dict[type, Callable[[Any], Any]] = {
    _Text: _decode_text,
    _Image: _decode_image,
    _Document: _decode_document,
    _ToolUse: _decode_call,
    _ToolResult: _decode_result,
    _Thinking: lambda block: Thinking(text=block.thinking, signature=block.signature),
    _RedactedThinking: lambda block: RedactedThinking(data=block.data),
}


def encode_block(part: AnyPart) -> Block | msgspec.Raw:
    """Encode a part as a block; a refusal becomes a text."""
    block = ENCODERS[type(part)](part)
    if isinstance(block, dict):
        if part.extra:
            block.update(part.extra)
        if part.cache is not None:
            ttl = part.cache.ttl
            block["cache_control"] = {"type": "ephemeral"} | ({} if ttl is None else {"ttl": ttl})
    return block


def _encode_image(part: Image) -> Block:
    if part.data is not None:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    else:
        raise NotExpressibleError("an image has neither data nor a URL: add one")
    return {"type": "image", "source": source}


def _encode_document(part: Document) -> Block:
    block: Block = {"type": "document", "source": _encode_source(part)}
    return block if part.name is None else {**block, "title": part.name}


def _encode_source(part: Document) -> Block:
    if part.text is not None:
        return {"type": "text", "media_type": part.media_type or "text/plain", "data": part.text}
    if part.data is not None:
        return {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    raise NotExpressibleError("a document has no data, text, URL or file ID: add one")


def _encode_call(part: ToolCall) -> Block:
    arguments = part.arguments or "{}"
    raw = msgspec.Raw((arguments if is_json(arguments) else wrap_arguments(arguments)).encode())
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": raw}


def _encode_result(part: ToolResult) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": part.call_id}
    if part.content:
        block["content"] = _encode_content(part.content)
    if part.is_error:
        block["is_error"] = True
    return block


def _encode_content(parts: tuple[ResultPart, ...]) -> str | list[Block | msgspec.Raw]:
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text) and only.text and not only.extra and only.cache is None:
        return only.text
    return [encode_block(part) for part in parts]


def _encode_thinking(part: Thinking) -> Block:
    block = {"type": "thinking", "thinking": part.text}
    return block if part.signature is None else {**block, "signature": part.signature}


def _encode_unknown(part: Unknown) -> msgspec.Raw:
    if part.dialect != DIALECT:
        raise NotExpressibleError(f"only {part.dialect} has this block: remove it")
    return msgspec.Raw(part.raw)


ENCODERS: dict[type, Callable[[Any], Block | msgspec.Raw]] = {
    Text: lambda part: {"type": "text", "text": part.text},
    Refusal: lambda part: {"type": "text", "text": part.text},
    Image: _encode_image,
    Document: _encode_document,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
    Thinking: _encode_thinking,
    RedactedThinking: lambda part: {"type": "redacted_thinking", "data": part.data},
    Unknown: _encode_unknown,
}
