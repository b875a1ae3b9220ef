"""The turn records of a conversation file, and how they are tied to its messages.

The messages of a file belong to whoever edits it. A record claims some of them by their number
and a hash; where that fits no more the messages win and are grouped into turns anew. Nothing
here changes a message.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from cllm.core.conversation import Turn, TurnFailure, TurnState, WindowRecord
from cllm.core.message import Dialect, Message, Role
from cllm.core.notice import Notice
from cllm.core.reply import Usage

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class UnreadableError(ValueError):
    """Part of a conversation file makes no sense; the text is a short reason."""


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a file keeps about one turn beside its messages.

    A turn that is history owns the next `messages` messages of the file. Any other carries its
    own `inline`.
    """

    id: str
    started_at: datetime
    place: str | None = None
    state: TurnState = "complete"
    messages: int = 0
    digest: str | None = None
    inline: tuple[msgspec.Raw, ...] | None = None
    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    notices: tuple[Notice, ...] = ()
    window: WindowRecord | None = None
    ended_at: datetime | None = None
    failure: TurnFailure | None = None


class _Head(msgspec.Struct):
    role: str


class _Wrapped(msgspec.Struct, kw_only=True):
    """A message that cannot stand among OpenAI's as it is."""

    dialect: Dialect
    role: Role
    raw: msgspec.Raw


class _Marked(msgspec.Struct):
    dialect: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def compact(raw: bytes | msgspec.Raw) -> bytes:
    """The same JSON without white space; every number and string keeps its spelling."""
    return msgspec.json.format(bytes(raw), indent=-1)


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC; one without an offset is taken to be in UTC already."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise UnreadableError("it has a time beyond the calendar") from None


def decode_message(raw: bytes | msgspec.Raw) -> Message:
    """A message in OpenAI's words."""
    squeezed = compact(raw)
    try:
        name = msgspec.json.decode(squeezed, type=_Head).role
    except msgspec.ValidationError as error:
        raise UnreadableError(f"a message is not one: {error}") from None
    role = ROLES.get(name)
    if role is None:
        raise UnreadableError(f"a message has the role {name[:40]!r}")
    return Message(role=role, raw=squeezed)


def mark_of(message: Message) -> str:
    """A short hash of what a message says, however a tool spells, spaces or sorts its JSON."""
    said = msgspec.json.encode(msgspec.json.decode(message.raw), order="sorted")
    return hashlib.sha256(said).hexdigest()[:16]


def digest_of(marks: Sequence[str]) -> str:
    """A short hash over the marks of several messages."""
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]


def encode_turn(turn: Turn, *, marks: Sequence[str] | None) -> dict[str, Any]:
    """The record of a turn: by the `marks` of its messages in the file, or inline."""
    record: dict[str, Any] = {"id": turn.id}
    if turn.place != turn.id:
        record["place"] = turn.place
    if turn.state != "complete":
        record["state"] = turn.state
    if marks is None:
        record["inline"] = [_encode_inline(message) for message in turn.messages]
    else:
        record["messages"] = len(marks)
        record["digest"] = digest_of(marks)
    optional = {
        "model": turn.model,
        "provider": turn.provider,
        "usage": None if turn.usage is None else _lean(turn.usage),
        "cost": turn.cost,
        "notices": [_lean(notice) for notice in turn.notices] or None,
        "window": turn.window,
        "started_at": in_utc(turn.started_at),
        "ended_at": None if turn.ended_at is None else in_utc(turn.ended_at),
        "failure": turn.failure,
    }
    return record | {key: value for key, value in optional.items() if value is not None}


def decode_turn(record: TurnRecord, messages: tuple[Message, ...] | None = None) -> Turn:
    """The turn of a record, with the messages it owns in the file or, without, its inline ones."""
    if messages is None:
        messages = tuple(_decode_inline(raw) for raw in record.inline or ())
    return Turn(
        id=record.id,
        place=record.id if record.place is None else record.place,
        state=record.state,
        messages=messages,
        started_at=in_utc(record.started_at),
        ended_at=None if record.ended_at is None else in_utc(record.ended_at),
        model=record.model,
        provider=record.provider,
        usage=record.usage,
        cost=record.cost,
        notices=record.notices,
        window=record.window,
        failure=record.failure,
    )


