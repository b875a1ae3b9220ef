"""The `metadata` of a conversation file: ours, the user's, and what neither of them knows.

What is under a name of ours and is not ours stays the user's, and is kept apart only if it
would be taken for ours. No I/O.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from cllm.core.conversation import ContextRecord, Conversation, SystemRecord
from cllm.wire.conversation_messages import UnreadableError
from cllm.wire.turn_records import in_utc, lean

VERSION = 1
_RECORDS: dict[str, Any] = {"system": SystemRecord, "context": ContextRecord}

RawObject = dict[str, msgspec.Raw]


class Remainder(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds and a conversation does not; a save puts it back.

    `metadata` has the spelling of the metadata as it was read, `base_tokens` the tokens that
    the file counts and no turn of it explains.
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


def without(raw: RawObject, keys: Collection[str]) -> RawObject:
    return {key: value for key, value in raw.items() if key not in keys}


def decode_metadata(
    raw: RawObject, displaced: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The user's own metadata, and the records that stand beside it."""
    users: dict[str, Any] = {}
    records: dict[str, Any] = {}
    for key, value in raw.items():
        if key == "cllm" or (key == "total_tokens" and total_tokens(raw) is not None):
            continue
        record = _record(key, value)
        if record is None:
            users[key] = msgspec.json.decode(value)
        else:
            records[key] = record
    return users | displaced, records


def _record(key: str, raw: bytes | msgspec.Raw) -> Any:
    """The record under a key of the metadata; None if what is there is somebody else's."""
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
    conversation: Conversation, rest: Remainder
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The section without `cllm`, and what of the user's has a name that is ours."""
    section: dict[str, Any] = {"total_tokens": rest.base_tokens + conversation.total_tokens}
    records = {"system": conversation.system_record, "context": conversation.context_record}
    for key, record in records.items():
        if record is not None:
            kept = rest.metadata.get(key)
            unchanged = kept is not None and _record(key, kept) == record
            section[key] = kept if unchanged else record
    displaced: dict[str, Any] = {}
    for key, value in conversation.metadata.items():
        spelling = _spelling(value, rest.metadata.get(key))
        if key == "cllm" or key in section or _record(key, spelling) is not None:
            displaced[key] = value
        else:
            section[key] = spelling
    return section, displaced


def _spelling(value: Any, kept: msgspec.Raw | None) -> msgspec.Raw:
    """The value's JSON, spelled as it was read if it is still the same value."""
    encoded = msgspec.json.encode(value)
    if kept is not None and msgspec.json.encode(msgspec.json.decode(kept)) == encoded:
        return kept
    return msgspec.Raw(encoded)


def encode_about(conversation: Conversation) -> dict[str, Any]:
    """What is under `metadata.cllm` before the turns."""
    archived_at = conversation.archived_at
    optional = {
        "name": conversation.name,
        "title": conversation.title,
        "archived_at": None if archived_at is None else in_utc(archived_at),
        "parent": conversation.parent,
        "pins": list(conversation.pins),
        "summary": None if conversation.summary is None else lean(conversation.summary),
    }
    return {"version": VERSION} | {
        key: value for key, value in optional.items() if value not in (None, [], {})
    }
