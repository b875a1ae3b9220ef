"""The events of an Anthropic stream, as they are read; `response_decoder` makes a reply of them.

Shapes only: nothing here keeps anything of a stream.
"""

from typing import Any

import msgspec

Fields = dict[str, Any]


class Piece(msgspec.Struct, tag_field="type"):
    """What a delta carries."""


class TextPiece(Piece, tag="text_delta"):
    text: str


class JsonPiece(Piece, tag="input_json_delta"):
    partial_json: str


class ThinkingPiece(Piece, tag="thinking_delta"):
    thinking: str


class SignaturePiece(Piece, tag="signature_delta"):
    signature: str


class CitationPiece(Piece, tag="citations_delta"):
    citation: Any


AnyPiece = TextPiece | JsonPiece | ThinkingPiece | SignaturePiece | CitationPiece


class Event(msgspec.Struct, tag_field="type"):
    """What an event's data says of itself; the event's name says the same."""


class MessageStart(Event, tag="message_start"):
    message: Fields


class BlockStart(Event, tag="content_block_start"):
    index: int
    content_block: msgspec.Raw


class BlockDelta(Event, tag="content_block_delta"):
    index: int
    delta: AnyPiece


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


class LooseEvent(msgspec.Struct):
    """An event of a kind that has no struct here, or a delta of one."""

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
events = msgspec.json.Decoder(AnyEvent)
loose_events = msgspec.json.Decoder(LooseEvent)

KNOWN_PIECES = frozenset(
    ("text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta")
)
KNOWN_EVENTS = frozenset(
    (
        "content_block_delta",
        "content_block_start",
        "content_block_stop",
        "error",
        "message_delta",
        "message_start",
        "message_stop",
        "ping",
    )
)
