"""Turn records of a conversation file, and how they are matched with its messages.

A record claims messages by count and hash; edited messages become new turns.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from cllm.core.conversation import (
    ContextRecord,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnFailure,
    TurnState,
    WindowRecord,
)
from cllm.core.message import Dialect, Message, Role
from cllm.core.notice import Notice
from cllm.core.reply import Usage
from cllm.wire.conversation_file.messages import (
    MAX_HASHES_PER_MESSAGE,
    FileMessages,
    MessageRange,
    UnreadableError,
    compact,
    compact_window,
    decode_message,
    digest_hashes,
)


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one turn in a file.

    A history turn owns the next `messages` messages of the file; any other turn contains its
    messages in `inline`.
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


class _Wrapped(msgspec.Struct, kw_only=True):
    dialect: Dialect
    role: Role
    raw: msgspec.Raw


class _WithDialect(msgspec.Struct):
    dialect: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def in_utc(time: datetime) -> datetime:
    """Convert to UTC; a time without an offset is UTC already."""
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise UnreadableError("it has a time that is out of range") from None


def encode_turn(turn: Turn, *, hashes: Sequence[str] | None) -> dict[str, Any]:
    """Encode a turn with the `hashes` of its messages in the file; None: with inline messages."""
    record: dict[str, Any] = {"id": turn.id}
    if turn.place != turn.id:
        record["place"] = turn.place
    if turn.state != "complete":
        record["state"] = turn.state
    if hashes is None:
        record["inline"] = [_encode_inline(message) for message in turn.messages]
    else:
        record["messages"] = len(hashes)
        record["digest"] = digest_hashes(hashes)
    optional = {
        "model": turn.model,
        "provider": turn.provider,
        "usage": None if turn.usage is None else non_default_fields(turn.usage),
        "cost": turn.cost,
        "notices": [non_default_fields(notice) for notice in turn.notices] or None,
        "window": None if turn.window is None else non_default_fields(turn.window),
        "started_at": in_utc(turn.started_at),
        "ended_at": None if turn.ended_at is None else in_utc(turn.ended_at),
        "failure": turn.failure,
    }
    return record | {key: value for key, value in optional.items() if value is not None}


def decode_turn(record: TurnRecord, messages: tuple[Message, ...] | None = None) -> Turn:
    """Decode a turn with these messages, or else its inline ones."""
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
        window=compact_window(record.window),
        failure=record.failure,
    )


def restore_path(
    records: Sequence[TurnRecord],
    file_messages: FileMessages,
    *,
    start: int,
    used_ids: set[str],
    started_at: datetime,
) -> tuple[Turn, ...]:
    """Return the turns of the default path: records that still match, and new turns for the rest.

    The file's messages from `start` belong to them. `used_ids` are turn ids in use elsewhere; new
    turns start at `started_at`.
    """
    used_ids = used_ids | {record.id for record in records}
    hashes = file_messages.hashes[start:]
    matcher = _RecordMatcher(
        records, hashes, {position - start for position in file_messages.inside}
    )
    turns: list[Turn] = []
    for record, first, last in _match_records(matcher):
        ranges = file_messages.between(start + first, start + last)
        if record is None:
            for group in _split_into_turns(ranges):
                group_start, group_end = group[0].start - start, group[-1].end - start
                turn_id = _derive_id(
                    hashes[group_start:group_end], position=group_start, used_ids=used_ids
                )
                used_ids.add(turn_id)
                messages = tuple(each.message for each in group)
                turns.append(
                    Turn(
                        id=turn_id,
                        place=turn_id,
                        state="complete",
                        messages=messages,
                        started_at=started_at,
                    )
                )
        else:
            in_file = None if record.inline is not None else tuple(each.message for each in ranges)
            turns.append(decode_turn(record, in_file))
    return tuple(turns)


def _match_records(matcher: "_RecordMatcher") -> Iterator[tuple[TurnRecord | None, int, int]]:
    """Yield records with the range of messages they own, in order; None with unclaimed messages.

    If the next record does not match, the first later record that matches is used. The records
    between are skipped, except those with inline messages.
    """
    records, hashes = matcher.records, matcher.hashes
    position = unmatched = following = 0
    while True:
        index = matcher.first_match(position, following)
        if index is None and position < len(hashes):
            position += 1
            continue
        if unmatched < position:
            yield None, unmatched, position
        if index is None:
            break
        for record in records[following:index]:
            if record.inline is not None:
                yield record, position, position
        record = records[index]
        end = position + (0 if record.inline is not None else record.messages)
        yield record, position, end
        position = unmatched = end
        following = index + 1
    for record in records[following:]:
        if record.inline is not None:
            yield record, position, position


class _RecordMatcher:
    """Finds the record that matches at a position; none starts or ends `inside` a message.

    The number of hashed messages is limited. Above the limit no record matches.
    """

    def __init__(
        self, records: Sequence[TurnRecord], hashes: Sequence[str], inside: set[int]
    ) -> None:
        self.records = records
        self.hashes = hashes
        self._inside = inside
        self._by_claim: dict[tuple[int, str | None], list[int]] = {}
        for index, record in enumerate(records):
            if record.inline is None and record.messages > 0:
                self._by_claim.setdefault((record.messages, record.digest), []).append(index)
        self._lengths = sorted({length for length, _ in self._by_claim})
        self._budget = MAX_HASHES_PER_MESSAGE * (len(hashes) + len(records))

    def first_match(self, position: int, following: int) -> int | None:
        if following < len(self.records):
            record = self.records[following]
            if record.inline is not None:
                return following
            range_hashes = self._hashes_at(position, record.messages)
            if range_hashes is not None and digest_hashes(range_hashes) == record.digest:
                return following
        if self._budget <= 0:
            return None
        matches = (self._find_later(position, length, following) for length in self._lengths)
        return min((index for index in matches if index is not None), default=None)

    def _find_later(self, position: int, length: int, following: int) -> int | None:
        range_hashes = self._hashes_at(position, length)
        if range_hashes is None:
            return None
        indexes = self._by_claim.get((length, digest_hashes(range_hashes)), [])
        at = bisect_left(indexes, following)
        return indexes[at] if at < len(indexes) else None

    def _hashes_at(self, position: int, length: int) -> Sequence[str] | None:
        end = position + length
        self._budget -= 1
        if length < 0 or end > len(self.hashes) or {position, end} & self._inside:
            return None
        if length > self._budget:
            return None
        self._budget -= length
        return self.hashes[position:end]


def _split_into_turns(ranges: Sequence[MessageRange]) -> Iterator[Sequence[MessageRange]]:
    first = 0
    for index in range(1, len(ranges)):
        if ranges[index].plain and not ranges[index - 1].plain:
            yield ranges[first:index]
            first = index
    yield ranges[first:]


def _derive_id(hashes: Sequence[str], *, position: int, used_ids: set[str]) -> str:
    """Derive an id from content and position, so that decoding a file twice gives the same ids."""
    turn_id = "turn_" + digest_hashes([str(position), "0", *hashes])
    salt = 0
    while turn_id in used_ids:
        salt += 1
        turn_id = "turn_" + digest_hashes([turn_id, str(salt)])
    return turn_id


def _encode_inline(message: Message) -> Any:
    raw = msgspec.Raw(compact(message.raw))
    if message.dialect == "openai" and "dialect" not in message.json():
        return raw
    return _Wrapped(dialect=message.dialect, role=message.role, raw=raw)


def _decode_inline(raw: msgspec.Raw) -> Message:
    if msgspec.json.decode(raw, type=_WithDialect).dialect is msgspec.UNSET:
        return decode_message(raw)
    wrapped = msgspec.json.decode(raw, type=_Wrapped)
    return Message(role=wrapped.role, raw=compact(wrapped.raw), dialect=wrapped.dialect)


def non_default_fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a value that differ from their defaults."""
    pairs = ((field, getattr(value, field.name)) for field in _fields_of(type(value)))
    return {field.name: value for field, value in pairs if value != field.default}


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


