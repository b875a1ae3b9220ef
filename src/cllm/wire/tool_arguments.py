"""The arguments of tool calls: a JSON object as text, complete or not.

Invalid JSON, as in a truncated answer, is wrapped under the key INVALID_JSON where a protocol
requires an object, and unwrapped when decoded.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from cllm.core.message import ToolCall
from cllm.wire.messages import NoticeMerger

INVALID_JSON = "INVALID_JSON"
INVALID_JSON_PREFIX = b'{"INVALID_JSON":'
JSON_WHITESPACE = " \t\n\r"
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError, RecursionError)
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder(msgspec.Raw)


def is_json(text: str) -> bool:
    try:
        _values.decode(text)
    except _UNREADABLE:
        return False
    return True


def is_json_object(text: str) -> bool:
    try:
        _objects.decode(text)
    except _UNREADABLE:
        return False
    return True


class ObjectScanner:
    """Checks whether a growing list of text pieces is one complete JSON object.

    Scans each piece once and parses the text at most once, so repeated checks take linear time
    in total.
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
        while self._scanned < len(self._pieces):
            self._take(self._pieces[self._scanned])
            self._scanned += 1
        is_open = self._is_blank or self._in_string or self._depth > 0
        if self._is_object is None and not is_open:
            self._is_object = is_json_object("".join(self._pieces))
        return self._is_object is True

    def _take(self, piece: str) -> None:
        if not piece.strip(JSON_WHITESPACE):
            return
        self._is_blank = False
        if self._is_object is None:
            self._scan(piece)
        else:
            # Nothing can follow an object, and invalid JSON stays invalid.
            self._is_object = False

    def _scan(self, piece: str) -> None:
        at = 0
        while at < len(piece):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            token = (_INSIDE if self._in_string else _OUTSIDE).search(piece, at)
            if token is None:
                return
            at = token.end()
            match token[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._is_escaped = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1


def wrap_arguments(arguments: str) -> str:
    return msgspec.json.encode({INVALID_JSON: arguments}).decode()


def wrap_invalid_arguments(call: ToolCall, path: str, notes: NoticeMerger) -> ToolCall:
    """Return the call with a JSON object as arguments; a notice reports a change."""
    if not call.arguments or is_json_object(call.arguments):
        return call
    message = f"Arguments that are not a JSON object are sent in a field {INVALID_JSON}."
    notes.add("arguments_changed", path, message)
    return msgspec.structs.replace(call, arguments=wrap_arguments(call.arguments))


def to_json_object(arguments: str) -> str:
    """Return the arguments if they are a JSON object, else wrapped in one."""
    if not arguments:
        return "{}"
    return arguments if is_json_object(arguments) else wrap_arguments(arguments)


def unwrap_arguments(encoded: bytes) -> str:
    """Return the model's arguments from an encoded object, which may be our wrapper."""
    if encoded.startswith(INVALID_JSON_PREFIX):
        fields: Any = msgspec.json.decode(encoded)
        text = fields[INVALID_JSON]
        if len(fields) == 1 and isinstance(text, str) and not is_json_object(text):
            return text
    return encoded.decode()
