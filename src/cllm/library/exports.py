"""A conversation as a text that can be taken elsewhere, and back. Stores nothing."""

from typing import Literal, get_args

import msgspec

from cllm.app import now
from cllm.core.conversation import Conversation
from cllm.library.given import check_choice, check_text
from cllm.wire.conversation_json import decode_conversation, encode_conversation
from cllm.wire.transcript import transcript_of
from cllm.wire.transcript_markdown import encode_markdown

ExportFormat = Literal["json", "markdown"]


def check_form(form: ExportFormat) -> ExportFormat:
    return check_choice("form", form, get_args(ExportFormat))


def encode_export(conversation: Conversation, form: ExportFormat) -> str:
    """The conversation file, or Markdown to read."""
    if form == "markdown":
        return encode_markdown(transcript_of(conversation))
    return encode_conversation(conversation).decode()


def decode_export(exported: str | bytes) -> Conversation:
    """The conversation of a file that was exported; an error if it is none."""
    data = exported
    if not isinstance(data, bytes):
        data = check_text("The export", data).encode()
    stored = decode_conversation(
        data,
        conversation_id=_id_in(data),
        path="the export",
        modified_at=now(),
    )
    return stored.conversation


class _Named(msgspec.Struct):
    id: str


def _id_in(data: bytes) -> str:
    """The id that an export says it has; the reading itself complains about what is none."""
    try:
        return msgspec.json.decode(data, type=_Named).id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
