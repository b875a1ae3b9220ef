"""Reads the export of Open WebUI (JSON) and its database `webui.db`."""

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from cllm.core.message import AnyPart, Image, Message, Text, Thinking
from cllm.core.reply import Usage
from cllm.transfer.archive import Archive
from cllm.transfer.importers.content import (
    build_message,
    build_placeholder,
    parse_time,
    read_count,
    read_object,
    read_objects,
    read_text,
)
from cllm.transfer.importers.sqlite_file import find_databases, open_read_only, select
from cllm.transfer.json_stream import DamagedFileError, decode_object, iter_objects
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.report import ImportReport
from cllm.wire.openai.parts import image_source

SOURCE = "open-webui"
REASONING = re.compile(
    r'<details type="reasoning"[^>]*>\s*(?:<summary>.*?</summary>)?(.*?)</details>\s*', re.DOTALL
)
Fields = dict[str, Any]


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    databases = list(find_databases(archive))
    for path in databases:
        try:
            with open_read_only(path) as database:
                yield from _read_database(database, report)
        except (DamagedFileError, sqlite3.Error) as error:
            report.skip(str(error), damaged=True, path=str(path))
    if databases:
        return
    for file in archive.files:
        if file.base.endswith(".json") or len(archive.files) == 1:
            try:
                with archive.open(file) as stream:
                    for data in iter_objects(stream):
                        yield from _read_chat(data, report)
            except DamagedFileError as error:
                report.skip(str(error), damaged=True, path=file.name)


def _read_database(
    database: sqlite3.Connection, report: ImportReport
) -> Iterator[ImportedConversation]:
    for row in select(database, "SELECT * FROM chat ORDER BY created_at, id"):
        try:
            chat = decode_object(str(row.get("chat") or "").encode())
        except DamagedFileError as error:
            report.skip(str(error), damaged=True, id=row["id"], title=row.get("title"))
            continue
        fields = {**row, "chat": chat, "archived": row.get("archived") in (1, True)}
        yield from _build(fields, report)


def _read_chat(data: bytes, report: ImportReport) -> Iterator[ImportedConversation]:
    try:
        fields = decode_object(data)
    except DamagedFileError as error:
        report.skip(str(error), damaged=True)
        return
    yield from _build(fields, report)


def _build(fields: Fields, report: ImportReport) -> Iterator[ImportedConversation]:
    chat = read_object(fields, "chat") or fields
    title = read_text(fields, "title") or read_text(chat, "title") or None
    ref = read_text(fields, "id") or read_text(chat, "id")
    if not ref:
        report.skip("it has no ID", title=title)
        return
    history = read_object(chat, "history")
    messages = read_object(history, "messages")
    nodes = tuple(
        _read_node(key, message, report)
        for key, message in messages.items()
        if isinstance(message, dict)
    )
    models = chat.get("models")
    yield ImportedConversation(
        source=SOURCE,
        id=ref,
        nodes=nodes,
        current=read_text(history, "currentId") or None,
        title=title,
        model=next((one for one in models or () if isinstance(one, str) and one), None),
        system=read_text(chat, "system")
        or read_text(read_object(chat, "params"), "system")
        or None,
        created_at=parse_time(fields.get("created_at")) or parse_time(chat.get("timestamp")),
        updated_at=parse_time(fields.get("updated_at")),
        is_archived=fields.get("archived") is True,
    )


def _read_node(key: str, message: Fields, report: ImportReport) -> ImportedNode:
    role = read_text(message, "role")
    parts = _read_parts(role, message, report)
    messages: tuple[Message, ...] = ()
    if role in ("user", "assistant") and parts:
        messages = (build_message("user" if role == "user" else "assistant", parts),)
    else:
        report.skip_message("empty message" if not parts else f"message of the role '{role}'")
    is_reply = role == "assistant"
    return ImportedNode(
        id=key,
        parent=read_text(message, "parentId") or None,
        messages=messages,
        at=parse_time(message.get("timestamp")),
        model=(read_text(message, "model") or None) if is_reply else None,
        usage=_read_usage(message) if is_reply else None,
        is_complete=not is_reply or message.get("done") is not False,
    )


def _read_parts(role: str, message: Fields, report: ImportReport) -> list[AnyPart]:
    content = read_text(message, "content")
    parts: list[AnyPart] = []
    if role == "assistant":
        thoughts = [found.strip() for found in REASONING.findall(content)]
        content = REASONING.sub("", content)
        parts += [Thinking(text=text) for text in thoughts if text]
    error = read_text(read_object(message, "error"), "content")
    if not content.strip() and error:
        report.note("an error message became the text of a reply")
        content = error
    if content.strip():
        parts.append(Text(text=content))
    for file in read_objects(message, "files"):
        parts.append(_read_file(file, report))
    return parts


def _read_file(file: Fields, report: ImportReport) -> AnyPart:
    url = read_text(file, "url")
    if read_text(file, "type") == "image" and url.startswith(("data:", "https://", "http://")):
        return Image(**image_source(url))
    text = read_text(read_object(read_object(file, "file"), "data"), "content")
    name = read_text(file, "name", "filename") or None
    if text:
        return Text(text=f"[file: {name}]\n{text}")
    report.note("a file is not in the export")
    return build_placeholder("file", name)


def _read_usage(message: Fields) -> Usage | None:
    usage = read_object(message, "usage") or read_object(read_object(message, "info"), "usage")
    if not usage:
        return None
    prompt = read_count(usage, "input_tokens", "prompt_tokens", "prompt_eval_count")
    output = read_count(usage, "output_tokens", "completion_tokens", "eval_count")
    return Usage(input=prompt, output=output)
