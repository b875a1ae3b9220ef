"""Parts, times and files of imported messages, for every format."""

import base64
import mimetypes
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Document, Image, Message, Role, Text
from cllm.wire.openai.parts import encode_parts

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
UNKNOWN_TYPE = "application/octet-stream"
SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
)
RIFF_TYPES = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
MAX_MILLISECONDS = 10**11
"""A larger number of seconds is a number of milliseconds."""


YEARS = range(1970, 3000)


def guess_media_type(data: bytes, name: str | None, declared: str | None = None) -> str:
    """Return the type by the first bytes, else the declared one, else that of the name."""
    for signature, media_type in SIGNATURES:
        if data.startswith(signature):
            return media_type
    if data.startswith(b"RIFF") and data[8:12] in RIFF_TYPES:
        return RIFF_TYPES[data[8:12]]
    guessed = mimetypes.guess_type(name or "")[0]
    return declared or guessed or UNKNOWN_TYPE


def build_attachment(
    data: bytes, *, name: str | None = None, media_type: str | None = None
) -> Image | Document:
    kind = guess_media_type(data, name, media_type)
    encoded = base64.b64encode(data).decode()
    if kind in IMAGE_TYPES:
        return Image(media_type=kind, data=encoded)
    return Document(media_type=kind, data=encoded, name=name or "attachment")


def build_placeholder(kind: str, name: str | None) -> Text:
    """Return the text for a file whose content the source does not have."""
    return Text(text=f"[{kind}: {name}]" if name else f"[{kind}]")


def build_message(role: Role, parts: Sequence[AnyPart]) -> Message:
    return encode_parts(role, parts)


def build_anthropic_message(role: Role, content: Any) -> Message:
    raw = msgspec.json.encode({"role": role, "content": content})
    return Message(role=role, raw=raw, dialect="anthropic")


def parse_time(value: Any) -> datetime | None:
    """Return the time of seconds, milliseconds or an ISO text; None if it is none of them.

    A time that cannot be one of a conversation is None too: it could not be shown in every zone.
    """
    moment = _parse_time(value)
    return moment if moment is not None and moment.year in YEARS else None


def _parse_time(value: Any) -> datetime | None:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if abs(value) > MAX_MILLISECONDS else value
            return datetime.fromtimestamp(seconds, tz=UTC)
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                return moment.replace(tzinfo=UTC)
            return moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def read_text(fields: Any, *names: str) -> str:
    """Return the first of these fields that is a non-empty text, else an empty text."""
    if isinstance(fields, dict):
        for name in names:
            value = fields.get(name)
            if isinstance(value, str) and value:
                return value
    return ""


def read_object(fields: Any, name: str) -> dict[str, Any]:
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, dict) else {}


def read_objects(fields: Any, name: str) -> list[dict[str, Any]]:
    """Return the objects of a list field."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def read_count(fields: Any, *names: str) -> int:
    """Return the first of these fields that is a number of tokens, else 0."""
    if isinstance(fields, dict):
        for name in names:
            value = fields.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return 0
