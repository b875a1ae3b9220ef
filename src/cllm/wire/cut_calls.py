"""Arguments of a tool call that are no JSON object, as when an answer was cut off in the middle.

They are kept as the model wrote them, and an OpenAI client is given just that text. Protocols in
which a call holds an object get the text under one key, `INVALID_JSON`, in answers and in history;
reading such a call gives the text back. A call is never left out for it, and never completed.
"""

from typing import Any

import msgspec

INVALID_JSON = "INVALID_JSON"
PREFIX = b'{"INVALID_JSON":'
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError, RecursionError)

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
