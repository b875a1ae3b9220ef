"""The chats in `webui.db` of Open WebUI, in the form of its export.

A chat is one JSON value. Newer versions have its messages also in the table `chat_message`, which
they prefer.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from cllm.transfer.importers.content import read_object
from cllm.transfer.importers.sqlite_file import Row, list_tables, select
from cllm.transfer.json_stream import DamagedFileError, decode_object
from cllm.transfer.report import ImportReport

NAMES = {
    "role": "role",
    "parent_id": "parentId",
    "content": "content",
    "output": "output",
    "model_id": "model",
    "files": "files",
    "done": "done",
    "error": "error",
    "usage": "usage",
    "created_at": "timestamp",
}
"""The columns of a message and their names in an export."""
JSON_COLUMNS = ("content", "output", "files", "error", "usage")
Fields = dict[str, Any]


def read_chats(database: sqlite3.Connection, report: ImportReport) -> Iterator[Fields]:
    tables = list_tables(database)
    for row in select(database, "SELECT * FROM chat ORDER BY created_at, id"):
        try:
            chat = decode_object(str(row.get("chat") or "").encode())
        except DamagedFileError as error:
            report.skip(str(error), damaged=True, id=row["id"], title=row.get("title"))
            continue
        if "chat_message" in tables:
            chat = _add_rows(chat, _read_messages(database, str(row["id"])))
        archived, meta = row.get("archived") in (1, True), _decode(row.get("meta"))
        yield {**row, "chat": chat, "archived": archived, "meta": meta}


def _add_rows(chat: Fields, rows: dict[str, Fields]) -> Fields:
    """Add the messages of the table to those of the chat; the fields of the table win."""
    history = read_object(chat, "history")
    messages = read_object(history, "messages")
    joined = {key: {**read_object(messages, key), **fields} for key, fields in rows.items()}
    return {**chat, "history": {**history, "messages": {**messages, **joined}}}


def _read_messages(database: sqlite3.Connection, chat_id: str) -> dict[str, Fields]:
    statement = "SELECT * FROM chat_message WHERE chat_id = ? ORDER BY created_at, id"
    rows = select(database, statement, chat_id)
    return {str(row["id"]).removeprefix(f"{chat_id}-"): _read_message(row) for row in rows}


def _read_message(row: Row) -> Fields:
    fields: Fields = {}
    for column, name in NAMES.items():
        value = row.get(column)
        value = _decode(value) if column in JSON_COLUMNS else value
        if value is not None:
            fields[name] = value
    if "done" in fields:
        fields["done"] = fields["done"] in (1, True)
    return fields


def _decode(value: Any) -> Any:
    """Decode a JSON column; None if it is not JSON."""
    if not isinstance(value, str):
        return None
    try:
        return decode_object(b'{"value":%s}' % value.encode()).get("value")
    except (DamagedFileError, msgspec.MsgspecError):
        return None


def find_file(database: sqlite3.Connection, ref: str) -> Fields:
    """Return the name and the text of an uploaded file."""
    if "file" not in list_tables(database):
        return {}
    row = next(select(database, "SELECT * FROM file WHERE id = ?", ref), {})
    return {**row, "data": _decode(row.get("data")), "meta": _decode(row.get("meta"))}
