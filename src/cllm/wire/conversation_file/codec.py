"""Decodes and encodes conversation files.

OpenAI messages are copied, never re-encoded. Unknown keys are returned for the next save.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import chain, takewhile
from typing import Any, TypeVar

import msgspec

from cllm.core.conversation import (
    Branch,
    StandingSummary,
    StoredConversation,
    Summary,
    Turn,
)
from cllm.core.errors import BrokenConversationError, UsageError
from cllm.core.message import Message
from cllm.wire.conversation_file.messages import (
    ROLES,
    EncodedMessages,
    FileMessages,
    MessageHead,
    OriginalLocation,
    OriginalMessage,
    UnreadableError,
    digest_hashes,
    hash_message,
    locate_originals,
    write_messages,
)
from cllm.wire.conversation_file.turn_records import (
    VERSION,
    RawObject,
    Remainder,
    TurnRecord,
    decode_metadata,
    decode_object,
    decode_turn,
    encode_header,
    encode_metadata,
    encode_turn,
    in_utc,
    restore_path,
    total_tokens,
    without_keys,
)

_OWN_KEYS = frozenset({"id", "model", "messages", "created_at", "updated_at", "metadata"})
_BYTE = re.compile(r" \(byte (\d+)\)")


class ConversationFile(msgspec.Struct, frozen=True, kw_only=True):
    conversation: StoredConversation
    remainder: Remainder


class _Cllm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    name: str | None = None
    title: str | None = None
    archived_at: datetime | None = None
    parent: Branch | None = None
    family: str | None = None
    source: str | None = None
    is_side: bool = False
    path_start: str | None = None
    pins: tuple[int, ...] = ()
    summary: StandingSummary | None = None
    turns: tuple[TurnRecord, ...] = ()
    variants: tuple[TurnRecord, ...] = ()
    extras: tuple[OriginalMessage, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class _ListedTurn(msgspec.Struct):
    messages: int = 0
    digest: str | None = None
    inline: tuple[msgspec.Raw, ...] | None = None


class _ListedCllm(msgspec.Struct):
    version: int = VERSION
    name: str | None = None
    title: str | None = None
    archived_at: datetime | None = None
    parent: Branch | None = None
    source: str | None = None
    is_side: bool = False
    turns: tuple[_ListedTurn, ...] = ()
    extras: tuple[OriginalLocation, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


C = TypeVar("C", _Cllm, _ListedCllm)


def decode_conversation(
    data: bytes, *, conversation_id: str, path: str, modified_at: datetime
) -> ConversationFile:
    """Decode a file; raises BrokenConversationError if it does not contain this conversation.

    `modified_at` replaces times that the file does not have.
    """
    try:
        return _decode(data, conversation_id, modified_at)
    except _UNREADABLE as error:
        raise BrokenConversationError(path, reason=_reason(data, error)) from None


def decode_summary(
    data: bytes, *, conversation_id: str, path: str, modified_at: datetime
) -> Summary:
    """Decode the summary for a list, without the contents of messages."""
    try:
        return _decode_summary(data, conversation_id, modified_at)
    except _UNREADABLE as error:
        raise BrokenConversationError(path, reason=_reason(data, error)) from None


def find_edited_turns(data: bytes, conversation: StoredConversation) -> tuple[list[str], int]:
    """Return the IDs of turn records without their messages, and the messages without a record.

    `conversation` is the content of the file. A file without records has no such messages.
    """
    raw_metadata = decode_object(_decode_top(data, conversation.id).get("metadata"), "metadata")
    recorded = [record.id for record in _decode_cllm(raw_metadata, _Cllm).turns]
    decoded = {turn.id: len(turn.messages) for turn in conversation.turns}
    added = sum(count for turn_id, count in decoded.items() if turn_id not in recorded)
    return [each for each in recorded if each not in decoded], added if recorded else 0


def encode_conversation(
    conversation: StoredConversation, remainder: Remainder | None = None
) -> bytes:
    """Encode a file; `remainder` comes from decoding the previous version of the file.

    Raises UsageError for content that could not be decoded again.
    """
    try:
        encoded = _encode(conversation, Remainder() if remainder is None else remainder)
        msgspec.json.decode(encoded)
    except (UnreadableError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"The conversation cannot be saved as JSON ({error}).") from None
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _encode(conversation: StoredConversation, rest: Remainder) -> bytes:
    head = [] if conversation.system is None else [conversation.system]
    history = (turn.messages for turn in conversation.turns if turn.is_history)
    encoded = write_messages([*head, *chain.from_iterable(history)])
    metadata, displaced = encode_metadata(conversation, rest)
    document = {
        "id": conversation.id,
        "model": conversation.model,
        "messages": [msgspec.Raw(form) for form in encoded.forms],
        "created_at": encode_time(conversation.created_at),
        "updated_at": encode_time(conversation.updated_at),
        "metadata": {
            **metadata,
            "cllm": _encode_cllm(conversation, encoded, displaced) | rest.cllm,
        },
        **rest.top,
    }
    return msgspec.json.encode(document)


_UNREADABLE = (UnreadableError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _reason(data: bytes, error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return f"it is not UTF-8, {_line_and_column(data, error.start)}"
        case msgspec.ValidationError():
            from cllm.wire.messages import field_error  # noqa: PLC0415 - only for an error

            return str(field_error(error))
        case UnreadableError():
            return str(error)
        case _:
            text = str(error).replace("Input data was truncated", "the JSON is incomplete")
            at = _BYTE.search(text)
            return (
                text
                if at is None
                else f"{text[: at.start()]}, {_line_and_column(data, int(at[1]))}"
            )


def _line_and_column(data: bytes, offset: int) -> str:
    line = data.count(b"\n", 0, offset) + 1
    column = offset - data.rfind(b"\n", 0, offset)
    return f"line {line}, column {column}"


def _decode(data: bytes, conversation_id: str, modified_at: datetime) -> ConversationFile:
    top = _decode_top(data, conversation_id)
    # Validate every text in the file once.
    msgspec.json.decode(data)
    raw_metadata = decode_object(top.get("metadata"), "metadata")
    raw_cllm = decode_object(raw_metadata.get("cllm"), "metadata.cllm")
    cllm = _decode_cllm(raw_metadata, _Cllm)
    created_at, updated_at = _decode_times(top, modified_at)
    system, file_messages = _decode_messages(top, cllm)
    variants = tuple(decode_turn(record) for record in cllm.variants)
    used_ids = {turn.id for turn in variants}
    start = 0 if system is None else 1
    turns = restore_path(
        cllm.turns, file_messages, start=start, used_ids=used_ids, started_at=created_at
    )
    metadata, records = decode_metadata(raw_metadata, cllm.metadata)
    count = sum(len(turn.messages) for turn in turns)
    conversation = StoredConversation(
        id=conversation_id,
        created_at=created_at,
        updated_at=updated_at,
        model=_decode_model(top),
        name=cllm.name,
        title=cllm.title,
        system=system,
        system_record=records.get("system"),
        context_record=records.get("context"),
        turns=turns,
        variants=variants,
        pins=tuple(sorted({pin for pin in cllm.pins if 1 <= pin <= count})),
        summary=None if cllm.summary is None else cllm.summary.up_to(_count_unchanged(cllm, turns)),
        parent=cllm.parent,
        family=cllm.family,
        source=cllm.source,
        is_side=cllm.is_side,
        path_start=_decode_path_start(cllm.path_start),
        archived_at=None if cllm.archived_at is None else in_utc(cllm.archived_at),
        metadata=metadata,
    )
    total = total_tokens(raw_metadata) or 0
    remainder = Remainder(
        top=without_keys(top, _OWN_KEYS),
        metadata=without_keys(raw_metadata, {"cllm", "total_tokens"}),
        cllm=without_keys(raw_cllm, _Cllm.__struct_fields__),
        base_tokens=max(0, total - conversation.total_tokens),
    )
    return ConversationFile(conversation=conversation, remainder=remainder)


def _decode_path_start(text: str | None) -> bytes | None:
    try:
        return None if text is None else bytes.fromhex(text)
    except ValueError:
        raise UnreadableError("metadata.cllm.path_start is not hexadecimal") from None


def _count_unchanged(cllm: _Cllm, turns: Sequence[Turn]) -> int:
    """Count the messages at the start of the path that are unchanged since the last save."""
    pairs = zip(cllm.turns, turns, strict=False)
    same = takewhile(lambda pair: pair[0].id == pair[1].id, pairs)
    return sum(len(turn.messages) for _, turn in same)


def _decode_summary(data: bytes, conversation_id: str, modified_at: datetime) -> Summary:
    top = _decode_top(data, conversation_id)
    raw_metadata = decode_object(top.get("metadata"), "metadata")
    cllm = _decode_cllm(raw_metadata, _ListedCllm)
    created_at, updated_at = _decode_times(top, modified_at)
    messages = msgspec.json.decode(top["messages"], type=list[MessageHead])
    unknown = {message.role for message in messages} - ROLES.keys()
    if unknown:
        raise UnreadableError(f"a message has the unknown role {min(unknown)[:40]!r}")
    # Computed on demand: most lists need no hash.
    raws = cache(lambda: _raw_messages(top))
    hash_at = cache(lambda index: hash_message(raws()[index]))
    count = len(messages)
    starts = bool(messages) and ROLES[messages[0].role] == "system"
    prompts = 1 if starts and not _is_in_first_turn(hash_at, count, cllm.turns) else 0
    inline = sum(len(turn.inline or ()) for turn in cllm.turns)
    merged = _count_merged(hash_at, count, cllm.extras)
    return Summary(
        id=conversation_id,
        created_at=created_at,
        updated_at=updated_at,
        message_count=count - prompts - merged + inline,
        model=_decode_model(top),
        name=cllm.name,
        title=cllm.title,
        source=cllm.source,
        is_side=cllm.is_side,
        parent=cllm.parent,
        archived_at=None if cllm.archived_at is None else in_utc(cllm.archived_at),
        metadata=decode_metadata(raw_metadata, cllm.metadata)[0],
    )


def _count_merged(
    hash_at: Callable[[int], str], count: int, extras: Sequence[OriginalLocation]
) -> int:
    if all(extra.span == 1 for extra in extras):
        return 0
    located = locate_originals(extras, hash_at, count=count)
    return sum(extra.span - 1 for extra in located.values())


def _decode_top(data: bytes, conversation_id: str) -> RawObject:
    data.decode("utf-8")
    top = msgspec.json.decode(data, type=RawObject)
    if "messages" not in top:
        raise UnreadableError("it has no messages")
    if "id" not in top or msgspec.json.decode(top["id"]) != conversation_id:
        raise UnreadableError("its id differs from the file name")
    return top


def _decode_cllm(raw: RawObject, kind: type[C]) -> C:
    """Decode `metadata.cllm`; an invalid record is an error, so that a save does not lose it."""
    if "cllm" not in raw:
        return kind()
    try:
        cllm = msgspec.json.decode(raw["cllm"], type=kind)
    except msgspec.ValidationError as error:
        from cllm.wire.messages import field_error  # noqa: PLC0415 - only for an error

        raise UnreadableError(str(field_error(error, "metadata.cllm"))) from None
    if cllm.version > VERSION:
        raise UnreadableError("it was written by a newer version of cllm")
    return cllm


def _decode_model(top: RawObject) -> str | None:
    model = msgspec.json.decode(top["model"]) if "model" in top else None
    if model is not None and not isinstance(model, str):
        raise UnreadableError("its model is not a string")
    return model


def _decode_times(top: RawObject, modified_at: datetime) -> tuple[datetime, datetime]:
    created_at = _decode_time(top, "created_at")
    updated_at = _decode_time(top, "updated_at")
    last = updated_at or created_at or in_utc(modified_at)
    return created_at or last, last


def _decode_time(top: RawObject, key: str) -> datetime | None:
    text = msgspec.json.decode(top[key]) if key in top else None
    if text is None:
        return None
    try:
        return in_utc(datetime.fromisoformat(text))
    except (TypeError, ValueError, OverflowError):
        raise UnreadableError(f"its {key} is not a time") from None


def encode_time(time: datetime) -> str:
    return in_utc(time).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _decode_messages(top: RawObject, cllm: _Cllm) -> tuple[Message | None, FileMessages]:
    messages = FileMessages(_raw_messages(top), cllm.extras)
    first = messages.between(0, min(1, len(messages.hashes)))
    prompts = [each.message for each in first if each.message.role == "system"]
    if not prompts or _is_in_first_turn(
        messages.hashes.__getitem__, len(messages.hashes), cllm.turns
    ):
        return None, messages
    return prompts[0], messages


def _raw_messages(top: RawObject) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(top["messages"], type=list[msgspec.Raw])
    except msgspec.ValidationError:
        raise UnreadableError("its messages are not a list") from None


def _is_in_first_turn(
    hash_at: Callable[[int], str], count: int, records: Sequence[TurnRecord | _ListedTurn]
) -> bool:
    """Whether the first message belongs to the first turn and is not the system prompt."""
    claims = [record for record in records if record.inline is None and record.messages > 0]
    if not claims or sum(record.messages for record in claims) != count:
        return False
    return (
        digest_hashes([hash_at(index) for index in range(claims[0].messages)]) == claims[0].digest
    )


def _encode_cllm(
    conversation: StoredConversation, encoded: EncodedMessages, displaced: dict[str, Any]
) -> dict[str, Any]:
    lists = {
        "turns": list(_encode_path(conversation, encoded)),
        "variants": [encode_turn(turn, hashes=None) for turn in conversation.variants],
        "extras": list(encoded.extras),
        "metadata": displaced,
    }
    return encode_header(conversation) | {key: value for key, value in lists.items() if value}


def _encode_path(
    conversation: StoredConversation, encoded: EncodedMessages
) -> Iterator[dict[str, Any]]:
    start = 0 if conversation.system is None else 1
    for turn in conversation.turns:
        if not turn.is_history:
            yield encode_turn(turn, hashes=None)
            continue
        end = start + len(turn.messages)
        yield encode_turn(turn, hashes=encoded.hashes[encoded.bounds[start] : encoded.bounds[end]])
        start = end
