"""Images and files: media types, base64 checks, and histories for models that read text only."""

import binascii
from collections.abc import Iterator, Sequence
from typing import TypeGuard, TypeVar

import msgspec

from cllm.core.message import AnyPart, Document, Image, Message, Text, ToolResult
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.wire.convert import parts_of
from cllm.wire.errors import NotExpressibleError
from cllm.wire.messages import OutgoingMessage, Repair, RepairedHistory, replace_parts

KINDS = {Image: "an image", Document: "a file"}
IMAGE_FORMATS = {
    "image/jpeg": "jpeg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
}
OTHER_NAMES = {
    "image/jpg": "image/jpeg",
    "application/csv": "text/csv",
    "text/x-markdown": "text/markdown",
}
File = TypeVar("File", Image, Document)


def find_first_media(prompt: Prompt) -> tuple[str, str] | None:
    """Return the path and kind of the first image or file of a prompt."""
    for prompt_index, message in enumerate(prompt.messages):
        for part in find_media(message):
            return f"messages[{prompt_index}]", KINDS[type(part)]
    return None


def find_unanswered_media(prompt: Prompt) -> tuple[str, str] | None:
    """Return the path and kind of the last image or file without an answer, except in results."""
    for prompt_index, message in reversed(list(enumerate(prompt.messages))):
        if message.role == "assistant":
            break
        for part in parts_of(message):
            if _is_media(part):
                return f"messages[{prompt_index}]", KINDS[type(part)]
    return None


def replace_media_by_text(repair: Repair) -> Repair:
    """Wrap `repair` for a model that reads text only: media are replaced by a note."""

    def repair_text_only(messages: Sequence[OutgoingMessage]) -> RepairedHistory:
        replaced = [_replace_in_message(message) for message in messages]
        indexes = [
            new.prompt_index for old, new in zip(messages, replaced, strict=True) if old is not new
        ]
        repaired = repair(replaced)
        if not indexes:
            return repaired
        notice = Notice(
            code="part_left_out",
            path=f"messages[{indexes[0]}]",
            message=f"The model reads text only; images and files of {len(indexes)} earlier "
            "messages are replaced by a note.",
        )
        return msgspec.structs.replace(repaired, notices=(notice, *repaired.notices))

    return repair_text_only


def _replace_in_message(message: OutgoingMessage) -> OutgoingMessage:
    parts = tuple(map(_replace_part, message.parts))
    same = all(old is new for old, new in zip(message.parts, parts, strict=True))
    return message if same else replace_parts(message, parts)


def _replace_part(part: AnyPart) -> AnyPart:
    if isinstance(part, ToolResult) and any(map(_is_media, part.content)):
        return msgspec.structs.replace(part, content=tuple(map(_replace_part, part.content)))
    if not _is_media(part):
        return part
    return Text(text=f"({KINDS[type(part)]}, which this model cannot see)", cache=part.cache)


def _is_media(part: AnyPart) -> TypeGuard[Image | Document]:
    return isinstance(part, Image) or (isinstance(part, Document) and part.text is None)


def find_media(message: Message) -> Iterator[Image | Document]:
    """Yield the images and files of a message, including those in tool results."""
    for part in parts_of(message):
        yield from filter(_is_media, part.content if isinstance(part, ToolResult) else (part,))


def normalize_media_type(media_type: str | None) -> str:
    """Return a media type in lower case, under its usual name, without parameters."""
    plain = (media_type or "").partition(";")[0].strip().lower()
    return OTHER_NAMES.get(plain, plain)


def normalize_base64(part: File, data: str) -> File:
    """Return the file with its base64 data without line breaks."""
    plain = "".join(data.split())
    if not plain or not is_base64(plain):
        kind = type(part).__name__.lower()
        raise NotExpressibleError(f"the data of the {kind} is not base64: encode its bytes.")
    return part if plain == data else msgspec.structs.replace(part, data=plain)


def is_base64(data: str) -> bool:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return True
