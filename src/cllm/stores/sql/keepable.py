"""What a database keeps, and what it does not: looked at before anything is written."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from cllm.core.errors import UsageError
from cllm.core.message import Message

_NUL_IN_JSON = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def check_text(*texts: str | None) -> None:
    """UsageError if one of the texts cannot be kept in a database."""
    for text in texts:
        if text is not None and ("\0" in text or _has_surrogates(text)):
            raise unkeepable()


def check_json(*values: Any) -> None:
    """UsageError if a value has text in it that cannot be kept in a database."""
    for value in values:
        try:
            encoded = msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            raise unkeepable() from error
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                "What is to be kept with the conversation is no plain JSON, or nested too deeply; "
                "give text, numbers, lists and objects."
            ) from error
        if _NUL_IN_JSON.search(encoded):
            raise unkeepable()


def check_messages(messages: Sequence[Message]) -> None:
    """UsageError if a message has text in it that cannot be kept in a database."""
    for message in messages:
        if b"\\u0000" in message.raw and _NUL_IN_JSON.search(message.raw):
            raise unkeepable()


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def unkeepable() -> UsageError:
    """Text that a database has no way to keep."""
    return UsageError(
        "The text has a NUL character or half of a character in it, which no database keeps; "
        "remove it and try again."
    )
