"""Converts rows that are not part of a conversation to values and back, for both engines.

Also the rows that a check reads, and the statements that are the same in both. Runs no SQL.
"""

# ruff: noqa: S608 - only column names are inserted into the text

from collections.abc import Callable, Iterable
from typing import Literal

from cllm.core.ports import CallRecord
from cllm.core.ports.snapshot import (
    CallRow,
    EventRow,
    ImportedRow,
    MessageRow,
    ResponseRow,
    ServerRow,
    TurnRow,
)
from cllm.stores.sql.rows import (
    CALL_COLUMNS,
    USAGE_COLUMNS,
    Row,
    RowCodec,
    RowValues,
    UnreadableRowError,
    decode_headers,
    decode_imported,
    decode_number,
    decode_usage,
)

Table = Literal["calls", "requests", "events", "imported"]
TABLES: tuple[Table, ...] = ("calls", "requests", "events", "imported")
_CALLS = ", ".join(CALL_COLUMNS)
READ_SERVER_ROWS: dict[Table, str] = {
    "calls": f"""SELECT owner, {_CALLS}, row_number() OVER (PARTITION BY owner, {_CALLS})
        FROM calls ORDER BY owner, ended_at""",
    "requests": """SELECT owner, key, body, expires_at, status, headers, response FROM requests
        WHERE status IS NOT NULL ORDER BY owner, key""",
    "events": """SELECT owner, conversation_id, turn_id, number, data FROM events
        ORDER BY owner, conversation_id, turn_id, number""",
}


def decode_server_row(
    table: Table, row: RowValues, codec: RowCodec
) -> ServerRow | UnreadableRowError:
    try:
        return _DECODERS[table](row, codec)
    except UnreadableRowError as error:
        return UnreadableRowError(f"{error.reason}, in the table {table}")


def _decode_call(row: RowValues, codec: RowCodec) -> CallRow:
    owner, model, *usage, cost, ended_at, occurrence = row
    _check(owner, str)
    _check(model, str)
    _check(cost, float, int, type(None))
    call = CallRecord(
        model=model,
        usage=decode_usage(usage[: len(USAGE_COLUMNS)]),
        cost=cost,
        ended_at=codec.decode_time(ended_at),
    )
    return CallRow(owner=owner, call=call, occurrence=occurrence)


def _decode_response(row: RowValues, codec: RowCodec) -> ResponseRow:
    owner, key, body, expires_at, status, headers, response = row
    for text in (owner, key, body):
        _check(text, str)
    _check(response, bytes, type(None))
    decode_headers(headers)
    return ResponseRow(
        owner=owner,
        key=key,
        body=body,
        expires_at=codec.decode_time(expires_at),
        status=decode_number(status),
        headers=headers,
        response=response,
    )


def _decode_event(row: RowValues, _codec: RowCodec) -> EventRow:
    owner, conversation, turn, number, data = row
    for text in (owner, conversation, turn):
        _check(text, str)
    _check(data, bytes)
    return EventRow(
        owner=owner, conversation=conversation, turn=turn, number=decode_number(number), data=data
    )


def _decode_imported_row(row: RowValues, _codec: RowCodec) -> ImportedRow:
    owner, conversation, turn, ordinal, fields = row
    for text in (owner, conversation, turn, fields):
        _check(text, str)
    decode_imported([(turn, decode_number(ordinal), fields)])
    return ImportedRow(
        owner=owner, conversation=conversation, turn=turn, ordinal=ordinal, fields=fields
    )


def _check(value: object, *types: type) -> None:
    if type(value) not in types:
        raise UnreadableRowError("a value of another type")


_DECODERS: dict[Table, Callable[[RowValues, RowCodec], ServerRow]] = {
    "calls": _decode_call,
    "requests": _decode_response,
    "events": _decode_event,
    "imported": _decode_imported_row,
}


def encode_server_row(row: ServerRow, codec: RowCodec) -> tuple[Table, Row]:
    """Return the table and the values, in the order in which they were read."""
    match row:
        case CallRow():
            return "calls", (row.owner, *codec.encode_call(row.call), row.occurrence)
        case ResponseRow():
            expires_at = codec.encode_time(row.expires_at)
            head = (row.owner, row.key, row.body, expires_at)
            return "requests", (*head, row.status, row.headers, row.response)
        case EventRow():
            return "events", (row.owner, row.conversation, row.turn, row.number, row.data)
        case ImportedRow():
            return "imported", (row.owner, row.conversation, row.turn, row.ordinal, row.fields)


def build_turn_rows(rows: Iterable[RowValues]) -> tuple[TurnRow, ...]:
    """Build turns from rows of a turn and one of its messages, sorted by turn and ordinal.

    A row has `id`, `number`, `position`, `first_sequence`, `ordinal` and `digest`.
    """
    turns: dict[int, tuple[RowValues, list[MessageRow]]] = {}
    for row in rows:
        _, messages = turns.setdefault(row[1], (row, []))
        if row[4] is not None:
            messages.append(MessageRow(ordinal=row[4], digest=row[5]))
    return tuple(
        TurnRow(
            id=row[0],
            number=row[1],
            position=row[2],
            first_sequence=row[3],
            messages=tuple(messages),
        )
        for row, messages in turns.values()
    )
