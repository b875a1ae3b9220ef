"""Converts rows to values and back, for both engines. Runs no SQL.

A row is a tuple in the order of the columns here. Decoding a row that cllm did not write raises
UnreadableRowError; no other code treats an exception as a damaged row.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_args

import msgspec

from cllm.core.conversation import (
    CHAT_SOURCE,
    SHELL_SOURCE,
    Branch,
    ContextRecord,
    ParentKind,
    StandingSummary,
    StoredConversation,
    Summary,
    SystemRecord,
    Turn,
    TurnFailure,
    WindowRecord,
    make_message_id,
)
from cllm.core.errors import (
    RequestConflictError,
    RequestInFlightError,
    StoreUnavailableError,
)
from cllm.core.message import Dialect, Message, Role
from cllm.core.notice import Notice
from cllm.core.ports import (
    CallRecord,
    ImportedFields,
    KeptResponse,
    RequestKey,
    UsageSum,
)
from cllm.core.reply import Usage
from cllm.stores.sql.validation import invalid_text_error

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]
RowValues = Sequence[Any]

CONVERSATION_COLUMNS = (
    "owner",
    "id",
    "name",
    "title",
    "model",
    "system",
    "system_record",
    "context_record",
    "created_at",
    "updated_at",
    "archived_at",
    "metadata",
    "pins",
    "summary",
    "parent_id",
    "parent_sequence",
    "parent_kind",
    "family",
    "source",
    "side",
    "path_start",
    "message_count",
)
SUMMARY_COLUMNS = (
    "id",
    "created_at",
    "updated_at",
    "message_count",
    "model",
    "name",
    "title",
    "archived_at",
    "metadata",
    "source",
    "side",
    "parent_id",
    "parent_sequence",
    "parent_kind",
)
TOTAL_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
"""The token counts that do not overlap."""
USAGE_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cache_write_hour_tokens",
    "estimated",
)
TURN_COLUMNS = (
    "id",
    "place",
    "state",
    "model",
    "provider",
    *USAGE_COLUMNS,
    "cost",
    "notices",
    "window",
    "failure",
    "started_at",
    "ended_at",
)
MAX_FILTERED = 20_000
"""The newest matches of a search that filters apply to."""
ORIGIN = f"""CASE WHEN source IN ('{SHELL_SOURCE}', '{CHAT_SOURCE}') THEN source
    ELSE 'client' END"""
"""The origin of a conversation from its source."""
NOT_COPIED = "(c.parent_id IS NULL OR c.parent_kind IS NOT NULL OR t.ended_at > c.created_at)"
"""A turn of a conversation, not one that a branch has copied from its parent."""
CALL_COLUMNS = ("model", *USAGE_COLUMNS, "cost", "ended_at")

_ROLES = frozenset(get_args(Role))
_DIALECTS = frozenset(get_args(Dialect))
_PARENT_KINDS = frozenset(get_args(ParentKind))
_NUMBERS = frozenset((int, bool))
_NO_USAGE = (None,) * len(USAGE_COLUMNS)


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    dialect: str
    raw: str


class UnreadableRowError(StoreUnavailableError):
    """A row is damaged, or another program wrote it."""

    def __init__(self, reason: str, *, path: str | None = None) -> None:
        super().__init__(
            f"{path or 'The database'} has a row that cannot be read ({reason}); restore it from "
            "a backup, or repair the row.",
            path=path,
        )
        self.reason = reason


def row_decoder(decode: Callable[P, T]) -> Callable[P, T]:
    """Make a function that decodes a row raise UnreadableRowError if it fails."""

    @wraps(decode)
    def decode_row(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decode(*args, **kwargs)
        except (
            msgspec.MsgspecError,
            ValueError,
            TypeError,
            AttributeError,
            OverflowError,
        ) as error:
            raise UnreadableRowError(type(error).__name__) from error

    return decode_row


_system = msgspec.json.Decoder(StoredMessage)
_system_record = msgspec.json.Decoder(SystemRecord)
_context_record = msgspec.json.Decoder(ContextRecord)
_summary = msgspec.json.Decoder(StandingSummary)
_pins = msgspec.json.Decoder(tuple[int, ...])
_notices = msgspec.json.Decoder(tuple[Notice, ...])
_window = msgspec.json.Decoder(WindowRecord)
_failure = msgspec.json.Decoder(TurnFailure)
_metadata = msgspec.json.Decoder(dict[str, Any])
_headers = msgspec.json.Decoder(dict[str, str])


class RowCodec:
    """Converts with the times of one engine; a subclass can shorten `place` and token counts."""

    def __init__(
        self, *, encode_time: Callable[[datetime], Any], decode_time: Callable[[Any], datetime]
    ) -> None:
        self.encode_time = encode_time
        self.decode_time = row_decoder(decode_time)

    def encode_conversation(self, conversation: StoredConversation) -> Row:
        return (
            conversation.owner,
            conversation.id,
            conversation.name,
            conversation.title,
            conversation.model,
            encode_system(conversation.system),
            encode_json(conversation.system_record),
            encode_json(conversation.context_record),
            self.encode_time(conversation.created_at),
            self.encode_time(conversation.updated_at),
            self.encode_optional_time(conversation.archived_at),
            encode_json(conversation.metadata),
            encode_json(conversation.pins or None),
            encode_json(conversation.summary),
            *_encode_parent(conversation.parent),
            conversation.family_key,
            conversation.source,
            int(conversation.is_side),
            conversation.path_start,
            conversation.message_count,
        )

    @row_decoder
    def decode_conversation(
        self,
        row: RowValues,
        *,
        turns: tuple[Turn, ...] = (),
        variants: tuple[Turn, ...] = (),
    ) -> StoredConversation:
        """Return a conversation with the newest turns of its path."""
        loaded = sum([len(turn.messages) for turn in turns])
        return StoredConversation(
            owner=row[0],
            id=row[1],
            name=row[2],
            title=row[3],
            model=row[4],
            system=_decode_system(row[5]),
            system_record=_optional(_system_record, row[6]),
            context_record=_optional(_context_record, row[7]),
            created_at=self.decode_time(row[8]),
            updated_at=self.decode_time(row[9]),
            archived_at=self.decode_optional_time(row[10]),
            metadata=_metadata.decode(row[11]),
            pins=_optional(_pins, row[12]) or (),
            summary=_optional(_summary, row[13]),
            parent=None if row[14] is None else _decode_parent(*row[14:17]),
            family=None if row[17] == row[1] else row[17],
            source=row[18],
            is_side=bool(row[19]),
            path_start=_decode_bytes(row[20]),
            turns=turns,
            variants=variants,
            first_sequence=row[21] - loaded + 1,
        )

    def decode_summary(self, row: RowValues) -> Summary:
        return self.decode_summaries((row,))[0]

    @row_decoder
    def decode_summaries(self, rows: Iterable[RowValues]) -> list[Summary]:
        decode_time = self.decode_time
        return [
            Summary(
                id=own_id,
                created_at=decode_time(created),
                updated_at=decode_time(updated),
                message_count=count,
                model=model,
                name=name,
                title=title,
                archived_at=None if archived is None else decode_time(archived),
                metadata={} if metadata == "{}" else _metadata.decode(metadata),
                source=source,
                is_side=bool(side),
                parent=None if parent[0] is None else _decode_parent(*parent),
            )
            for (
                own_id,
                created,
                updated,
                count,
                model,
                name,
                title,
                archived,
                metadata,
                source,
                side,
                *parent,
            ) in rows
        ]

    def encode_turn(self, turn: Turn) -> Row:
        return (
            turn.id,
            self.encode_place(turn),
            turn.state,
            turn.model,
            turn.provider,
            *self.encode_tokens(turn.usage),
            turn.cost,
            encode_json(turn.notices or None),
            encode_window(turn.window),
            encode_json(turn.failure),
            self.encode_time(turn.started_at),
            self.encode_optional_time(turn.ended_at),
        )

    @row_decoder
    def decode_turn(self, row: RowValues, messages: tuple[Message, ...]) -> Turn:
        return Turn(
            id=row[0],
            place=self.decode_place(row[0], row[1]),
            state=row[2],
            model=row[3],
            provider=row[4],
            usage=None if row[5] is None else self.decode_tokens(row[5:12]),
            cost=row[12],
            notices=() if row[13] is None else _notices.decode(row[13]),
            window=None if row[14] is None else _window.decode(row[14]),
            failure=None if row[15] is None else _failure.decode(row[15]),
            started_at=self.decode_time(row[16]),
            ended_at=None if row[17] is None else self.decode_time(row[17]),
            messages=messages,
        )

    def encode_place(self, turn: Turn) -> str | None:
        return turn.place

    def decode_place(self, _own_id: str, stored: Any) -> str:
        place: str = stored
        return place

    def encode_tokens(self, usage: Usage | None) -> Row:
        return encode_usage(usage)

    def decode_tokens(self, row: RowValues) -> Usage:
        return decode_usage(row)

    def encode_call(self, call: CallRecord) -> Row:
        usage = encode_usage(call.usage)
        return (call.model, *usage, call.cost, self.encode_time(call.ended_at))

    def encode_optional_time(self, moment: datetime | None) -> Any:
        return None if moment is None else self.encode_time(moment)

    def decode_optional_time(self, stored: Any) -> datetime | None:
        return None if stored is None else self.decode_time(stored)


def _decode_bytes(stored: Any) -> bytes | None:
    if stored is not None and type(stored) is not bytes:
        raise UnreadableRowError("not bytes")
    return stored


def _encode_parent(parent: Branch | None) -> Row:
    """Return the columns of the parent; the kind is NULL for a branch."""
    if parent is None:
        return None, None, None
    return parent.conversation, parent.sequence, None if parent.kind == "branch" else parent.kind


def _decode_parent(conversation: str, sequence: int, kind: Any) -> Branch:
    if kind is None:
        return Branch(conversation=conversation, sequence=sequence)
    if kind not in _PARENT_KINDS:
        raise UnreadableRowError("not a kind of parent")
    return Branch(conversation=conversation, sequence=sequence, kind=kind)


def encode_message(message: Message) -> Row:
    try:
        return message.role, message.dialect, message.raw.decode()
    except UnicodeDecodeError as error:
        raise invalid_text_error() from error


@row_decoder
def decode_unchecked_message(role: Any, dialect: Any, raw: str) -> Message:
    """Return a message that may be damaged, for example to delete it."""
    return Message(role=role, dialect=dialect, raw=raw.encode())


def decode_message(role: Any, dialect: Any, raw: Any) -> Message:
    """Return a message with a valid role and dialect whose text starts like a JSON object."""
    is_valid = type(raw) is str and role in _ROLES and dialect in _DIALECTS
    if not is_valid or not _is_object(raw):
        raise UnreadableRowError("not a message")
    return Message(role=role, dialect=dialect, raw=raw.encode())


@row_decoder
def decode_text(role: Any, dialect: Any, raw: Any) -> str:
    return decode_unchecked_message(role, dialect, raw).text


def decode_role(stored: Any) -> Any:
    if stored not in _ROLES:
        raise UnreadableRowError("not a role")
    return stored


def decode_number(stored: Any) -> int:
    if type(stored) is not int:
        raise UnreadableRowError("not a number")
    return stored


def require_row(row: T | None) -> T:
    """Return the row; UnreadableRowError if a row that another one refers to is missing."""
    if row is None:
        raise UnreadableRowError("missing")
    return row


def _is_object(raw: str) -> bool:
    return raw[:1] == "{" or raw.lstrip()[:1] == "{"


def encode_usage(usage: Usage | None) -> Row:
    if usage is None:
        return _NO_USAGE
    return (
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.reasoning,
        usage.cache_write_hour,
        int(usage.estimated),
    )


def decode_usage(row: RowValues) -> Usage:
    if not _NUMBERS.issuperset(map(type, row)):
        raise UnreadableRowError("not a count of tokens")
    return Usage(
        input=row[0],
        output=row[1],
        cache_read=row[2],
        cache_write=row[3],
        reasoning=row[4],
        cache_write_hour=row[5],
        estimated=bool(row[6]),
    )


def overview_sums(unpriced: str) -> str:
    """Return the SQL of the sums of an overview; `unpriced` counts turns without a price."""
    columns = (f"COALESCE(t.{column}, 0)" for column in TOTAL_COLUMNS)
    return f"COALESCE(sum({' + '.join(columns)}), 0), sum(t.cost), COALESCE({unpriced}, 0)"


@row_decoder
def decode_sum(row: RowValues) -> UsageSum:
    return UsageSum(
        key=row[0],
        calls=row[1],
        usage=Usage() if row[2] is None else decode_usage([int(number) for number in row[2:9]]),
        cost=None if row[1] and row[1] == row[10] else float(row[9] or 0.0),
        unpriced=row[10],
    )


def encode_system(system: Message | None) -> str | None:
    if system is None:
        return None
    role, dialect, raw = encode_message(system)
    return encode_json(StoredMessage(role=role, dialect=dialect, raw=raw))


def _decode_system(stored: str | None) -> Message | None:
    if stored is None:
        return None
    message = _system.decode(stored)
    return decode_unchecked_message(message.role, message.dialect, message.raw)


def encode_json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


class _CompactWindow(WindowRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A window record that is encoded without default values."""


