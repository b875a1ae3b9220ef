"""A message in Bedrock Converse's words as typed parts; the way back is in `blocks`.

The parts are a view: decoding changes nothing, and a block that no part has a name for is kept as
it came. Bytes are base64 text, as they travel.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.bedrock.blocks import BROKEN, DOCUMENT_TYPES, IMAGE_TYPES, Block, encode_blocks
from cllm.wire.malformed import MalformedError, NotExpressibleError
from cllm.wire.spoken import NOTHING

__all__ = [
    "NotExpressibleError",
    "decode_blocks",
    "decode_message",
    "decode_parts",
    "encode_blocks",
]

Fields = dict[str, msgspec.Raw]
ResultPart = Text | Image | Document | Unknown


class _Content(msgspec.Struct):
    content: list[msgspec.Raw] = msgspec.field(default_factory=list)


class _Text(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class _Call(msgspec.Struct, rename="camel"):
    tool_use_id: str
    name: str
    input: msgspec.Raw


class _Result(msgspec.Struct, rename="camel"):
    tool_use_id: str
    content: list[msgspec.Raw]
    status: str | None = None


class _Location(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    uri: str
    bucket_owner: str | None = None


class _Source(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    bytes: str | None = None
    text: str | None = None
    content: list[_Text] | None = None
    s3_location: _Location | None = None


class _File(msgspec.Struct):
    source: _Source
    format: str | None = None
    name: str | None = None


class _ReasoningText(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    signature: str | None = None


class _Reasoning(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    reasoning_text: _ReasoningText | None = None
    redacted_content: str | None = None


class _CachePoint(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    ttl: str | None = None


class _Cited(msgspec.Struct):
    content: list[_Text]


_content_decoder = msgspec.json.Decoder(_Content)
_fields_decoder = msgspec.json.Decoder(Fields)
_text_decoder = msgspec.json.Decoder(str)
_call_decoder = msgspec.json.Decoder(_Call)
_result_decoder = msgspec.json.Decoder(_Result)
_file_decoder = msgspec.json.Decoder(_File)
_reasoning_decoder = msgspec.json.Decoder(_Reasoning)
_mark_decoder = msgspec.json.Decoder(_CachePoint)
_cited_decoder = msgspec.json.Decoder(_Cited)


def decode_parts(message: Message) -> tuple[AnyPart, ...]:
    """The parts of a message, in order; a cache point is the mark of the part before it."""
    try:
        return decode_blocks(_content_decoder.decode(message.raw).content)
    except BROKEN as error:
        raise MalformedError(f"not a message of Converse's: {error}") from error


def decode_message(message: Message) -> tuple[tuple[AnyPart, ...], Mapping[str, Any]]:
    """The parts of a message, which are all that one of Converse's says."""
    return decode_parts(message), NOTHING


def decode_blocks(blocks: Iterable[msgspec.Raw]) -> tuple[AnyPart, ...]:
    """The parts of a list of blocks."""
    parts: list[AnyPart] = []
    for raw in blocks:
        fields = _block_fields(raw)
        mark = _decode_mark(fields) if "cachePoint" in fields and parts else None
        if mark is None or parts[-1].cache is not None:
            parts.append(_decode_block(raw, fields))
        else:
            parts[-1] = msgspec.structs.replace(parts[-1], cache=mark)
    return tuple(parts)


def _block_fields(raw: msgspec.Raw) -> Fields:
    """The one field that names a block's kind; none if it is no such block."""
    try:
        fields = _fields_decoder.decode(raw)
    except msgspec.ValidationError:
        return {}
    return fields if len(fields) == 1 else {}


def _decode_mark(fields: Fields) -> CacheMark | None:
    try:
        mark = _mark_decoder.decode(fields["cachePoint"])
    except msgspec.ValidationError:
        return None
    return CacheMark(ttl=mark.ttl) if mark.type == "default" else None


def _decode_block(raw: msgspec.Raw, fields: Fields) -> AnyPart:
    for kind, value in fields.items():
        decode = DECODERS.get(kind)
        if decode is not None:
            try:
                part = decode(value)
            except msgspec.ValidationError:
                part = None
            if part is not None:
                return part
    return Unknown(dialect="bedrock", raw=bytes(raw))


