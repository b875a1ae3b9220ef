"""Attached files and image URLs as message parts.

The content decides the type of a file, not its name. URLs are not fetched here.
"""

import base64
import os
from collections.abc import Iterable
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from cllm.cli.ask import STANDARD_INPUT
from cllm.cli.inputs import piped_input
from cllm.core.errors import UsageError
from cllm.core.message import AnyPart, Document, Image, Text
from cllm.files import FileTooLargeError, NotRegularFileError, read_regular_file

MEBIBYTE = 1024 * 1024
MAX_FILE = 20 * MEBIBYTE
MAX_TOTAL = 32 * MEBIBYTE
MAX_FILES = 20
MAX_NAME = 120
WEBP = slice(8, 12)
ACCEPTED = "a PNG, JPEG, GIF or WebP image, a PDF, or UTF-8 text"
IMAGE_SUFFIXES = ("", ".gif", ".jpeg", ".jpg", ".png", ".webp")
MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}


def read_attachments(files: Iterable[str]) -> tuple[AnyPart, ...]:
    """Read files and URLs as message parts; UsageError if one cannot be attached."""
    names = tuple(files)
    if len(names) > MAX_FILES:
        raise UsageError(f"Attach at most {MAX_FILES} files, not {len(names)}.")
    parts: list[AnyPart] = []
    total = 0
    for name in names:
        if "://" in name:
            parts.append(_build_url_image(name))
            continue
        data = _read(name)
        total += len(data)
        if total > MAX_TOTAL:
            raise UsageError(
                f"The attachments are larger than {MAX_TOTAL // MEBIBYTE} MiB in total; "
                "attach fewer or smaller files."
            )
        parts.append(_build_part(name, data))
    return tuple(parts)


def _build_url_image(url: str) -> Image:
    """Return an image that the provider fetches."""
    try:
        split = urlsplit(url if url.isprintable() and " " not in url else "")
    except ValueError:
        split = urlsplit("")
    if split.scheme != "https" or not split.hostname:
        raise UsageError(
            f"Cannot attach {_display_name(url)}: only https URLs of images can be "
            "attached; download it and attach the file."
        )
    if "@" in split.netloc:
        raise UsageError(
            f"Cannot attach a URL at {split.hostname} that contains a password: the provider would "
            "see it; download the image and attach the file."
        )
    path = PurePosixPath(split.path)
    if not path.name or path.suffix.lower() not in IMAGE_SUFFIXES:
        raise UsageError(
            f"Cannot attach {_display_name(url)}: only images can be attached by URL; "
            "download it and attach the file."
        )
    return Image(url=url)


def _read(name: str) -> bytes:
    try:
        data = (
            _read_standard_input()
            if name == STANDARD_INPUT
            else read_regular_file(name, limit=MAX_FILE)
        )
    except OSError as error:
        reasons = {
            NotRegularFileError: "it is not a regular file",
            FileTooLargeError: f"it is larger than {MAX_FILE // MEBIBYTE} MiB",
        }
        unread = (
            f"it cannot be read ({os.strerror(error.errno or 0).lower()}); check the path and its "
            "permissions"
        )
        reason = reasons.get(type(error), unread)
        raise UsageError(f"Cannot attach {_display_name(name)}: {reason}.") from error
    if not data:
        raise UsageError(f"Cannot attach {_display_name(name)}: it is empty.")
    return data


def _read_standard_input() -> bytes:
    piped = piped_input()
    if piped is None:
        raise UsageError(
            "Cannot attach standard input: it is not a pipe; name a file instead of '-'."
        )
    data = piped.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise FileTooLargeError
    return data


def _build_part(name: str, data: bytes) -> AnyPart:
    media_type = detect_media_type(data)
    if media_type is None:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise UsageError(f"Cannot attach {_display_name(name)}: attach {ACCEPTED}.")
        ending = "" if text.endswith("\n") else "\n"
        return Text(text=f"--- File: {_get_base_name(name)} ---\n{text}{ending}--- End File ---")
    encoded = base64.b64encode(data).decode("ascii")
    if media_type == "application/pdf":
        return Document(media_type=media_type, data=encoded, name=_get_base_name(name))
    return Image(media_type=media_type, data=encoded)


def detect_media_type(data: bytes) -> str | None:
    """Return the media type by the first bytes; None if the data may be text."""
    if data.startswith(b"RIFF") and data[WEBP] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in MAGIC.items() if data.startswith(magic)), None)


def _get_base_name(name: str) -> str:
    if name == STANDARD_INPUT:
        return "standard input"
    return _replace_unprintable(os.path.basename(name))  # noqa: PTH119 - keep the bytes


def _display_name(name: str) -> str:
    """Return the name of an input for an error message."""
    if name == STANDARD_INPUT:
        return "standard input"
    plain = _replace_unprintable(name)
    return f"'{plain if len(plain) <= MAX_NAME else plain[: MAX_NAME - 1] + '…'}'"


def _replace_unprintable(name: str) -> str:
    """Replace what cannot be printed: a file name can be any bytes."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else " " for character in text)
