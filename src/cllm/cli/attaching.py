"""Files and addresses that a person gives beside a prompt, as parts of the message.

What a file is, its bytes say, never its name. An image's address is handed on as it is: nothing is
fetched here. Prints nothing.
"""

import base64
import os
import sys
from collections.abc import Iterable
from pathlib import PurePosixPath
from urllib.parse import SplitResult, urlsplit

from cllm.cli.ask import STANDARD_INPUT
from cllm.core.errors import UsageError
from cllm.core.message import AnyPart, Document, Image, Text
from cllm.files import NotOrdinaryError, TooLargeError, read_ordinary

MEGABYTE = 1024 * 1024
MAX_FILE = 20 * MEGABYTE
MAX_TOGETHER = 32 * MEGABYTE
MOST = 20
LONGEST_SHOWN = 120
WEBP = slice(8, 12)
ACCEPTED = "a PNG, JPEG, GIF or WebP image, a PDF, or a text in UTF-8"
IMAGE_ENDINGS = ("", ".gif", ".jpeg", ".jpg", ".png", ".webp")
MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}


def attached_parts(given: Iterable[str]) -> tuple[AnyPart, ...]:
    """A part for each file or address, in order; UsageError for what cannot be attached."""
    wanted = tuple(given)
    if len(wanted) > MOST:
        raise UsageError(f"Attach at most {MOST} files at once; {len(wanted)} were given.")
    parts: list[AnyPart] = []
    together = 0
    for one in wanted:
        if "://" in one:
            parts.append(_linked_image(one))
            continue
        data = _read(one)
        together += len(data)
        if together > MAX_TOGETHER:
            raise UsageError(
                f"The attachments are more than {MAX_TOGETHER // MEGABYTE} MB together; "
                "attach fewer, or smaller ones."
            )
        parts.append(_part(one, data))
    return tuple(parts)


def _linked_image(address: str) -> Image:
    """An image that the provider is to fetch by itself."""
    split = _split(address)
    if split is None or split.scheme != "https" or not split.hostname:
        raise UsageError(
            f"Cannot attach {_shown(address)}: only https addresses of images can be attached; "
            "download it and attach the file."
        )
    if "@" in split.netloc:
        raise UsageError(
            f"Cannot attach an address at {split.hostname} with a password in it: the provider "
            "would see it; download the image and attach the file."
        )
    path = PurePosixPath(split.path)
    if not path.name or path.suffix.lower() not in IMAGE_ENDINGS:
        raise UsageError(
            f"Cannot attach {_shown(address)}: only images can be attached by their address; "
            "download it and attach the file."
        )
    return Image(url=address)


def _split(address: str) -> SplitResult | None:
    """The pieces of an address; None if it is none."""
    if not address.isprintable() or " " in address:
        return None
    try:
        return urlsplit(address)
    except ValueError:
        return None


def _read(name: str) -> bytes:
    try:
        data = _read_standard_input() if name == STANDARD_INPUT else _read_file(name)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise UsageError(f"Cannot attach {_shown(name)}: it cannot be read ({reason}).") from error
    if len(data) > MAX_FILE:
        raise UsageError(
            f"Cannot attach {_shown(name)}: it is larger than {MAX_FILE // MEGABYTE} MB."
        )
    if not data:
        raise UsageError(f"Cannot attach {_shown(name)}: it is empty.")
    return data


def _read_standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise UsageError(
            "Cannot attach standard input: nothing is piped into it; name a file instead of '-'."
        )
    return sys.stdin.buffer.read(MAX_FILE + 1)


def _read_file(name: str) -> bytes:
    """Its bytes; not waiting for a pipe's other end, and not reading a device without end."""
    try:
        return read_ordinary(name, limit=MAX_FILE)
    except NotOrdinaryError as error:
        raise UsageError(f"Cannot attach {_shown(name)}: it is not an ordinary file.") from error
    except TooLargeError as error:
        raise UsageError(
            f"Cannot attach {_shown(name)}: it is larger than {MAX_FILE // MEGABYTE} MB."
        ) from error


def _part(name: str, data: bytes) -> AnyPart:
    media_type = media_type_of(data)
    if media_type is None:
        text = _text(name, data)
        ending = "" if text.endswith("\n") else "\n"
        return Text(text=f"--- File: {_base_name(name)} ---\n{text}{ending}--- End File ---")
    encoded = base64.b64encode(data).decode("ascii")
    if media_type == "application/pdf":
        return Document(media_type=media_type, data=encoded, name=_base_name(name))
    return Image(media_type=media_type, data=encoded)


def media_type_of(data: bytes) -> str | None:
    """What the first bytes say; None for what may be a text."""
    if data.startswith(b"RIFF") and data[WEBP] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in MAGIC.items() if data.startswith(magic)), None)


def _text(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"Cannot attach {_shown(name)}: give {ACCEPTED}.")
    return text


def _base_name(name: str) -> str:
    if name == STANDARD_INPUT:
        return "standard input"
    return _printable(os.path.basename(name))  # noqa: PTH119 - the bytes as they were given


def _shown(name: str) -> str:
    """The name as an error can have it."""
    if name == STANDARD_INPUT:
        return "standard input"
    plain = _printable(name)
    return f"'{plain if len(plain) <= LONGEST_SHOWN else plain[: LONGEST_SHOWN - 1] + '…'}'"


def _printable(name: str) -> str:
    """The name as one line of text; a file's name may be any bytes."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(sign if sign.isprintable() else " " for sign in text)