def encode_window(window: WindowRecord | None) -> str | None:
    return encode_json(None if window is None else _CompactWindow(**msgspec.structs.asdict(window)))


@row_decoder
def decode_window(stored: str | None) -> WindowRecord | None:
    return None if stored is None else _window.decode(stored)


def decode_response(row: RowValues, request: RequestKey) -> KeptResponse:
    """Return the saved response, from the columns body, status, headers and response."""
    body, status, headers, response = row
    if body != request.body:
        raise RequestConflictError
    if status is None:
        raise RequestInFlightError
    return KeptResponse(status=status, headers=decode_headers(headers), body=response)


@row_decoder
def decode_headers(stored: str | None) -> dict[str, str]:
    return {} if stored is None else _headers.decode(stored)


def _optional(decoder: "msgspec.json.Decoder[Any]", stored: str | None) -> Any:
    return None if stored is None else decoder.decode(stored)


def to_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


_imported = msgspec.json.Decoder(ImportedFields, strict=False)


@row_decoder
def decode_imported(rows: Iterable[Any]) -> dict[str, ImportedFields]:
    """Return the fields of imported messages by message ID.

    A row has a turn ID, an ordinal and JSON.
    """
    return {make_message_id(turn, ordinal): _imported.decode(text) for turn, ordinal, text in rows}