def _decode_text(raw: msgspec.Raw) -> Text:
    return Text(text=_text_decoder.decode(raw))


def _decode_cited(raw: msgspec.Raw) -> Text:
    """A text with citations is a text to everybody else; the whole of it stays beside."""
    texts = [piece.text for piece in _cited_decoder.decode(raw).content]
    return Text(text="".join(texts), extra={"citationsContent": msgspec.json.decode(raw)})


def _decode_json(raw: msgspec.Raw) -> Text:
    return Text(text=bytes(raw).decode(), extra={"json": True})


def _decode_image(raw: msgspec.Raw) -> Image | None:
    file = _file_decoder.decode(raw)
    given = _given(file.source)
    if file.format not in IMAGE_TYPES or given not in ("bytes", "s3_location"):
        return None
    extra = _unnamed(raw, "format", "source") | _owner(file.source)
    location = file.source.s3_location
    return Image(
        media_type=IMAGE_TYPES[file.format],
        data=file.source.bytes,
        url=location.uri if location else None,
        extra=extra,
    )


def _decode_document(raw: msgspec.Raw) -> Document | None:
    file = _file_decoder.decode(raw)
    source = file.source
    given = _given(source)
    if given is None or file.format not in (None, *DOCUMENT_TYPES):
        return None
    extra = _unnamed(raw, "format", "name", "source") | _owner(source)
    text = source.text
    if source.content is not None:
        extra["source"] = {"content": msgspec.to_builtins(source.content)}
        text = "\n".join(piece.text for piece in source.content)
    return Document(
        media_type=DOCUMENT_TYPES[file.format] if file.format else None,
        data=source.bytes,
        text=text,
        url=source.s3_location.uri if source.s3_location else None,
        name=file.name,
        extra=extra,
    )


def _given(source: _Source) -> str | None:
    """The one form in which a source is given."""
    forms = [name for name in _Source.__struct_fields__ if getattr(source, name) is not None]
    return forms[0] if len(forms) == 1 else None


def _owner(source: _Source) -> Block:
    owner = source.s3_location.bucket_owner if source.s3_location else None
    return {} if owner is None else {"bucketOwner": owner}


def _decode_call(raw: msgspec.Raw) -> ToolCall:
    call = _call_decoder.decode(raw)
    text = bytes(call.input).decode()
    return ToolCall(
        id=call.tool_use_id,
        name=call.name,
        arguments=_text_decoder.decode(call.input) if text.startswith('"') else text,
        extra=_unnamed(raw, "toolUseId", "name", "input"),
    )


def _decode_result(raw: msgspec.Raw) -> ToolResult | None:
    result = _result_decoder.decode(raw)
    if result.status not in (None, "success", "error"):
        return None
    content = tuple(_decode_result_block(block) for block in result.content)
    return ToolResult(
        call_id=result.tool_use_id,
        content=content,
        is_error=result.status == "error",
        extra=_unnamed(raw, "toolUseId", "content", "status"),
    )


def _decode_result_block(raw: msgspec.Raw) -> ResultPart:
    fields = _block_fields(raw)
    part = _decode_json(fields["json"]) if "json" in fields else _decode_block(raw, fields)
    return part if isinstance(part, ResultPart) else Unknown(dialect="bedrock", raw=bytes(raw))


def _decode_reasoning(raw: msgspec.Raw) -> Thinking | RedactedThinking | None:
    reasoning = _reasoning_decoder.decode(raw)
    said, hidden = reasoning.reasoning_text, reasoning.redacted_content
    if said is not None and hidden is None:
        return Thinking(text=said.text, signature=said.signature)
    if hidden is not None and said is None:
        return RedactedThinking(data=hidden)
    return None


DECODERS: dict[str, Callable[[msgspec.Raw], AnyPart | None]] = {
    "citationsContent": _decode_cited,
    "document": _decode_document,
    "image": _decode_image,
    "reasoningContent": _decode_reasoning,
    "text": _decode_text,
    "toolResult": _decode_result,
    "toolUse": _decode_call,
}


def _unnamed(raw: msgspec.Raw, *named: str) -> Block:
    """The fields of a block that its kind has no name for."""
    fields = _fields_decoder.decode(raw)
    return {key: msgspec.json.decode(fields[key]) for key in fields if key not in named}
