"""Files with many conversations, some of them damaged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import write_zip

from cllm.transfer.archive import open_archive
from cllm.transfer.importers.json_files import (
    CONVERSATIONS,
    list_conversation_files,
    read_files,
)
from cllm.transfer.message_tree import ImportedConversation
from cllm.transfer.report import ImportReport


def read(fields: dict[str, Any]) -> Iterator[ImportedConversation]:
    if "id" in fields:
        yield ImportedConversation(source="test", id=fields["id"], nodes=())


def read_ids(path: Path, report: ImportReport, field: str | None = None) -> list[str]:
    archive = open_archive(path)
    return [one.id for one in read_files(archive, archive.files, read, report, field=field)]


@pytest.mark.parametrize(
    "text",
    [b'[{"id": "a"}, {"x": 1}, {"id": "b"}]', b'{"conversations": [{"id": "a"}, {"id": "b"}]}'],
)
def test_the_conversations_are_a_list_or_in_a_field(tmp_path: Path, text: bytes):
    path = write_zip(tmp_path / "a.zip", {"a.json": text})
    report = ImportReport()

    assert read_ids(path, report, CONVERSATIONS) == ["a", "b"]
    assert report.skipped == []


def test_a_damaged_file_does_not_hide_the_others(tmp_path: Path):
    files = {"a.json": b'[{"id": "a"}, {"id": ', "b.json": b'[{"id": "b"}, {"id": "\\x"}]'}
    report = ImportReport()

    assert read_ids(write_zip(tmp_path / "a.zip", files), report) == ["a", "b"]
    assert [one.damaged for one in report.skipped] == [True, True]
    assert [one.path for one in report.skipped] == ["a.json", None]


def test_parts_of_an_export_are_read_by_their_numbers(tmp_path: Path):
    names = ["conversations-10.json", "conversations-2.json", "conversations.json", "users.json"]
    path = write_zip(tmp_path / "a.zip", dict.fromkeys(names, b"[]"))

    assert [file.base for file in list_conversation_files(open_archive(path))] == [
        "conversations.json",
        "conversations-2.json",
        "conversations-10.json",
    ]
