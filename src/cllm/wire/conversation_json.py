"""The bytes of a conversation file and the conversation they hold, both ways.

Messages are copied, never re-encoded: what another tool wrote into one comes back as it was.
Keys that nobody here knows are handed back beside the conversation, for the next save. No I/O,
no clock.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from cllm.core.conversation import (
    Branch,
    Conversation,
    Summary,
)
from cllm.core.errors import BrokenConversationError, UsageError
from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.wire.conversation_metadata import (
    RawObject,
    Remainder,
    decode_metadata,
    decode_object,
    encode_metadata,
    total_tokens,
    without,
)
from cllm.wire.reasoning import without_reasoning
from cllm.wire.turn_records import (
    ROLES,
    TurnRecord,
    UnreadableError,
    compact,
    decode_message,
    decode_turn,
    digest_of,
    encode_turn,
    in_utc,
    mark_of,
    restore_path,
)

VERSION = 1
_OWN_KEYS = frozenset({"id", "model", "messages", "created_at", "updated_at", "metadata"})
_BYTE = re.compile(r" \(byte (\d+)\)")

T = TypeVar("T")


class ConversationFile(msgspec.Struct, frozen=True, kw_only=True):
    conversation: Conversation
    remainder: Remainder


class _Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it arrived, where the file has only its OpenAI form."""

    at: int
    digest: str
    dialect: Dialect
    raw: msgspec.Raw
    role: Role | None = None


