"""What the shape of older deployments has no place for: kept under one key of a metadata column.

Metadata can be written by anybody. What stands under the key is taken for ours only if it is whole;
an owner and an id only if the row's own id was made from them, which nobody else chooses.
"""

import uuid
from typing import Any, Literal

import msgspec

from cllm.core.conversation import SystemRecord, TurnFailure
from cllm.core.identity import is_valid_id
from cllm.core.message import Dialect, Role
from cllm.stores.sql.rows import StoredMessage, UnreadableRowError

KEY = "cllm"
NAMESPACE = uuid.UUID("6f1d3f4e-7c52-4f0b-9d1f-7a1f6a2f3c11")


class KeptConversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a conversation; `theirs` is what stood under the key itself."""

    owner: str | None = None
    id: str | None = None
    name: str | None = None
    model: str | None = None
    system: str | None = None
    system_record: str | None = None
    theirs: Any = msgspec.UNSET


class KeptTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a turn, with its first message: how many it has, and how it ended."""

    messages: int
    state: Literal["complete", "incomplete", "failed"]
    failure: str | None = None


class KeptMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a message; without `raw` the other columns say all of it."""

    raw: str | None = None
    dialect: Dialect = "openai"
    role: Role | None = None
    turn: KeptTurn | None = None
    theirs: Any = msgspec.UNSET


def id_from(owner: str, conversation: str) -> uuid.UUID:
    """The id in the older shape of a conversation whose own does not do there."""
    return uuid.uuid5(NAMESPACE, f"{owner}/{conversation}")


def with_kept(metadata: dict[str, Any], kept: KeptConversation | KeptMessage) -> dict[str, Any]:
    """The metadata with what is kept beside it, if there is any."""
    if KEY in metadata:
        kept = msgspec.structs.replace(kept, theirs=metadata[KEY])
    said = {
        name: value
        for name, value in msgspec.to_builtins(kept).items()
        if value is not None or name == "theirs"
    }
    return metadata if kept == type(kept)() else metadata | {KEY: said}


def conversation_kept(metadata: Any, row_id: uuid.UUID) -> tuple[dict[str, Any], KeptConversation]:
    """The metadata without what is kept, and that."""
    whole = _object(metadata)
    kept = _decoded(whole, KeptConversation)
    if kept is None or not _is_ours(kept, row_id):
        return whole, KeptConversation()
    return _without(whole, kept.theirs), kept


def message_kept(metadata: Any) -> tuple[dict[str, Any], KeptMessage]:
    """The metadata without what is kept, and that."""
    whole = _object(metadata)
    kept = _decoded(whole, KeptMessage)
    if kept is None or not _is_whole(kept):
        return whole, KeptMessage()
    return _without(whole, kept.theirs), kept


def _object(metadata: Any) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise UnreadableRowError("metadata that is no JSON object")
    return metadata


def _decoded(metadata: dict[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(metadata[KEY], kind) if KEY in metadata else None
    except msgspec.ValidationError:
        return None


def _without(metadata: dict[str, Any], theirs: Any) -> dict[str, Any]:
    rest = {name: value for name, value in metadata.items() if name != KEY}
    return rest if theirs is msgspec.UNSET else rest | {KEY: theirs}


def _is_ours(kept: KeptConversation, row_id: uuid.UUID) -> bool:
    if (kept.owner is None) != (kept.id is None):
        return False
    if kept.owner is not None and kept.id is not None and id_from(kept.owner, kept.id) != row_id:
        return False
    if not all(is_valid_id(ref) for ref in (kept.id, kept.name) if ref is not None):
        return False
    return _decodes(kept.system, StoredMessage) and _decodes(kept.system_record, SystemRecord)


def _is_whole(kept: KeptMessage) -> bool:
    failure = None if kept.turn is None else kept.turn.failure
    return _decodes(kept.raw, dict[str, Any]) and _decodes(failure, TurnFailure)


def _decodes(text: str | None, kind: Any) -> bool:
    try:
        return text is None or msgspec.json.decode(text, type=kind) is not None
    except msgspec.MsgspecError:
        return False
