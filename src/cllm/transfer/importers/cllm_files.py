"""Reads conversation files of cllm: one, a folder of them, a backup, or JSON lines."""

from collections.abc import Iterator
from datetime import UTC, datetime

from cllm.core.conversation import StoredConversation
from cllm.core.errors import BrokenConversationError
from cllm.transfer.archive import Archive, SourceFile
from cllm.transfer.importers.content import parse_time, read_text
from cllm.transfer.json_stream import (
    MAX_OBJECT_BYTES,
    DamagedFileError,
    decode_object,
    iter_lines,
)
from cllm.transfer.report import ImportReport
from cllm.wire.conversation_file.codec import decode_conversation

MANIFEST = "manifest.json"
NO_TIME = datetime.fromtimestamp(0, tz=UTC)
"""The time of a conversation whose file has none."""


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[StoredConversation]:
    """Yield the conversations, oldest file first, so that parents are before their branches."""
    for file in _sort_by_creation(archive, report):
        try:
            if file.base.endswith(".jsonl"):
                yield from _read_lines(archive, file, report)
            else:
                yield decode_file(archive.read(file, limit=MAX_OBJECT_BYTES))
        except DamagedFileError as error:
            report.skip(str(error), damaged=True, path=file.name)


def _sort_by_creation(archive: Archive, report: ImportReport) -> list[SourceFile]:
    dated: list[tuple[datetime, SourceFile]] = []
    for file in archive.files:
        is_data = file.base.endswith((".json", ".jsonl")) and file.name != MANIFEST
        is_hidden = "/." in f"/{file.name}"
        if is_hidden or (len(archive.files) > 1 and not is_data):
            continue
        created_at = NO_TIME
        if not file.base.endswith(".jsonl"):
            try:
                fields = decode_object(archive.read(file, limit=MAX_OBJECT_BYTES))
                created_at = parse_time(fields.get("created_at")) or NO_TIME
            except DamagedFileError as error:
                report.skip(str(error), damaged=True, path=file.name)
                continue
        dated.append((created_at, file))
    return [file for _, file in sorted(dated, key=lambda pair: (pair[0], pair[1].name))]


def _read_lines(
    archive: Archive, file: SourceFile, report: ImportReport
) -> Iterator[StoredConversation]:
    with archive.open(file) as stream:
        for number, line in enumerate(iter_lines(stream), 1):
            try:
                yield decode_file(line)
            except DamagedFileError as error:
                report.skip(f"line {number}: {error}", damaged=True, path=file.name)


def decode_file(data: bytes) -> StoredConversation:
    """Decode a conversation file of any name. Raises DamagedFileError."""
    ref = read_text(decode_object(data), "id")
    try:
        decoded = decode_conversation(data, conversation_id=ref, path="", modified_at=NO_TIME)
    except BrokenConversationError as error:
        raise DamagedFileError(str(error.reason)) from None
    return decoded.conversation
