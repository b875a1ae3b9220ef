"""What a message holds beside words: images and files. Looks, and changes nothing."""

from collections.abc import Iterable, Iterator

from cllm.core.message import AnyPart, Document, Image, Message, ToolResult
from cllm.core.prompt import Prompt
from cllm.wire.translate import parts_of

KINDS = {Image: "an image", Document: "a file"}


def first_media(prompt: Prompt) -> tuple[str, str] | None:
    """Where the first image or file of a prompt stands, and which of them it is."""
    for place, message in enumerate(prompt.messages):
        for part in media_in(message):
            return f"messages[{place}]", KINDS[type(part)]
    return None


def media_in(message: Message) -> Iterator[Image | Document]:
    """The images and files of a message, those in tool results too, in order."""
    return _media(parts_of(message))


def _media(parts: Iterable[AnyPart]) -> Iterator[Image | Document]:
    for part in parts:
        if isinstance(part, ToolResult):
            yield from _media(part.content)
        elif isinstance(part, Image) or (isinstance(part, Document) and part.text is None):
            yield part
