"""Reads exports that are JSON files with many conversations each.

A damaged conversation or file is reported, and does not hide the others.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cllm.transfer.archive import Archive, SourceFile
from cllm.transfer.importers.content import read_object
from cllm.transfer.json_stream import DamagedFileError, decode_object, iter_objects
from cllm.transfer.message_tree import ImportedConversation
from cllm.transfer.report import ImportReport

CONVERSATIONS = "conversations"
"""The field of an export that has its conversations, if that is an object."""
FILE_NAME = re.compile(r"conversations(?:-(\d+))?\.json")
MANIFEST = "export_manifest.json"
MAX_MANIFEST_BYTES = 16 * 1024 * 1024

ReadConversation = Callable[[dict[str, Any]], Iterator[ImportedConversation]]
"""Yields the conversation with these fields, or reports why it is not imported."""


def list_conversation_files(archive: Archive) -> list[SourceFile]:
    """Return `conversations.json` or its parts in order; of a single file, the file itself."""
    named = [(FILE_NAME.fullmatch(file.base), file) for file in archive.files]
    parts = [(int(match[1] or -1), file) for match, file in named if match is not None]
    parts += enumerate(_list_manifest(archive, {file.name for _, file in parts}))
    if not parts and len(archive.files) == 1:
        return list(archive.files)
    return [file for _, file in sorted(parts, key=lambda part: (part[0], part[1].name))]


def _list_manifest(archive: Archive, known: set[str]) -> list[SourceFile]:
    """Return the parts that the manifest names and that have other names."""
    manifest = next((file for file in archive.files if file.base == MANIFEST), None)
    if manifest is None:
        return []
    try:
        fields = decode_object(archive.read(manifest, limit=MAX_MANIFEST_BYTES))
    except DamagedFileError:
        return []
    listed = read_object(read_object(fields, "logical_files"), "conversations.json").get("files")
    folder = manifest.name.removesuffix(MANIFEST)
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    files = (archive.find(folder + name) for name in dict.fromkeys(names))
    return [file for file in files if file is not None and file.name not in known]


def read_files(
    archive: Archive,
    files: Iterable[SourceFile],
    read: ReadConversation,
    report: ImportReport,
    *,
    field: str | None = None,
) -> Iterator[ImportedConversation]:
    """Yield the conversations of files that are a list of them, or an object with it in `field`."""
    for file in files:
        try:
            with archive.open(file) as stream:
                for data in iter_objects(stream, field=field):
                    yield from _read_object(data, read, report)
        except DamagedFileError as error:
            report.skip(str(error), damaged=True, path=file.name)


def _read_object(
    data: bytes, read: ReadConversation, report: ImportReport
) -> Iterator[ImportedConversation]:
    try:
        fields = decode_object(data)
    except DamagedFileError as error:
        report.skip(str(error), damaged=True)
        return
    yield from read(fields)