class _Cllm(msgspec.Struct, frozen=True, kw_only=True):
    """What is under `metadata.cllm`."""

    version: int = VERSION
    name: str | None = None
    title: str | None = None
    archived_at: datetime | None = None
    parent: Branch | None = None
    turns: tuple[TurnRecord, ...] = ()
    variants: tuple[TurnRecord, ...] = ()
    extras: tuple[_Extra, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class _ListedTurn(msgspec.Struct):
    messages: int = 0
    inline: tuple[msgspec.Raw, ...] = ()


class _ListedCllm(msgspec.Struct):
    """What a list needs of `metadata.cllm`."""

    version: int = VERSION
    name: str | None = None
    title: str | None = None
    archived_at: datetime | None = None
    turns: tuple[_ListedTurn, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class _ListedMessage(msgspec.Struct):
    role: str


def openai_form(message: Message) -> Message:
    """The message in the words a conversation file is written in.

    Reasoning has no field among OpenAI's. Fields that other tools put into a message stay.
    """
    if message.dialect != "openai":
        return plain_message(message.role, message.text)
    return Message(role=message.role, raw=compact(without_reasoning(message.raw)))


def decode_conversation(
    data: bytes, *, conversation_id: str, path: str, modified_at: datetime
) -> ConversationFile:
    """Read a file that should hold this conversation; BrokenConversationError if it does not.

    `modified_at` stands in for times that the file does not have.
    """
    try:
        return _decode(data, conversation_id, modified_at)
    except _UNREADABLE as error:
        raise BrokenConversationError(path, reason=_reason(data, error)) from None


def decode_summary(
    data: bytes, *, conversation_id: str, path: str, modified_at: datetime
) -> Summary:
    """What a list says about the conversation, without reading what was said."""
    try:
        return _decode_summary(data, conversation_id, modified_at)
    except _UNREADABLE as error:
        raise BrokenConversationError(path, reason=_reason(data, error)) from None


def encode_conversation(conversation: Conversation, remainder: Remainder | None = None) -> bytes:
    """The file of a conversation; `remainder` is what came with it when it was read.

    UsageError if it holds something that could not be read again.
    """
    try:
        encoded = _encode(conversation, Remainder() if remainder is None else remainder)
        # What could not be read again would make the whole file a broken one.
        msgspec.json.decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"The conversation cannot be kept as JSON ({error}).") from None
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _encode(conversation: Conversation, rest: Remainder) -> bytes:
    originals = _stored_messages(conversation)
    forms = [openai_form(message) for message in originals]
    marks = [mark_of(form) for form in forms]
    metadata, displaced = encode_metadata(conversation, rest)
    extras = list(_extras(originals, forms, marks))
    document = {
        "id": conversation.id,
        "model": conversation.model,
        "messages": [msgspec.Raw(form.raw) for form in forms],
        "created_at": _encode_time(conversation.created_at),
        "updated_at": _encode_time(conversation.updated_at),
        "metadata": {
            **metadata,
            "cllm": _encode_cllm(conversation, marks, extras, displaced) | rest.cllm,
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
            return f"it is not UTF-8, {_place(data, error.start)}"
        case msgspec.ValidationError() | UnreadableError():
            return str(error)
        case _:
            text = str(error)
            at = _BYTE.search(text)
            return text if at is None else f"{text[: at.start()]}, {_place(data, int(at[1]))}"


def _place(data: bytes, offset: int) -> str:
    line = data.count(b"\n", 0, offset) + 1
    column = offset - data.rfind(b"\n", 0, offset)
    return f"line {line}, column {column}"


def _decode(data: bytes, conversation_id: str, modified_at: datetime) -> ConversationFile:
    top = _decode_top(data, conversation_id)
    # A first reading that keeps nothing: afterwards every text in the file is known to be good.
    msgspec.json.decode(data)
    raw_metadata = decode_object(top.get("metadata"), "metadata")
    raw_cllm = decode_object(raw_metadata.get("cllm"), "metadata.cllm")
    cllm = _typed(raw_metadata, _Cllm)
    _check_version(cllm.version)
    created_at, updated_at = _decode_times(top, modified_at)
    system, messages, marks = _decode_messages(top, cllm)
    variants = tuple(decode_turn(record) for record in cllm.variants)
    taken = {turn.id for turn in variants}
    turns = restore_path(cllm.turns, messages, marks=marks, taken=taken, moment=created_at)
    metadata, records = decode_metadata(raw_metadata, cllm.metadata)
    conversation = Conversation(
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
        parent=cllm.parent,
        archived_at=None if cllm.archived_at is None else in_utc(cllm.archived_at),
        metadata=metadata,
    )
    total = total_tokens(raw_metadata) or 0
    remainder = Remainder(
        top=without(top, _OWN_KEYS),
        metadata=without(raw_metadata, {"cllm", "total_tokens"}),
        cllm=without(raw_cllm, _Cllm.__struct_fields__),
        base_tokens=max(0, total - conversation.total_tokens),
    )
    return ConversationFile(conversation=conversation, remainder=remainder)


def _decode_summary(data: bytes, conversation_id: str, modified_at: datetime) -> Summary:
    top = _decode_top(data, conversation_id)
    raw_metadata = decode_object(top.get("metadata"), "metadata")
    cllm = _typed(raw_metadata, _ListedCllm)
    _check_version(cllm.version)
    created_at, updated_at = _decode_times(top, modified_at)
    messages = msgspec.json.decode(top["messages"], type=list[_ListedMessage])
    strange = {message.role for message in messages} - ROLES.keys()
    if strange:
        raise UnreadableError(f"a message has the role {min(strange)[:40]!r}")
    claimed = sum(turn.messages for turn in cllm.turns)
    starts = bool(messages) and ROLES[messages[0].role] == "system"
    prompts = 1 if starts and claimed != len(messages) else 0
    inline = sum(len(turn.inline) for turn in cllm.turns)
    return Summary(
        id=conversation_id,
        created_at=created_at,
        updated_at=updated_at,
        message_count=len(messages) - prompts + inline,
        model=_decode_model(top),
        name=cllm.name,
        title=cllm.title,
        archived_at=None if cllm.archived_at is None else in_utc(cllm.archived_at),
        metadata=decode_metadata(raw_metadata, cllm.metadata)[0],
    )


def _decode_top(data: bytes, conversation_id: str) -> RawObject:
    data.decode("utf-8")
    top = msgspec.json.decode(data, type=RawObject)
    if "messages" not in top:
        raise UnreadableError("it has no messages")
    if "id" not in top or msgspec.json.decode(top["id"]) != conversation_id:
        raise UnreadableError("its id is not the name of the file")
    return top


def _typed(raw: RawObject, kind: type[T]) -> T:
    """`metadata.cllm` as one of our types. A record that makes no sense is not thrown away."""
    if "cllm" not in raw:
        return kind()
    try:
        return msgspec.json.decode(raw["cllm"], type=kind)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"metadata.cllm: {error}") from None


def _check_version(version: int) -> None:
    if version > VERSION:
        raise UnreadableError("it was written by a newer cllm")


def _decode_model(top: RawObject) -> str | None:
    model = msgspec.json.decode(top["model"]) if "model" in top else None
    if model is not None and not isinstance(model, str):
        raise UnreadableError("its model is not a text")
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


def _encode_time(moment: datetime) -> str:
    return in_utc(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _decode_messages(
    top: RawObject, cllm: _Cllm
) -> tuple[Message | None, list[Message], list[str]]:
    """The system prompt, the other messages, and the marks of these as the file has them."""
    try:
        raws = msgspec.json.decode(top["messages"], type=list[msgspec.Raw])
    except msgspec.ValidationError:
        raise UnreadableError("its messages are not a list") from None
    messages = [decode_message(raw) for raw in raws]
    marks = [mark_of(message) for message in messages]
    originals = _restored(messages, marks, cllm.extras)
    if not messages or messages[0].role != "system" or _is_said(marks, cllm.turns):
        return None, originals, marks
    return originals[0], originals[1:], marks[1:]


def _is_said(marks: Sequence[str], records: Sequence[TurnRecord]) -> bool:
    """Whether a first system message is part of the first turn and not the stored prompt."""
    claims = [record for record in records if record.inline is None and record.messages > 0]
    if not claims or sum(record.messages for record in claims) != len(marks):
        return False
    return digest_of(marks[: claims[0].messages]) == claims[0].digest


def _restored(
    forms: Sequence[Message], marks: Sequence[str], extras: Sequence[_Extra]
) -> list[Message]:
    """The messages as they arrived, where the file still has the OpenAI form made from them.

    A message that other tools moved is found again if nothing else in the file looks like it.
    """
    originals = list(forms)
    for extra in extras:
        at = extra.at
        if not 0 <= at < len(marks) or marks[at] != extra.digest:
            if marks.count(extra.digest) != 1:
                continue
            at = marks.index(extra.digest)
        originals[at] = Message(
            role=extra.role or forms[at].role, raw=compact(extra.raw), dialect=extra.dialect
        )
    return originals


def _extras(
    originals: Sequence[Message], forms: Sequence[Message], marks: Sequence[str]
) -> Iterator[_Extra]:
    for at, (original, form) in enumerate(zip(originals, forms, strict=True)):
        read_back = ROLES[msgspec.json.decode(form.raw, type=_ListedMessage).role]
        kept_whole = original.dialect == "openai" and compact(original.raw) == form.raw
        if not kept_whole or read_back != original.role:
            yield _Extra(
                at=at,
                digest=marks[at],
                dialect=original.dialect,
                raw=msgspec.Raw(compact(original.raw)),
                role=None if read_back == original.role else original.role,
            )


def _encode_cllm(
    conversation: Conversation, marks: list[str], extras: list[_Extra], displaced: dict[str, Any]
) -> dict[str, Any]:
    archived_at = conversation.archived_at
    optional = {
        "name": conversation.name,
        "title": conversation.title,
        "archived_at": None if archived_at is None else in_utc(archived_at),
        "parent": conversation.parent,
        "turns": list(_encode_path(conversation, marks)),
        "variants": [encode_turn(turn, marks=None) for turn in conversation.variants],
        "extras": extras,
        "metadata": displaced,
    }
    return {"version": VERSION} | {
        key: value for key, value in optional.items() if value not in (None, [], {})
    }


def _encode_path(conversation: Conversation, marks: list[str]) -> Iterator[dict[str, Any]]:
    start = 0 if conversation.system is None else 1
    for turn in conversation.turns:
        if not turn.is_history:
            yield encode_turn(turn, marks=None)
            continue
        end = start + len(turn.messages)
        yield encode_turn(turn, marks=marks[start:end])
        start = end


def _stored_messages(conversation: Conversation) -> list[Message]:
    head = [] if conversation.system is None else [conversation.system]
    turns = (turn for turn in conversation.turns if turn.is_history)
    return head + [message for turn in turns for message in turn.messages]
