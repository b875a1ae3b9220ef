"""Reads the export of Open WebUI (JSON), its database `webui.db`, or the folder with both.

The folder `uploads` next to the database has the files of the messages.
"""

import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Any

from cllm.transfer.archive import Archive
from cllm.transfer.importers.content import parse_time, read_object, read_text
from cllm.transfer.importers.json_files import read_files
from cllm.transfer.importers.open_webui_database import read_chats
from cllm.transfer.importers.open_webui_messages import OpenWebuiFiles, read_node
from cllm.transfer.importers.sqlite_file import find_databases, open_read_only
from cllm.transfer.json_stream import DamagedFileError
from cllm.transfer.message_tree import ImportedConversation
from cllm.transfer.report import ImportReport

SOURCE = "open-webui"
Fields = dict[str, Any]


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    databases = list(find_databases(archive))
    for path in databases:
        try:
            with open_read_only(path) as database:
                files = OpenWebuiFiles(archive, report, database=database)
                for fields in read_chats(database, report):
                    yield from _build(fields, files, report)
        except (DamagedFileError, sqlite3.Error) as error:
            report.skip(str(error), damaged=True, path=str(path))
    if not databases:
        yield from _read_exports(archive, report)


def _read_exports(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    read = partial(_build, files=OpenWebuiFiles(archive, report), report=report)
    is_only = len(archive.files) == 1
    exports = [file for file in archive.files if is_only or file.base.endswith(".json")]
    return read_files(archive, exports, read, report)


def _build(
    fields: Fields, files: OpenWebuiFiles, report: ImportReport
) -> Iterator[ImportedConversation]:
    chat = read_object(fields, "chat") or fields
    title = read_text(fields, "title") or read_text(chat, "title") or None
    history = read_object(chat, "history")
    messages = {
        key: message
        for key, message in read_object(history, "messages").items()
        if isinstance(message, dict)
    }
    ref = read_text(fields, "id") or read_text(chat, "id") or _make_ref(chat, messages)
    if not ref:
        report.skip("it has no ID", title=title)
        return
    files.budget.reset()
    models = chat.get("models")
    details = _read_details(fields)
    yield ImportedConversation(
        source=SOURCE,
        id=ref,
        nodes=tuple(read_node(key, message, files, report) for key, message in messages.items()),
        current=read_text(history, "currentId") or None,
        title=title,
        model=next((one for one in models if isinstance(one, str) and one), None)
        if isinstance(models, list)
        else None,
        system=read_text(chat, "system")
        or read_text(read_object(chat, "params"), "system")
        or None,
        created_at=parse_time(fields.get("created_at")) or parse_time(chat.get("timestamp")),
        updated_at=parse_time(fields.get("updated_at")),
        is_archived=fields.get("archived") is True,
        metadata={SOURCE: details} if details else {},
    )


def _make_ref(chat: Fields, messages: dict[str, Fields]) -> str:
    """Return an ID for a chat of an older export, which has none."""
    roots = (key for key, message in messages.items() if not read_text(message, "parentId"))
    root = next(roots, "")
    return f"{chat.get('timestamp') or ''}:{root}" if root else ""


def _read_details(fields: Fields) -> Fields:
    tags = read_object(fields, "meta").get("tags")
    texts = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    details: Fields = {"pinned": True} if fields.get("pinned") in (1, True) else {}
    return {**details, "tags": texts} if texts else details
