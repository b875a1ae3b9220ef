"""A part as blocks of a Converse message, and the words Converse has for formats.

One small function per kind of part. What may stand beside what is the request's business; what
has no words at all is an error that says what to do instead.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Part,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.cut_calls import is_json_object
from cllm.wire.files import IMAGE_FORMATS, plain_type
from cllm.wire.malformed import NotExpressibleError

Block = dict[str, Any]

BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
IMAGE_TYPES = {name: media_type for media_type, name in IMAGE_FORMATS.items()}
DOCUMENT_TYPES = {name: media_type for media_type, name in DOCUMENT_FORMATS.items()}
S3 = "s3://"
TTLS = ("5m", "1h")


def encode_blocks(part: AnyPart) -> list[Block]:
    """The block of a part, and the cache point that follows it."""
    block = _encode_block(part)
    return [block] if part.cache is None else [block, encode_mark(part.cache)]


def encode_mark(mark: CacheMark) -> Block:
    """A cache point, which is a block of its own."""
    ttl = {} if mark.ttl is None else {"ttl": mark.ttl}
    return {"cachePoint": {"type": "default", **ttl}}


def _encode_block(part: AnyPart) -> Any:
    return ENCODERS[type(part)](part)


def _encode_refusal(part: Refusal) -> Block:
    return {"text": part.text}


def _encode_thinking(part: Thinking) -> Block:
    signature = {} if part.signature is None else {"signature": part.signature}
    return {"reasoningContent": {"reasoningText": {"text": part.text, **signature}}}


def _encode_redacted(part: RedactedThinking) -> Block:
    return {"reasoningContent": {"redactedContent": part.data}}


def _encode_text(part: Text) -> Block:
    if not part.extra:
        return {"text": part.text}
    if "citationsContent" in part.extra:
        return {"citationsContent": part.extra["citationsContent"]}
    if part.extra.get("json") is True:
        return {"json": msgspec.Raw(part.text.encode())}
    return {"text": part.text}


def _encode_image(part: Image) -> Block:
    if part.data is None and not (part.url or "").startswith(S3):
        raise NotExpressibleError(
            "Bedrock takes no image by its URL: fetch it and give its data in base64, "
            "or put it into S3 and give the s3:// URL."
        )
    name = format_of(part.media_type, IMAGE_FORMATS) or _extension(part.url, IMAGE_TYPES)
    if name is None:
        raise NotExpressibleError(
            f"Bedrock takes no image of type {part.media_type}: "
            f"convert it to one of {', '.join(IMAGE_TYPES)}."
        )
    source = {"bytes": part.data} if part.data is not None else _encode_location(part)
    return {"image": {"format": name, "source": source, **_tail(part)}}


def _encode_document(part: Document) -> Block:
    name = format_of(part.media_type, DOCUMENT_FORMATS) or _extension(
        part.url or part.name, DOCUMENT_TYPES
    )
    if part.file_id is not None and part.data is None and part.text is None:
        raise NotExpressibleError(
            f"Bedrock takes no document by a file id ({part.file_id}): give its data in base64."
        )
    if name is None and part.text is None:
        raise NotExpressibleError(
            f"Bedrock takes no document of type {part.media_type}: "
            f"give it as one of {', '.join(DOCUMENT_TYPES)}."
        )
    kind = {} if name is None else {"format": name}
    title = part.name or "document"
    return {"document": {**kind, "name": title, "source": _encode_source(part), **_tail(part)}}


def _encode_source(part: Document) -> Block:
    if "source" in part.extra:
        return dict(part.extra["source"])
    if part.data is not None:
        return {"bytes": part.data}
    if part.text is not None:
        return {"text": part.text}
    if (part.url or "").startswith(S3):
        return _encode_location(part)
    raise NotExpressibleError(
        f"Bedrock takes no document by its URL ({part.url}): "
        "give its data in base64, or put it into S3 and give the s3:// URL."
    )


def _encode_location(part: Image | Document) -> Block:
    owner = part.extra.get("bucketOwner")
    return {"s3Location": {"uri": part.url, **({} if owner is None else {"bucketOwner": owner})}}


def format_of(media_type: str | None, formats: dict[str, str]) -> str | None:
    """The word for a media type, whatever its case and parameters; None if there is none."""
    return formats.get(plain_type(media_type))


def _extension(name: str | None, types: dict[str, str]) -> str | None:
    ending = (name or "").rpartition(".")[2].lower()
    ending = {"jpg": "jpeg", "htm": "html"}.get(ending, ending)
    return ending if ending in types else None


def _encode_call(part: ToolCall) -> Block:
    """Arguments stay the text that the model wrote; what is no object travels as a string."""
    said: Any = msgspec.Raw((part.arguments or "{}").encode())
    if part.arguments and not is_json_object(part.arguments):
        said = part.arguments
    call = {"toolUseId": part.id, "name": part.name, "input": said}
    return {"toolUse": {**call, **part.extra}}


def _encode_result(part: ToolResult) -> Block:
    content = [_encode_block(piece) for piece in part.content]
    status = {"status": "error"} if part.is_error else {}
    return {"toolResult": {"toolUseId": part.call_id, "content": content, **status, **part.extra}}


def _encode_unknown(part: Unknown) -> msgspec.Raw:
    if part.dialect != "bedrock":
        raise NotExpressibleError(f"a block that only {part.dialect} has: {part.raw[:60]!r}")
    return msgspec.Raw(part.raw)


def _tail(part: Part) -> Block:
    """The unnamed fields of a part, without those that its source is made of."""
    return {key: part.extra[key] for key in part.extra if key not in ("bucketOwner", "source")}


ENCODERS: dict[type, Callable[[Any], Any]] = {
    Document: _encode_document,
    Image: _encode_image,
    RedactedThinking: _encode_redacted,
    Refusal: _encode_refusal,
    Text: _encode_text,
    Thinking: _encode_thinking,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
    Unknown: _encode_unknown,
}


CITED = "citationsContent"


class _Source(msgspec.Struct):
    text: str = ""


class _Place(msgspec.Struct, rename="camel"):
    start: int
    end: int
    document_index: int = 0
    search_result_index: int = 0


class _Citation(msgspec.Struct, rename="camel"):
    location: dict[str, Any]
    title: str | None = None
    source: str | None = None
    source_content: list[_Source] = []


# The type in Anthropic's words, and how it names where the cited piece starts and ends.
PLACES = {
    "documentChar": ("char_location", "start_char_index", "end_char_index"),
    "documentPage": ("page_location", "start_page_number", "end_page_number"),
    "documentChunk": ("content_block_location", "start_block_index", "end_block_index"),
    "searchResultLocation": ("search_result_location", "start_block_index", "end_block_index"),
}


def shared_citation(given: Any) -> dict[str, Any] | None:
    """A citation in Anthropic's words; None if it has no place that they can name."""
    try:
        citation = msgspec.convert(given, _Citation)
        kind = next((kind for kind in PLACES if kind in citation.location), None)
        if kind is None:
            return None
        place = msgspec.convert(citation.location[kind], _Place)
    except msgspec.ValidationError:
        return None
    name, start, end = PLACES[kind]
    cited = "".join(source.text for source in citation.source_content)
    said = {"type": name, "cited_text": cited, start: place.start, end: place.end}
    return said | _what(kind, citation, place)


def _what(kind: str, citation: _Citation, place: _Place) -> dict[str, Any]:
    """What was cited: a document of the prompt, or a result of a search."""
    if kind != "searchResultLocation":
        return {"document_index": place.document_index, "document_title": citation.title}
    index = place.search_result_index
    source = citation.source or ""
    return {"search_result_index": index, "source": source, "title": citation.title}


def citations_of(part: Text) -> list[Any]:
    """The citations of a text of any protocol that has them, in Anthropic's words."""
    cited = part.extra.get(CITED)
    if not isinstance(cited, Mapping):
        own = part.extra.get("citations")
        return own if isinstance(own, list) else []
    given = cited.get("citations")
    told = [shared_citation(citation) for citation in given] if isinstance(given, list) else []
    return [citation for citation in told if citation is not None]


def cited_text(citation: dict[str, Any]) -> Text:
    """A citation of the text at its place: a text of no length, which adds nothing but it."""
    return Text(text="", extra={"citations": [citation]})
