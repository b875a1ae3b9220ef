"""The messages of a conversation file, and the originals stored beside them.

An original replaces the messages made of it while nobody edits these.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from cllm.core.message import Dialect, Message, Role

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


MAX_HASHES_PER_MESSAGE = 256
"""How often each message of a file may be hashed while records are located.

An unedited file needs one hash per message. Overlapping records could need quadratic time.
"""


class UnreadableError(ValueError):
    """Part of a conversation file is invalid; the text is a short reason."""


class OriginalMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An original message whose file form is the `span` messages from `at`, with hash `digest`.

    `role` is set if the form has another one.
    """

    at: int
    digest: str
    dialect: Dialect
    raw: msgspec.Raw
    role: Role | None = None
    span: int = 1


class OriginalLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where an original belongs, without the original."""

    at: int
    digest: str
    span: int = 1


OriginalT = TypeVar("OriginalT", OriginalMessage, OriginalLocation)


class MessageRange(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and its range in the file's messages.

    `plain`: a turn may begin with it, as it is user text and no tool result.
    """

    message: Message
    start: int
    end: int
    plain: bool


class EncodedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in file form, with the hash of each and the originals.

    `bounds` are the positions where the forms of each message start and end.
    """

    forms: tuple[bytes, ...]
    marks: tuple[str, ...]
    bounds: tuple[int, ...]
    extras: tuple[OriginalMessage, ...]


class MessageHead(msgspec.Struct):
    role: str


def compact(raw: bytes | msgspec.Raw) -> bytes:
    return msgspec.json.format(bytes(raw), indent=-1)


def decode_message(raw: bytes | msgspec.Raw) -> Message:
    squeezed = compact(raw)
    return Message(role=_role_of(squeezed), raw=squeezed)


def _role_of(raw: bytes) -> Role:
    try:
        name = msgspec.json.decode(raw, type=MessageHead).role
    except msgspec.ValidationError as error:
        raise UnreadableError(f"a message is not one: {error}") from None
    role = ROLES.get(name)
    if role is None:
        raise UnreadableError(f"a message has the role {name[:40]!r}")
    return role


def hash_message(raw: bytes | msgspec.Raw) -> str:
    """Return a short hash of a message's meaning, independent of its JSON spelling."""
    said = msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    return hashlib.sha256(said).hexdigest()[:16]


def digest_hashes(marks: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]


def write_messages(originals: Sequence[Message]) -> EncodedMessages:
    """Return the file form of messages, and the originals that differ from it."""
    from cllm.wire.conversation_file.forms import openai_forms  # noqa: PLC0415 - a list needs none

    forms: list[bytes] = []
    bounds = [0]
    for original in originals:
        forms.extend(compact(form.raw) for form in openai_forms(original))
        bounds.append(len(forms))
    marks = [hash_message(form) for form in forms]
    extras = (
        _original_if_changed(original, forms[start:end], marks[start:end], at=start)
        for original, (start, end) in zip(originals, pairwise(bounds), strict=True)
    )
    return EncodedMessages(
        forms=tuple(forms),
        marks=tuple(marks),
        bounds=tuple(bounds),
        extras=tuple(extra for extra in extras if extra is not None),
    )


def _original_if_changed(
    original: Message, forms: Sequence[bytes], marks: Sequence[str], *, at: int
) -> OriginalMessage | None:
    role, raw = _role_of(forms[0]), compact(original.raw)
    if original.dialect == "openai" and raw == forms[0] and role == original.role:
        return None
    return OriginalMessage(
        at=at,
        digest=_hash_range(marks),
        dialect=original.dialect,
        raw=msgspec.Raw(raw),
        role=None if role == original.role else original.role,
        span=len(forms),
    )


def _hash_range(marks: Sequence[str]) -> str:
    return marks[0] if len(marks) == 1 else digest_hashes(marks)


class FileMessages:
    """The messages of a file in order, and the originals that still replace some of them.

    `inside` are the positions where the forms of an original continue.
    """

    def __init__(self, raws: Sequence[msgspec.Raw], extras: Sequence[OriginalMessage]) -> None:
        self._forms = [decode_message(raw) for raw in raws]
        self.marks = [hash_message(form.raw) for form in self._forms]
        self._extras = locate_originals(extras, self.marks.__getitem__, count=len(self.marks))
        self.inside = {
            position
            for start, extra in self._extras.items()
            for position in range(start + 1, start + extra.span)
        }

    def between(self, start: int, end: int) -> list[MessageRange]:
        """Return the messages of a range; an original that exceeds it is ignored."""
        placed: list[MessageRange] = []
        while start < end:
            form, extra = self._forms[start], self._extras.get(start)
            message, after = form, start + 1
            if extra is not None and start + extra.span <= end:
                role, raw = extra.role or form.role, compact(extra.raw)
                message = Message(role=role, raw=raw, dialect=extra.dialect)
                after = start + extra.span
            is_plain = form.role == "user"
            placed.append(MessageRange(message=message, start=start, end=after, plain=is_plain))
            start = after
        return placed


def locate_originals(
    extras: Iterable[OriginalT], mark_at: Callable[[int], str], *, count: int
) -> dict[int, OriginalT]:
    """Return the originals whose forms are still in the file, by position.

    Moved forms are found if they are unique in the file.
    """
    ties = _RangeHashes(mark_at, count)
    found: dict[int, OriginalT] = {}
    taken: set[int] = set()
    moved: list[OriginalT] = []
    for extra in extras:
        if ties.at(extra.at, extra.span) != extra.digest or not _claim(taken, extra.at, extra.span):
            moved.append(extra)
        else:
            found[extra.at] = extra
    for extra in moved:
        places = ties.places(extra.span).get(extra.digest, ())
        if len(places) == 1 and _claim(taken, places[0], extra.span):
            found[places[0]] = extra
    return found


def _claim(taken: set[int], start: int, span: int) -> bool:
    wanted = range(start, start + span)
    if not taken.isdisjoint(wanted):
        return False
    taken.update(wanted)
    return True


class _RangeHashes:
    """Hashes of neighbouring messages, computed on demand, with a limit."""

    def __init__(self, mark_at: Callable[[int], str], count: int) -> None:
        self._mark_at = mark_at
        self._count = count
        self._left = MAX_HASHES_PER_MESSAGE * count
        self._places: dict[int, dict[str, list[int]]] = {}

    def at(self, start: int, span: int) -> str | None:
        """Return the hash of `span` messages from `start`, or None."""
        if start < 0 or span < 1 or start + span > self._count or span > self._left:
            return None
        self._left -= span
        return _hash_range([self._mark_at(index) for index in range(start, start + span)])

    def places(self, span: int) -> dict[str, list[int]]:
        """Return hash → positions for ranges of this length; empty if that exceeds the limit."""
        found = self._places.get(span)
        if found is not None:
            return found
        starts = range(max(self._count - span + 1, 0))
        if span * len(starts) > self._left:
            return {}
        found = self._places[span] = {}
        for start in starts:
            tie = self.at(start, span)
            if tie is not None:
                found.setdefault(tie, []).append(start)
        return found
