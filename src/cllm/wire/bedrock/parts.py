"""Decodes Converse messages to typed parts and encodes them. Unknown blocks are preserved."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.errors import UNREADABLE, MalformedError, NotExpressibleError
from cllm.wire.media import DOCUMENT_FORMATS, IMAGE_FORMATS, S3, find_media_type
from cllm.wire.messages import EMPTY
from cllm.wire.tool_arguments import is_json_object

Block = dict[str, Any]
Fields = dict[str, msgspec.Raw]
ResultPart = Text | Image | Document | Unknown
IMAGE_TYPES = {name: media_type for media_type, name in IMAGE_FORMATS.items()}
DOCUMENT_TYPES = {name: media_type for media_type, name in DOCUMENT_FORMATS.items()}
TTLS = ("5m", "1h")


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
_cache_point_decoder = msgspec.json.Decoder(_CachePoint)
_cited_decoder = msgspec.json.Decoder(_Cited)


def decode_parts(message: Message) -> tuple[AnyPart, ...]:
    """Return the parts of a message; a cache point belongs to the part before it."""
    try:
        return decode_blocks(_content_decoder.decode(message.raw).content)
    except UNREADABLE as error:
        raise MalformedError(f"not a Converse message: {error}") from error


def decode_message(message: Message) -> tuple[tuple[AnyPart, ...], Mapping[str, Any]]:
    """Return the parts; Converse messages have no other fields."""
    return decode_parts(message), EMPTY


def decode_blocks(blocks: Iterable[msgspec.Raw]) -> tuple[AnyPart, ...]:
    parts: list[AnyPart] = []
    for raw in blocks:
        fields = _block_fields(raw)
        cache = _decode_cache_point(fields) if "cachePoint" in fields and parts else None
        if cache is None or parts[-1].cache is not None:
            parts.append(_decode_block(raw, fields))
        else:
            parts[-1] = msgspec.structs.replace(parts[-1], cache=cache)
    return tuple(parts)


def _block_fields(raw: msgspec.Raw) -> Fields:
    """Return the single field, which names the kind of a block; empty for other values."""
    try:
        fields = _fields_decoder.decode(raw)
    except msgspec.ValidationError:
        return {}
    return fields if len(fields) == 1 else {}


def _decode_cache_point(fields: Fields) -> CacheMark | None:
    try:
        point = _cache_point_decoder.decode(fields["cachePoint"])
    except msgspec.ValidationError:
        return None
    return CacheMark(ttl=point.ttl) if point.type == "default" else None


def _decode_block(raw: msgspec.Raw, fields: Fields) -> AnyPart:
    part = None
    try:
        for kind, value in fields.items():  # at most one
            part = DECODERS[kind](value) if kind in DECODERS else None
    except msgspec.ValidationError:
        part = None
    return Unknown(dialect="bedrock", raw=bytes(raw)) if part is None else part


def _decode_cited(raw: msgspec.Raw) -> Text:
    texts = [block.text for block in _cited_decoder.decode(raw).content]
    return Text(text="".join(texts), extra={"citationsContent": msgspec.json.decode(raw)})


def _decode_image(raw: msgspec.Raw) -> Image | None:
    file = _file_decoder.decode(raw)
    form = _source_form(file.source)
    if file.format not in IMAGE_TYPES or form not in ("bytes", "s3_location"):
        return None
    extra = _other_fields(raw, "format", "source") | _owner(file.source)
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
    if _source_form(source) is None or file.format not in (None, *DOCUMENT_TYPES):
        return None
    extra = _other_fields(raw, "format", "name", "source") | _owner(source)
    text = source.text
    if source.content is not None:
        extra["source"] = {"content": msgspec.to_builtins(source.content)}
        text = "\n".join(block.text for block in source.content)
    return Document(
        media_type=DOCUMENT_TYPES[file.format] if file.format else None,
        data=source.bytes,
        text=text,
        url=source.s3_location.uri if source.s3_location else None,
        name=file.name,
        extra=extra,
    )


def _source_form(source: _Source) -> str | None:
    """Return the one field that has content; None if none or several have."""
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
        extra=_other_fields(raw, "toolUseId", "name", "input"),
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
        extra=_other_fields(raw, "toolUseId", "content", "status"),
    )


def _decode_result_block(raw: msgspec.Raw) -> ResultPart:
    fields = _block_fields(raw)
    if "json" in fields:
        return Text(text=bytes(fields["json"]).decode(), extra={"json": True})
    part = _decode_block(raw, fields)
    return part if isinstance(part, ResultPart) else Unknown(dialect="bedrock", raw=bytes(raw))


def _decode_reasoning(raw: msgspec.Raw) -> Thinking | RedactedThinking | None:
    reasoning = _reasoning_decoder.decode(raw)
    text, redacted = reasoning.reasoning_text, reasoning.redacted_content
    if text is not None and redacted is None:
        return Thinking(text=text.text, signature=text.signature)
    if redacted is not None and text is None:
        return RedactedThinking(data=redacted)
    return None


DECODERS: dict[str, Callable[[msgspec.Raw], AnyPart | None]] = {
    "citationsContent": _decode_cited,
    "document": _decode_document,
    "image": _decode_image,
    "reasoningContent": _decode_reasoning,
    "text": lambda raw: Text(text=_text_decoder.decode(raw)),
    "toolResult": _decode_result,
    "toolUse": _decode_call,
}


def _other_fields(raw: msgspec.Raw, *decoded: str) -> Block:
    fields = _fields_decoder.decode(raw)
    return {key: msgspec.json.decode(fields[key]) for key in fields if key not in decoded}


def encode_blocks(part: AnyPart) -> list[Block]:
    """Encode a part, followed by its cache point."""
    block = ENCODERS[type(part)](part)
    return [block] if part.cache is None else [block, encode_cache_point(part.cache)]


def encode_cache_point(cache: CacheMark) -> Block:
    ttl = {} if cache.ttl is None else {"ttl": cache.ttl}
    return {"cachePoint": {"type": "default", **ttl}}


def _encode_thinking(part: Thinking) -> Block:
    signature = {} if part.signature is None else {"signature": part.signature}
    return {"reasoningContent": {"reasoningText": {"text": part.text, **signature}}}


def _encode_text(part: Text) -> Block:
    if not part.extra:
        return {"text": part.text}
    if "citationsContent" in part.extra:
        return {"citationsContent": part.extra["citationsContent"]}
    if part.extra.get("json") is True:
        return {"json": msgspec.Raw(part.text.encode())}
    return {"text": part.text}


def _encode_image(part: Image) -> Block:
    name = IMAGE_FORMATS.get(find_media_type(part))
    if name is None or (part.data is None and not (part.url or "").startswith(S3)):
        raise NotExpressibleError("Bedrock does not accept this image")
    source = {"bytes": part.data} if part.data is not None else _encode_location(part)
    return {"image": {"format": name, "source": source, **_extra_fields(part)}}


def _encode_document(part: Document) -> Block:
    name = DOCUMENT_FORMATS.get(find_media_type(part))
    kind = {} if name is None else {"format": name}
    title = part.name or "document"
    return {
        "document": {**kind, "name": title, "source": _encode_source(part), **_extra_fields(part)}
    }


def _encode_source(part: Document) -> Block:
    if "source" in part.extra:
        return dict(part.extra["source"])
    if part.data is not None:
        return {"bytes": part.data}
    if part.text is not None:
        return {"text": part.text}
    if (part.url or "").startswith(S3):
        return _encode_location(part)
    raise NotExpressibleError("Bedrock does not accept this document")


def _encode_location(part: Image | Document) -> Block:
    owner = part.extra.get("bucketOwner")
    return {"s3Location": {"uri": part.url, **({} if owner is None else {"bucketOwner": owner})}}


def _encode_call(part: ToolCall) -> Block:
    """Encode a call; arguments that are not a JSON object are sent as a string."""
    arguments: Any = msgspec.Raw((part.arguments or "{}").encode())
    if part.arguments and not is_json_object(part.arguments):
        arguments = part.arguments
    call = {"toolUseId": part.id, "name": part.name, "input": arguments}
    return {"toolUse": {**call, **part.extra}}


def _encode_result(part: ToolResult) -> Block:
    content = [ENCODERS[type(inner)](inner) for inner in part.content]
    status = {"status": "error"} if part.is_error else {}
    return {"toolResult": {"toolUseId": part.call_id, "content": content, **status, **part.extra}}


def _encode_unknown(part: Unknown) -> msgspec.Raw:
    if part.dialect != "bedrock":
        raise NotExpressibleError(
            f"only {part.dialect} has this block ({part.raw[:60]!r}): remove it"
        )
    return msgspec.Raw(part.raw)


def _extra_fields(part: Part) -> Block:
    return {key: part.extra[key] for key in part.extra if key not in ("bucketOwner", "source")}


ENCODERS: dict[type, Callable[[Any], Any]] = {
    Document: _encode_document,
    Image: _encode_image,
    RedactedThinking: lambda part: {"reasoningContent": {"redactedContent": part.data}},
    Refusal: lambda part: {"text": part.text},
    Text: _encode_text,
    Thinking: _encode_thinking,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
    Unknown: _encode_unknown,
}
