"""The messages of a conversation file, and the originals that are kept beside them.

The messages of a file belong to whoever edits it. An original stands in for the messages made of
it while these are what they were; it is found by their position and a hash. Nothing here changes
a message.
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


SEARCHED = 256
"""How often each message of a file may be hashed while its records are looked for.

A file that nobody edited needs one hash for each message. Records that claim overlapping stretches
of any length could need as many as there are messages, for each message.
"""


class UnreadableError(ValueError):
    """Part of a conversation file makes no sense; the text is a short reason."""


class Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it arrived, where the file has only its OpenAI form.

    The form is the `span` messages of the file from `at`, and `digest` their hash. `role` is there
    if it is not the one that the first of them has.
    """

    at: int
    digest: str
    dialect: Dialect
    raw: msgspec.Raw
    role: Role | None = None
    span: int = 1


class ExtraPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an original belongs, without the original."""

    at: int
    digest: str
    span: int = 1


Tied = TypeVar("Tied", Extra, ExtraPlace)


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A message and where the file has it: the file's messages from `start` up to `end`.

    It is `plain` if a turn may begin with it: the user's own words, no answer to a tool.
    """

    message: Message
    start: int
    end: int
    plain: bool


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Messages as a file has them: what is in it, the hash of each, and what is kept beside.

    `bounds` are the positions at which the forms of one message end and those of the next begin,
    with those before the first and after the last.
    """

    forms: tuple[bytes, ...]
    marks: tuple[str, ...]
    bounds: tuple[int, ...]
    extras: tuple[Extra, ...]


class _Head(msgspec.Struct):
    role: str


def compact(raw: bytes | msgspec.Raw) -> bytes:
    """The same JSON without white space; every number and string keeps its spelling."""
    return msgspec.json.format(bytes(raw), indent=-1)


def decode_message(raw: bytes | msgspec.Raw) -> Message:
    """A message in OpenAI's words."""
    squeezed = compact(raw)
    return Message(role=_role_of(squeezed), raw=squeezed)


def _role_of(raw: bytes) -> Role:
    try:
        name = msgspec.json.decode(raw, type=_Head).role
    except msgspec.ValidationError as error:
        raise UnreadableError(f"a message is not one: {error}") from None
    role = ROLES.get(name)
    if role is None:
        raise UnreadableError(f"a message has the role {name[:40]!r}")
    return role


def mark_of(raw: bytes | msgspec.Raw) -> str:
    """A short hash of what a message says, however a tool spells, spaces or sorts its JSON."""
    said = msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    return hashlib.sha256(said).hexdigest()[:16]


def digest_of(marks: Sequence[str]) -> str:
    """A short hash over the marks of several messages."""
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]


def write_messages(originals: Sequence[Message]) -> Written:
    """The messages for a file, and beside them those that are more than their form."""
    from cllm.wire.conversation_file.forms import openai_forms  # noqa: PLC0415 - a list needs none

    forms: list[bytes] = []
    bounds = [0]
    for original in originals:
        forms.extend(compact(form.raw) for form in openai_forms(original))
        bounds.append(len(forms))
    marks = [mark_of(form) for form in forms]
    extras = (
        _extra(original, forms[start:end], marks[start:end], at=start)
        for original, (start, end) in zip(originals, pairwise(bounds), strict=True)
    )
    return Written(
        forms=tuple(forms),
        marks=tuple(marks),
        bounds=tuple(bounds),
        extras=tuple(extra for extra in extras if extra is not None),
    )


def _extra(
    original: Message, forms: Sequence[bytes], marks: Sequence[str], *, at: int
) -> Extra | None:
    """What is kept of a message beside its forms; nothing if it is read back from them whole."""
    role, raw = _role_of(forms[0]), compact(original.raw)
    if original.dialect == "openai" and raw == forms[0] and role == original.role:
        return None
    return Extra(
        at=at,
        digest=_tie(marks),
        dialect=original.dialect,
        raw=msgspec.Raw(raw),
        role=None if role == original.role else original.role,
        span=len(forms),
    )


def _tie(marks: Sequence[str]) -> str:
    return marks[0] if len(marks) == 1 else digest_of(marks)


class FileMessages:
    """The messages of a file in order, and the originals that still stand in for some of them.

    `inside` are the positions at which the forms of an original go on.
    """

    def __init__(self, raws: Sequence[msgspec.Raw], extras: Sequence[Extra]) -> None:
        self._forms = [decode_message(raw) for raw in raws]
        self.marks = [mark_of(form.raw) for form in self._forms]
        self._extras = located(extras, self.marks.__getitem__, count=len(self.marks))
        self.inside = {
            position
            for start, extra in self._extras.items()
            for position in range(start + 1, start + extra.span)
        }

    def between(self, start: int, end: int) -> list[Placed]:
        """What was said in that stretch; an original that reaches beyond it stands for nothing."""
        placed: list[Placed] = []
        while start < end:
            form, extra = self._forms[start], self._extras.get(start)
            plain = form.role == "user"
            if extra is None or start + extra.span > end:
                said = Placed(message=form, start=start, end=start + 1, plain=plain)
            else:
                message = Message(
                    role=extra.role or form.role, raw=compact(extra.raw), dialect=extra.dialect
                )
                said = Placed(message=message, start=start, end=start + extra.span, plain=plain)
            placed.append(said)
            start = said.end
        return placed


def located(
    extras: Iterable[Tied], mark_at: Callable[[int], str], *, count: int
) -> dict[int, Tied]:
    """The originals whose forms are still in the file, by the position of the first of these.

    Forms that other tools moved are found again if nothing else in the file looks like them.
    """
    ties = _Ties(mark_at, count)
    found: dict[int, Tied] = {}
    taken: set[int] = set()
    moved: list[Tied] = []
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
    """Take these positions, unless one of them is taken."""
    wanted = range(start, start + span)
    if not taken.isdisjoint(wanted):
        return False
    taken.update(wanted)
    return True


class _Ties:
    """The hashes of neighbouring messages, made when somebody asks, and only so many of them."""

    def __init__(self, mark_at: Callable[[int], str], count: int) -> None:
        self._mark_at = mark_at
        self._count = count
        self._left = SEARCHED * count
        self._places: dict[int, dict[str, list[int]]] = {}

    def at(self, start: int, span: int) -> str | None:
        """The hash of so many messages from there on; None if they are not there."""
        if start < 0 or span < 1 or start + span > self._count or span > self._left:
            return None
        self._left -= span
        return _tie([self._mark_at(index) for index in range(start, start + span)])

    def places(self, span: int) -> dict[str, list[int]]:
        """Where in the file messages of this number have which hash; none if that takes long."""
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
