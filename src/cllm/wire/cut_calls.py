"""Arguments of a tool call that are no JSON object, as when an answer was cut off in the middle.

They are kept as the model wrote them, and an OpenAI client is given just that text. Protocols in
which a call holds an object get the text under one key, `INVALID_JSON`, in answers and in history;
reading such a call gives the text back. A call is never left out for it, and never completed.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

INVALID_JSON = "INVALID_JSON"
PREFIX = b'{"INVALID_JSON":'
BLANKS = " \t\n\r"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError, RecursionError)

# What opens and closes outside of a JSON string, and what matters inside one.
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder(msgspec.Raw)


def is_json(text: str) -> bool:
    """Whether this text is one JSON value and nothing else."""
    try:
        _values.decode(text)
    except UNREADABLE:
        return False
    return True


def is_json_object(text: str) -> bool:
    """Whether this text is one JSON object and nothing else."""
    try:
        _objects.decode(text)
    except UNREADABLE:
        return False
    return True


class ObjectScanner:
    """Tells whether pieces of text, to which more are added, are one JSON object so far.

    Each piece is scanned once and the text is parsed at most once, so that asking after every piece
    takes time proportional to the length of the text.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces
        self._scanned = 0
        self._is_blank = True
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._is_object: bool | None = None

    def is_object(self) -> bool:
        """Whether the pieces are one JSON object and nothing else, at this moment."""
        while self._scanned < len(self._pieces):
            self._take(self._pieces[self._scanned])
            self._scanned += 1
        # The beginning of an object is always inside of its first bracket.
        is_open = self._is_blank or self._in_string or self._depth > 0
        if self._is_object is None and not is_open:
            self._is_object = is_json_object("".join(self._pieces))
        return self._is_object is True

    def _take(self, piece: str) -> None:
        if not piece.strip(BLANKS):
            return
        self._is_blank = False
        if self._is_object is None:
            self._scan(piece)
        else:
            # Nothing can follow an object, and what was none never becomes one.
            self._is_object = False

    def _scan(self, piece: str) -> None:
        """Follow the brackets outside of strings."""
        at = 0
        while at < len(piece):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(piece, at)
            if found is None:
                return
            at = found.end()
            match found[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._is_escaped = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1


def wrapped(arguments: str) -> str:
    """The text as the only value of an object."""
    return msgspec.json.encode({INVALID_JSON: arguments}).decode()


def as_object(arguments: str) -> str:
    """Arguments where an object has to stand: themselves if they are one, else wrapped."""
    if not arguments:
        return "{}"
    return arguments if is_json_object(arguments) else wrapped(arguments)


def unwrapped(given: bytes) -> str:
    """Arguments as the model wrote them; `given` is an object, which may be our wrapping."""
    if given.startswith(PREFIX):
        fields: Any = msgspec.json.decode(given)
        text = fields[INVALID_JSON]
        if len(fields) == 1 and isinstance(text, str) and not is_json_object(text):
            return text
    return given.decode()
