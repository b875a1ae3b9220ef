"""The messages of a conversation file, and the originals stored with them.

An original replaces the file form made from it, unless that form was edited.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from cllm.core.conversation import StoredConversation, Turn, WindowRecord
from cllm.core.message import Dialect, Message, Role

replace = msgspec.structs.replace

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


MAX_HASHES_PER_MESSAGE = 256
"""The maximum number of hashes per message while records are located.

An unedited file needs one hash per message. Overlapping records could need quadratic time.
"""


class UnreadableError(ValueError):
    """Part of a conversation file is invalid; the message is a short reason."""


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
    """The location of an original, without its content."""

    at: int
    digest: str
    span: int = 1


OriginalT = TypeVar("OriginalT", OriginalMessage, OriginalLocation)


class MessageRange(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and its range in the file's messages.

    `plain`: a turn can start with it, as it is user text and not a tool result.
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
    hashes: tuple[str, ...]
    bounds: tuple[int, ...]
    extras: tuple[OriginalMessage, ...]


class MessageHead(msgspec.Struct):
    role: str


def compact(raw: bytes | msgspec.Raw) -> bytes:
    return msgspec.json.format(bytes(raw), indent=-1)


def compact_messages(conversation: StoredConversation) -> StoredConversation:
    """Return a conversation whose JSON is as it is read from a file.

    A message that a client sent with spaces between the tokens of its JSON has them in a database.
    """
    system = conversation.system
    return replace(
        conversation,
        system=None if system is None else _compact_message(system),
        turns=tuple(map(_compact_turn, conversation.turns)),
        variants=tuple(map(_compact_turn, conversation.variants)),
    )


def _compact_turn(turn: Turn) -> Turn:
    return replace(
        turn,
        messages=tuple(map(_compact_message, turn.messages)),
        window=compact_window(turn.window),
    )


def compact_window(window: WindowRecord | None) -> WindowRecord | None:
    if window is None or isinstance(window.parameters, msgspec.UnsetType):
        return window
    return replace(window, parameters=msgspec.Raw(compact(window.parameters)))


def _compact_message(message: Message) -> Message:
    try:
        raw = compact(message.raw)
    except (msgspec.MsgspecError, RecursionError):
        return message
    return message if raw == message.raw else replace(message, raw=raw)


def decode_message(raw: bytes | msgspec.Raw) -> Message:
    compacted = compact(raw)
    return Message(role=_role_of(compacted), raw=compacted)


def _role_of(raw: bytes) -> Role:
    try:
        name = msgspec.json.decode(raw, type=MessageHead).role
    except msgspec.ValidationError as error:
        from cllm.wire.messages import field_error  # noqa: PLC0415 - only for an error

        raise UnreadableError(f"a message is invalid: {field_error(error)}") from None
    role = ROLES.get(name)
    if role is None:
        raise UnreadableError(f"a message has the unknown role {name[:40]!r}")
    return role


def hash_message(raw: bytes | msgspec.Raw) -> str:
    """Return a short hash of a message, independent of JSON spacing and key order."""
    normalized = msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    return hashlib.sha256(normalized).hexdigest()[:16]


def digest_hashes(hashes: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:16]


def write_messages(originals: Sequence[Message]) -> EncodedMessages:
    """Return the file form of messages, and the originals that differ from it."""
    from cllm.wire.conversation_file.forms import openai_forms  # noqa: PLC0415 - lists do not need it

    forms: list[bytes] = []
    bounds = [0]
    for original in originals:
        forms.extend(compact(form.raw) for form in openai_forms(original))
        bounds.append(len(forms))
    hashes = [hash_message(form) for form in forms]
    extras = (
        _original_if_changed(original, forms[start:end], hashes[start:end], at=start)
        for original, (start, end) in zip(originals, pairwise(bounds), strict=True)
    )
    return EncodedMessages(
        forms=tuple(forms),
        hashes=tuple(hashes),
        bounds=tuple(bounds),
        extras=tuple(extra for extra in extras if extra is not None),
    )


def _original_if_changed(
    original: Message, forms: Sequence[bytes], hashes: Sequence[str], *, at: int
) -> OriginalMessage | None:
    role, raw = _role_of(forms[0]), compact(original.raw)
    if original.dialect == "openai" and raw == forms[0] and role == original.role:
        return None
    return OriginalMessage(
        at=at,
        digest=_hash_range(hashes),
        dialect=original.dialect,
        raw=msgspec.Raw(raw),
        role=None if role == original.role else original.role,
        span=len(forms),
    )


def _hash_range(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else digest_hashes(hashes)


class FileMessages:
    """The messages of a file in order, and the originals that still replace some of them.

    `inside` are the positions where the forms of an original continue.
    """

    def __init__(self, raws: Sequence[msgspec.Raw], extras: Sequence[OriginalMessage]) -> None:
        self._forms = [decode_message(raw) for raw in raws]
        self.hashes = [hash_message(form.raw) for form in self._forms]
        self._extras = locate_originals(extras, self.hashes.__getitem__, count=len(self.hashes))
        self.inside = {
            position
            for start, extra in self._extras.items()
            for position in range(start + 1, start + extra.span)
        }

    def between(self, start: int, end: int) -> list[MessageRange]:
        """Return the messages of a range; ignores an original that exceeds it."""
        ranges: list[MessageRange] = []
        while start < end:
            form, extra = self._forms[start], self._extras.get(start)
            message, after = form, start + 1
            if extra is not None and start + extra.span <= end:
                role, raw = extra.role or form.role, compact(extra.raw)
                message = Message(role=role, raw=raw, dialect=extra.dialect)
                after = start + extra.span
            is_plain = form.role == "user"
            ranges.append(MessageRange(message=message, start=start, end=after, plain=is_plain))
            start = after
        return ranges


def locate_originals(
    extras: Iterable[OriginalT], hash_at: Callable[[int], str], *, count: int
) -> dict[int, OriginalT]:
    """Return the originals whose forms are still in the file, by position.

    Moved forms are found if unique.
    """
    hashes = _RangeHashes(hash_at, count)
    located: dict[int, OriginalT] = {}
    claimed: set[int] = set()
    moved: list[OriginalT] = []
    for extra in extras:
        at, span = extra.at, extra.span
        if hashes.at(at, span) != extra.digest or not _claim(claimed, at, span):
            moved.append(extra)
        else:
            located[at] = extra
    for extra in moved:
        positions = hashes.positions(extra.span).get(extra.digest, ())
        if len(positions) == 1 and _claim(claimed, positions[0], extra.span):
            located[positions[0]] = extra
    return located


def _claim(claimed: set[int], start: int, span: int) -> bool:
    positions = range(start, start + span)
    if not claimed.isdisjoint(positions):
        return False
    claimed.update(positions)
    return True


class _RangeHashes:
    """Hashes of neighbouring messages, computed on demand, with a limit."""

    def __init__(self, hash_at: Callable[[int], str], count: int) -> None:
        self._hash_at = hash_at
        self._count = count
        self._budget = MAX_HASHES_PER_MESSAGE * count
        self._positions: dict[int, dict[str, list[int]]] = {}

    def at(self, start: int, span: int) -> str | None:
        """Return the hash of `span` messages from `start`, or None."""
        if start < 0 or span < 1 or start + span > self._count or span > self._budget:
            return None
        self._budget -= span
        return _hash_range([self._hash_at(index) for index in range(start, start + span)])

    def positions(self, span: int) -> dict[str, list[int]]:
        """Return hash → positions for ranges of this length; empty if that exceeds the limit."""
        positions = self._positions.get(span)
        if positions is not None:
            return positions
        starts = range(max(self._count - span + 1, 0))
        if span * len(starts) > self._budget:
            return {}
        positions = self._positions[span] = {}
        for start in starts:
            digest = self.at(start, span)
            if digest is not None:
                positions.setdefault(digest, []).append(start)
        return positions
