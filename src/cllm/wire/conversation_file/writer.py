"""Writes a conversation file in pieces, for conversations that do not fit into memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import UsageError
from cllm.core.message import Message
from cllm.wire.conversation_file.codec import encode_time
from cllm.wire.conversation_file.messages import OriginalMessage, UnreadableError, write_messages
from cllm.wire.conversation_file.turn_records import (
    Remainder,
    encode_header,
    encode_metadata,
    encode_turn,
)

P = ParamSpec("P")

_STEP = b"  "
_IN_DOCUMENT, _IN_METADATA, _IN_CLLM = 1, 2, 3


def _check_encodable(write: Callable[P, bytes]) -> Callable[P, bytes]:

    @wraps(write)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> bytes:
        try:
            return write(*args, **kwargs)
        except (UnreadableError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UsageError(f"The conversation cannot be saved as JSON ({error}).") from None

    return wrapper


class FileWriter:
    """Writes one file; call its methods in order. The turns of its conversation are empty.

    `add_messages` takes the messages of history turns, `record` each turn and then each variant,
    `add_originals` the messages of `turns_with_originals`.
    """

    def __init__(self, conversation: StoredConversation) -> None:
        self._conversation = conversation
        self._hashes: dict[str, list[str]] = {}
        self._starts: dict[str, int] = {}
        self._written = 0
        self._section: str | None = None
        self._prompt: tuple[OriginalMessage, ...] = ()
        self._has_extras: dict[str, None] = {}
        self._metadata, self._displaced = encode_metadata(conversation, Remainder())

    @_check_encodable
    def start(self) -> bytes:
        conversation = self._conversation
        fields = {"id": conversation.id, "model": conversation.model}
        head = b'{%b,\n  "messages": [' % _fields(fields, _IN_DOCUMENT)
        if conversation.system is None:
            return head
        encoded = write_messages((conversation.system,))
        self._prompt = encoded.extras
        return head + self._forms(encoded.forms)

    @_check_encodable
    def add_messages(self, turn: Turn, messages: Sequence[Message]) -> bytes:
        """Append messages of a history turn."""
        self._starts.setdefault(turn.id, self._written)
        encoded = write_messages(messages)
        self._hashes.setdefault(turn.id, []).extend(encoded.hashes)
        if encoded.extras:
            self._has_extras[turn.id] = None
        return self._forms(encoded.forms)

    def _forms(self, forms: Iterable[bytes]) -> bytes:
        pieces = []
        for form in forms:
            pieces.append(_element(form, _IN_DOCUMENT, first=self._written == 0))
            self._written += 1
        return b"".join(pieces)

    @_check_encodable
    def add_metadata(self) -> bytes:
        """Return the fields between the messages and the turns."""
        conversation = self._conversation
        times = {
            "created_at": encode_time(conversation.created_at),
            "updated_at": encode_time(conversation.updated_at),
        }
        return b"".join(
            (
                _end_of_list(_IN_DOCUMENT, is_empty=self._written == 0),
                b",",
                _fields(times, _IN_DOCUMENT),
                b',\n  "metadata": {',
                _fields(self._metadata, _IN_METADATA),
                b',\n    "cllm": {',
                _fields(encode_header(conversation), _IN_CLLM),
            )
        )

    @_check_encodable
    def record(self, section: str, turn: Turn) -> bytes:
        """Append the record of a turn or variant; one that is not history contains its messages."""
        in_history = section == "turns" and turn.is_history
        hashes = self._hashes.get(turn.id, []) if in_history else None
        return self._in(section, msgspec.json.encode(encode_turn(turn, hashes=hashes)))

    def _in(self, section: str, value: bytes) -> bytes:
        if section == self._section:
            return _element(value, _IN_CLLM, first=False)
        opened = self._close_section() + b',\n%b"%b": [' % (_STEP * _IN_CLLM, section.encode())
        self._section = section
        return opened + _element(value, _IN_CLLM, first=True)

    def _close_section(self) -> bytes:
        return b"" if self._section is None else _end_of_list(_IN_CLLM, is_empty=False)

    @property
    def turns_with_originals(self) -> tuple[Turn, ...]:
        """The turns with messages that differ from their file form."""
        return tuple(turn for turn in self._conversation.turns if turn.id in self._has_extras)

    @_check_encodable
    def add_prompt_original(self) -> bytes:
        return b"".join(self._in("extras", msgspec.json.encode(extra)) for extra in self._prompt)

    @_check_encodable
    def add_originals(self, turn: Turn, messages: Sequence[Message]) -> bytes:
        """Append the originals of these messages that differ from their file form."""
        encoded = write_messages(messages)
        start = self._starts[turn.id]
        self._starts[turn.id] = start + len(encoded.forms)
        originals = (msgspec.structs.replace(each, at=start + each.at) for each in encoded.extras)
        return b"".join(self._in("extras", msgspec.json.encode(extra)) for extra in originals)

    @_check_encodable
    def end(self) -> bytes:
        fields = _fields({"metadata": self._displaced}, _IN_CLLM) if self._displaced else b""
        comma = b"," if fields else b""
        return self._close_section() + comma + fields + b"\n    }\n  }\n}\n"


def _fields(values: Mapping[str, Any], depth: int) -> bytes:
    return b",".join(
        b"\n%b%b: %b"
        % (_STEP * depth, msgspec.json.encode(name), _indent(msgspec.json.encode(value), depth))
        for name, value in values.items()
    )


def _element(encoded: bytes, depth: int, *, first: bool) -> bytes:
    inside = depth + 1
    return b"%b\n%b%b" % (b"" if first else b",", _STEP * inside, _indent(encoded, inside))


def _end_of_list(depth: int, *, is_empty: bool) -> bytes:
    return b"]" if is_empty else b"\n%b]" % (_STEP * depth)


def _indent(encoded: bytes, depth: int) -> bytes:
    msgspec.json.decode(encoded)
    formatted = msgspec.json.format(encoded, indent=len(_STEP))
    return formatted.replace(b"\n", b"\n" + _STEP * depth)
