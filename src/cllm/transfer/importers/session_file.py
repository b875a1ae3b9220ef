"""Session files of agents: one JSON object per line, one conversation per file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from cllm.transfer.archive import MAX_RATIO, MIN_RATIO_BYTES, Archive, SourceFile
from cllm.transfer.importers.zstd_stream import open_zstd
from cllm.transfer.json_stream import (
    MAX_OBJECT_BYTES,
    DamagedFileError,
    TooLargeError,
    decode_object,
    iter_lines,
)
from cllm.transfer.report import ImportReport

COMPRESSED = ".jsonl.zst"
NO_MESSAGES = "it has no messages"
Line = dict[str, Any]


def read_records(archive: Archive, file: SourceFile, report: ImportReport) -> list[Line]:
    """Return the lines. Reports damaged ones; the last one of a running session is incomplete.

    A file that is too large has no lines, since a part of a conversation is not imported.
    """
    lines: list[Line] = []
    damaged = 0
    try:
        with _open(archive, file) as stream:
            for data in iter_lines(stream, limit=_find_limit(file)):
                try:
                    lines.append(decode_object(data))
                except DamagedFileError:
                    damaged += 1
    except TooLargeError as error:
        report.skip(str(error), damaged=True, path=file.name)
        return []
    except DamagedFileError as error:
        report.skip(str(error), damaged=True, path=file.name)
        return lines
    if damaged:
        noun = "line was" if damaged == 1 else "lines were"
        report.skip(f"{damaged} damaged {noun} left out", damaged=True, path=file.name)
    elif not lines:
        report.skip(NO_MESSAGES, path=file.name)
    return lines


def _find_limit(file: SourceFile) -> int:
    if not file.base.endswith(COMPRESSED):
        return MAX_OBJECT_BYTES
    return min(MAX_OBJECT_BYTES, max(MIN_RATIO_BYTES, MAX_RATIO * file.size))


@contextmanager
def _open(archive: Archive, file: SourceFile) -> Iterator[BinaryIO]:
    with archive.open(file) as stream:
        if not file.base.endswith(COMPRESSED):
            yield stream
            return
        with open_zstd(stream) as decompressed:
            yield decompressed
