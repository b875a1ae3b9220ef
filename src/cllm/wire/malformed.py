"""The errors of the codecs. Whoever carried the bytes knows whose they were, and says so."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
NO_NAMES: Mapping[str, str] = {}


class MalformedError(ValueError):
    """What arrived, or what is to be sent, is not what its protocol promises."""


def check_utf8(data: bytes) -> None:
    """UnicodeDecodeError if it is no text: msgspec does not look at what it passes on unread."""
    str(data, "utf-8")


class NotExpressibleError(MalformedError):
    """A protocol has no words for something that cannot be left out; the text names it."""


class FieldError(MalformedError):
    """A field of a request is not what its protocol takes; `path` says which, empty for all."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What an error body or event says; empty where it says nothing.

    `status` is the one that an error of this type has when it comes before an answer. `given` is
    what is said for programs.
    """

    message: str = ""
    type: str = ""
    code: str = ""
    status: int | None = None
    too_long: bool = False
    given: dict[str, Any] | None = None


class ProviderSaidError(MalformedError):
    """Where an answer should be, or in the middle of one, there is an error of the provider's."""

    def __init__(self, details: ErrorDetails) -> None:
        super().__init__(details.message or details.type or "an error without a text")
        self.details = details


TOKENS = re.compile(r"\b(\d{1,12}) tokens > (\d{1,12})\b")
TOKENS_AND_LIMIT = re.compile(r"\b(\d{1,12}) \+ (\d{1,12}) > (\d{1,12})\b")


def counts_too_many(message: str) -> bool:
    """Whether a prompt is said to have more tokens than its model holds, perhaps with its answer's.

    A limit on the answer that is too high by itself is no such thing: no larger window helps there.
    """
    return _has_more(TOKENS, message) or _has_more(TOKENS_AND_LIMIT, message)


def _has_more(pattern: re.Pattern[str], message: str) -> bool:
    found = pattern.search(message)
    if found is None:
        return False
    *counts, most = map(int, found.groups())
    return sum(counts) > most
