"""Images and files as a provider reads them: a media type under its one name, data in base64.

Looks at one part at a time. What can be read in no way is an error that says what to do instead;
nothing is fetched, converted or given another type than it was said to have.
"""

import binascii
from typing import TypeVar

import msgspec

from cllm.core.message import Document, Image
from cllm.wire.malformed import NotExpressibleError

IMAGE_FORMATS = {
    "image/jpeg": "jpeg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
}
"""The images that Claude takes, everywhere, and the word for each."""

OTHER_NAMES = {
    "image/jpg": "image/jpeg",
    "application/csv": "text/csv",
    "text/x-markdown": "text/markdown",
}
File = TypeVar("File", Image, Document)


def plain_type(media_type: str | None) -> str:
    """A media type in small letters, under its usual name and without its parameters."""
    plain = (media_type or "").partition(";")[0].strip().lower()
    return OTHER_NAMES.get(plain, plain)


def checked(part: File, data: str) -> File:
    """The file with this data, in base64 without breaks."""
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
