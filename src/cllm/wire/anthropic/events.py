"""The event types of an Anthropic stream, its errors and citations."""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from cllm.core.message import Text
from cllm.wire.errors import UNREADABLE, ErrorDetails, is_context_overflow, is_out_of_quota

Fields = dict[str, Any]


class AnthropicDelta(msgspec.Struct, tag_field="type"):
    pass


class AnthropicTextDelta(AnthropicDelta, tag="text_delta"):
    text: str


class AnthropicJsonDelta(AnthropicDelta, tag="input_json_delta"):
    partial_json: str


class AnthropicThinkingDelta(AnthropicDelta, tag="thinking_delta"):
    thinking: str


class AnthropicSignatureDelta(AnthropicDelta, tag="signature_delta"):
    signature: str


class AnthropicCitationDelta(AnthropicDelta, tag="citations_delta"):
    citation: Any


AnyAnthropicDelta = (
    AnthropicTextDelta
    | AnthropicJsonDelta
    | AnthropicThinkingDelta
    | AnthropicSignatureDelta
    | AnthropicCitationDelta
)


class Event(msgspec.Struct, tag_field="type"):
    pass


class MessageStart(Event, tag="message_start"):
    message: Fields


class BlockStart(Event, tag="content_block_start"):
    index: int
    content_block: msgspec.Raw


class BlockDelta(Event, tag="content_block_delta"):
    index: int
    delta: AnyAnthropicDelta


class BlockStop(Event, tag="content_block_stop"):
    index: int


class MessageDelta(Event, tag="message_delta"):
    delta: Fields
    usage: Fields | None = None
    context_management: Any = msgspec.UNSET


class MessageStop(Event, tag="message_stop"):
    pass


class Ping(Event, tag="ping"):
    pass


class ErrorEvent(Event, tag="error"):
    error: Any = None


class UnknownEvent(msgspec.Struct):
    """An event or delta of an unknown type."""

    type: str
    index: int | None = None
    delta: Fields | None = None


AnyEvent = (
    BlockDelta
    | BlockStart
    | BlockStop
    | MessageStart
    | MessageDelta
    | MessageStop
    | Ping
    | ErrorEvent
)
event_decoder = msgspec.json.Decoder(AnyEvent)
unknown_event_decoder = msgspec.json.Decoder(UnknownEvent)

KNOWN_DELTAS = frozenset(delta.__struct_config__.tag for delta in get_args(AnyAnthropicDelta))
KNOWN_EVENTS = frozenset(event.__struct_config__.tag for event in get_args(AnyEvent))

INVALID_REQUEST = "invalid_request_error"
STATUSES = {
    INVALID_REQUEST: 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def decode_error(body: bytes) -> ErrorDetails:
    """Decode an error body of any form; empty if it is not JSON."""
    try:
        decoded = msgspec.json.decode(body)
    except UNREADABLE:
        return ErrorDetails()
    return error_details(decoded.get("error", decoded) if isinstance(decoded, dict) else decoded)


def error_details(error: Any) -> ErrorDetails:
    if not isinstance(error, dict):
        return ErrorDetails(message=error if isinstance(error, str) else "")
    message, kind = (str(error.get(name) or "") for name in ("message", "type"))
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return ErrorDetails(
        message=message,
        type=kind,
        code=code if isinstance(code, str) else "",
        status=STATUSES.get(kind),
        data=details if isinstance(details, dict) else None,
        too_long=kind == INVALID_REQUEST and is_context_overflow(message),
        out_of_quota=is_out_of_quota(message, kind),
    )


CITATIONS_CONTENT = "citationsContent"


class _CitedSource(msgspec.Struct):
    text: str = ""


class _CitationLocation(msgspec.Struct, rename="camel"):
    start: int
    end: int
    document_index: int = 0
    search_result_index: int = 0


class _Citation(msgspec.Struct, rename="camel"):
    location: dict[str, Any]
    title: str | None = None
    source: str | None = None
    source_content: list[_CitedSource] = []


# Converse's location → Anthropic's type, start field and end field.
CITATION_LOCATIONS = {
    "documentChar": ("char_location", "start_char_index", "end_char_index"),
    "documentPage": ("page_location", "start_page_number", "end_page_number"),
    "documentChunk": ("content_block_location", "start_block_index", "end_block_index"),
    "searchResultLocation": ("search_result_location", "start_block_index", "end_block_index"),
}


def convert_citation(value: Any) -> dict[str, Any] | None:
    """Convert a Converse citation to Anthropic's; None if Anthropic has no such location."""
    try:
        citation = msgspec.convert(value, _Citation)
        kind = next((kind for kind in CITATION_LOCATIONS if kind in citation.location), None)
        if kind is None:
            return None
        location = msgspec.convert(citation.location[kind], _CitationLocation)
    except msgspec.ValidationError:
        return None
    name, start, end = CITATION_LOCATIONS[kind]
    text = "".join(source.text for source in citation.source_content)
    fields = {"type": name, "cited_text": text, start: location.start, end: location.end}
    return fields | _source_fields(kind, citation, location)


def _source_fields(kind: str, citation: _Citation, location: _CitationLocation) -> dict[str, Any]:
    if kind != "searchResultLocation":
        return {"document_index": location.document_index, "document_title": citation.title}
    index = location.search_result_index
    source = citation.source or ""
    return {"search_result_index": index, "source": source, "title": citation.title}


def get_citations(part: Text) -> list[Any]:
    """From any protocol, in Anthropic's format."""
    cited = part.extra.get(CITATIONS_CONTENT)
    if not isinstance(cited, Mapping):
        citations = part.extra.get("citations")
        return citations if isinstance(citations, list) else []
    citations = cited.get("citations")
    if not isinstance(citations, list):
        return []
    converted = map(convert_citation, citations)
    return [citation for citation in converted if citation is not None]


def wrap_citation(citation: dict[str, Any]) -> Text:
    """As the extra field of an empty text."""
    return Text(text="", extra={"citations": [citation]})