VERSION = 1
_RECORDS: dict[str, Any] = {"system": SystemRecord, "context": ContextRecord}

RawObject = dict[str, msgspec.Raw]


class Remainder(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a file that a conversation does not have; a save writes them back.

    `metadata` has the original JSON spelling; `base_tokens` are tokens that no turn counts.
    """

    top: RawObject = msgspec.field(default_factory=dict)
    metadata: RawObject = msgspec.field(default_factory=dict)
    cllm: RawObject = msgspec.field(default_factory=dict)
    base_tokens: int = 0


def decode_object(raw: msgspec.Raw | None, name: str) -> RawObject:
    if raw is None or bytes(raw) == b"null":
        return {}
    try:
        return msgspec.json.decode(raw, type=RawObject)
    except msgspec.ValidationError:
        raise UnreadableError(f"{name} is not an object") from None


def without_keys(raw: RawObject, keys: Collection[str]) -> RawObject:
    return {key: value for key, value in raw.items() if key not in keys}


def decode_metadata(
    raw: RawObject, displaced: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the user's metadata and cllm's records, which are separate keys."""
    user_values: dict[str, Any] = {}
    records: dict[str, Any] = {}
    for key, value in raw.items():
        if key == "cllm" or (key == "total_tokens" and total_tokens(raw) is not None):
            continue
        record = _decode_record(key, value)
        if record is None:
            user_values[key] = msgspec.json.decode(value)
        else:
            records[key] = record
    return user_values | displaced, records


def _decode_record(key: str, raw: bytes | msgspec.Raw) -> Any:
    """Decode the record under a metadata key; None if it is a user value."""
    if key not in _RECORDS:
        return None
    try:
        record = msgspec.json.decode(raw, type=_RECORDS[key])
    except msgspec.ValidationError:
        return None
    if isinstance(record, ContextRecord):
        return msgspec.structs.replace(record, executed_at=in_utc(record.executed_at))
    return record


def total_tokens(raw: RawObject) -> int | None:
    total = msgspec.json.decode(raw["total_tokens"]) if "total_tokens" in raw else None
    return total if type(total) is int and total >= 0 else None


def encode_metadata(
    conversation: StoredConversation, rest: Remainder
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the section without `cllm`, and user values whose key cllm uses."""
    section: dict[str, Any] = {"total_tokens": rest.base_tokens + conversation.total_tokens}
    records = {"system": conversation.system_record, "context": conversation.context_record}
    for key, record in records.items():
        if record is not None:
            original = rest.metadata.get(key)
            unchanged = original is not None and _decode_record(key, original) == record
            section[key] = original if unchanged else record
    displaced: dict[str, Any] = {}
    for key, value in conversation.metadata.items():
        spelling = _keep_spelling(value, rest.metadata.get(key))
        if key == "cllm" or key in section or _decode_record(key, spelling) is not None:
            displaced[key] = value
        else:
            section[key] = spelling
    return section, displaced


def _keep_spelling(value: Any, original: msgspec.Raw | None) -> msgspec.Raw:
    encoded = msgspec.json.encode(value)
    if original is not None and msgspec.json.encode(msgspec.json.decode(original)) == encoded:
        return original
    return msgspec.Raw(encoded)


def encode_header(conversation: StoredConversation) -> dict[str, Any]:
    """Return the fields of `metadata.cllm` before the turns."""
    archived_at = conversation.archived_at
    optional = {
        "name": conversation.name,
        "title": conversation.title,
        "archived_at": None if archived_at is None else in_utc(archived_at),
        "parent": conversation.parent,
        "family": conversation.family,
        "source": conversation.source,
        "is_side": conversation.is_side or None,
        "path_start": None if conversation.path_start is None else conversation.path_start.hex(),
        "pins": list(conversation.pins),
        "summary": None
        if conversation.summary is None
        else non_default_fields(conversation.summary),
    }
    return {"version": VERSION} | {
        key: value for key, value in optional.items() if value not in (None, [], {})
    }