def restore_path(
    records: Sequence[TurnRecord],
    messages: Sequence[Message],
    *,
    marks: Sequence[str],
    taken: set[str],
    moment: datetime,
) -> tuple[Turn, ...]:
    """The turns on the default path: the records that still fit, and new turns for the rest.

    `marks` are those of the messages as the file has them, `taken` the turn ids that are
    in use elsewhere, and `moment` the time that new turns get.
    """
    taken = taken | {record.id for record in records}
    turns: list[Turn] = []
    for record, start, end in _fits(records, marks):
        if record is None:
            for first, last in _groups(messages, start, end):
                turn_id = _derived_id(marks[first:last], position=first, taken=taken)
                taken.add(turn_id)
                turns.append(_turn_of(turn_id, messages[first:last], moment))
        elif record.inline is not None:
            turns.append(decode_turn(record))
        else:
            turns.append(decode_turn(record, tuple(messages[start:end])))
    return tuple(turns)


_Fit = tuple[TurnRecord | None, int, int]


def _fits(records: Sequence[TurnRecord], marks: Sequence[str]) -> Iterator[_Fit]:
    """Records with the messages they own, in order; None with messages that no record claims.

    Records and messages are walked together. Where the next record does not fit, the first
    later one that does takes over, and those between are passed over; a record with messages
    of its own is never passed over.
    """
    claims = _Claims(records, marks)
    position = unclaimed = following = 0
    while True:
        index = claims.first_fit(position, following)
        if index is None and position < len(marks):
            position += 1
            continue
        if unclaimed < position:
            yield None, unclaimed, position
        if index is None:
            break
        for record in records[following:index]:
            if record.inline is not None:
                yield record, position, position
        record = records[index]
        end = position + (0 if record.inline is not None else record.messages)
        yield record, position, end
        position = unclaimed = end
        following = index + 1
    for record in records[following:]:
        if record.inline is not None:
            yield record, position, position


class _Claims:
    """Which record fits at which position."""

    def __init__(self, records: Sequence[TurnRecord], marks: Sequence[str]) -> None:
        self._records = records
        self._marks = marks
        self._by_claim: dict[tuple[int, str | None], list[int]] = {}
        for index, record in enumerate(records):
            if record.inline is None and record.messages > 0:
                self._by_claim.setdefault((record.messages, record.digest), []).append(index)
        self._lengths = sorted({length for length, _ in self._by_claim})

    def first_fit(self, position: int, following: int) -> int | None:
        if following < len(self._records):
            record = self._records[following]
            if record.inline is not None or self._fits_at(position, record):
                return following
        found = (self._later(position, length, following) for length in self._lengths)
        return min((index for index in found if index is not None), default=None)

    def _fits_at(self, position: int, record: TurnRecord) -> bool:
        claimed = self._marks[position : position + max(record.messages, 0)]
        return len(claimed) == record.messages and digest_of(claimed) == record.digest

    def _later(self, position: int, length: int, following: int) -> int | None:
        claimed = self._marks[position : position + length]
        indexes = self._by_claim.get((len(claimed), digest_of(claimed)), [])
        at = bisect_left(indexes, following)
        return indexes[at] if at < len(indexes) else None


def _groups(messages: Sequence[Message], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Turns by the rule: a run of user messages and everything that answers them."""
    first = start
    for index in range(start + 1, end):
        if messages[index].role == "user" and messages[index - 1].role != "user":
            yield first, index
            first = index
    yield first, end


def _derived_id(marks: Sequence[str], *, position: int, taken: set[str]) -> str:
    """An id from content and position, so that reading a file twice gives the same turns."""
    salt = 0
    while True:
        turn_id = "turn_" + digest_of([str(position), str(salt), *marks])
        if turn_id not in taken:
            return turn_id
        salt += 1


def _turn_of(turn_id: str, messages: Sequence[Message], moment: datetime) -> Turn:
    return Turn(
        id=turn_id,
        place=turn_id,
        state="complete",
        messages=tuple(messages),
        started_at=moment,
    )


def _encode_inline(message: Message) -> Any:
    raw = msgspec.Raw(compact(message.raw))
    if message.dialect == "openai" and "dialect" not in message.json():
        return raw
    return _Wrapped(dialect=message.dialect, role=message.role, raw=raw)


def _decode_inline(raw: msgspec.Raw) -> Message:
    if msgspec.json.decode(raw, type=_Marked).dialect is msgspec.UNSET:
        return decode_message(raw)
    wrapped = msgspec.json.decode(raw, type=_Wrapped)
    return Message(role=wrapped.role, raw=compact(wrapped.raw), dialect=wrapped.dialect)


def _lean(value: msgspec.Struct) -> dict[str, Any]:
    """The fields of a value that differ from their defaults."""
    fields = msgspec.structs.fields(value)
    pairs = ((field, getattr(value, field.name)) for field in fields)
    return {field.name: value for field, value in pairs if value != field.default}
