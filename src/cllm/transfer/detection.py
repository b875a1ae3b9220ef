"""Recognises the format of a source by its content, never by its name alone."""

import sqlite3
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from cllm.core.conversation import StoredConversation
from cllm.core.errors import UsageError
from cllm.transfer.archive import Archive, SourceFile, open_archive
from cllm.transfer.importers.sqlite_file import is_sqlite_file, list_tables, open_read_only
from cllm.transfer.json_stream import DamagedFileError, decode_object, iter_lines, iter_objects
from cllm.transfer.message_tree import ImportedConversation
from cllm.transfer.report import ImportReport

Reader = Callable[[Archive, ImportReport], Iterator[ImportedConversation | StoredConversation]]
IMPORTERS = "cllm.transfer.importers"
FORMATS = {
    "chatgpt": "chatgpt",
    "claude-ai": "claude_ai",
    "llm": "llm_logs",
    "claude-code": "claude_code",
    "codex": "codex",
    "open-webui": "open_webui",
    "cllm": "cllm_files",
}
"""The name of each format and the module that reads it."""
MAX_PEEKS = 200
"""How many files of a folder are read to recognise its format."""
PEEK_LINES = 30
CLAUDE_LINKS = (
    "{path} is a list of download links of Claude.ai; download the archives that it names and "
    "import each of them."
)


def open_source(path: Path, name: str | None) -> tuple[str, Archive, Reader]:
    """Open a source and choose its reader: by the name of the format, or by the content."""
    archive = open_archive(path)
    try:
        chosen = name or detect_format(archive)
    except BaseException:
        archive.close()
        raise
    if chosen not in FORMATS:
        archive.close()
        known = ", ".join(FORMATS)
        raise UsageError(
            f"The format of {path} is not known; name it with --from ({known}), or check the path."
        )
    return chosen, archive, import_module(f"{IMPORTERS}.{FORMATS[chosen]}").read_conversations


def detect_format(archive: Archive) -> str | None:
    peeks = 0
    for file in sorted(archive.files, key=_likelihood):
        if peeks >= MAX_PEEKS:
            break
        found = _detect_file(archive, file)
        if found is not None:
            return found
        peeks += file.base.endswith((".json", ".jsonl", ".zst", ".db", ".sqlite"))
    return None


def _likelihood(file: SourceFile) -> tuple[bool, bool, str]:
    """Order files: those that contain conversations first."""
    is_main = file.base.startswith(("conversations", "rollout-", "manifest"))
    is_data = file.base.endswith((".json", ".jsonl", ".zst", ".db", ".sqlite"))
    return not is_main, not is_data, file.name


def _detect_file(archive: Archive, file: SourceFile) -> str | None:
    try:
        if file.base.endswith(".jsonl.zst"):
            return "codex"
        if file.base.endswith(".jsonl"):
            return _detect_lines(archive, file)
        with archive.open(file) as stream:
            if is_sqlite_file(stream):
                return _detect_database(archive, file)
            stream.seek(0)
            data = next(iter_objects(stream, field="conversations"), None)
        return None if data is None else _detect_object(archive, decode_object(data))
    except DamagedFileError:
        return None


def _detect_object(archive: Archive, fields: dict[str, Any]) -> str | None:
    if isinstance(fields.get("mapping"), dict):
        return "chatgpt"
    if isinstance(fields.get("chat_messages"), list):
        return "claude-ai"
    if isinstance(fields.get("data_files"), list):
        raise UsageError(CLAUDE_LINKS.format(path=archive.path))
    chat = fields.get("chat", fields)
    if isinstance(chat, dict) and isinstance(chat.get("history"), dict):
        return "open-webui"
    if isinstance(fields.get("id"), str) and isinstance(fields.get("messages"), list):
        return "cllm"
    if fields.get("format") == "cllm-backup":
        return "cllm"
    return None


def _detect_lines(archive: Archive, file: SourceFile) -> str | None:
    with archive.open(file) as stream:
        for _, line in zip(range(PEEK_LINES), iter_lines(stream), strict=False):
            fields = decode_object(line)
            if fields.get("type") == "session_meta" or (
                isinstance(fields.get("payload"), dict) and "timestamp" in fields
            ):
                return "codex"
            if isinstance(fields.get("sessionId"), str):
                return "claude-code"
            if found := _detect_object(archive, fields):
                return found
    return None


def is_database(archive: Archive) -> bool:
    if len(archive.files) != 1 or not archive.path.is_file():
        return False
    with archive.open(archive.files[0]) as stream:
        return is_sqlite_file(stream)


def _detect_database(archive: Archive, file: SourceFile) -> str | None:
    path = archive.path if archive.path.is_file() else archive.path / file.name
    try:
        with open_read_only(path) as database:
            tables = list_tables(database)
    except sqlite3.Error:
        return None
    if "chat" in tables:
        return "open-webui"
    if "turns" in tables and "conversations" in tables and "leases" in tables:
        return "cllm"
    return "llm" if "responses" in tables or "threads" in tables else None
