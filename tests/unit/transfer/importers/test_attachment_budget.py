from pathlib import Path

import pytest
from tests.import_sources import write_zip

from cllm.transfer.archive import open_archive
from cllm.transfer.importers import attachment_budget
from cllm.transfer.importers.attachment_budget import TOO_MANY_BYTES, AttachmentBudget
from cllm.transfer.report import ImportReport


def test_the_files_of_a_conversation_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment_budget, "MAX_CONVERSATION_BYTES", 10)
    archive = open_archive(write_zip(tmp_path / "a.zip", {"a": b"x" * 6}))
    report = ImportReport()
    budget = AttachmentBudget(report)
    assert budget.read(archive, archive.files[0]) == b"x" * 6
    assert budget.read(archive, archive.files[0]) is None
    assert budget.take(4)
    assert report.notes == {TOO_MANY_BYTES: 1}
    budget.reset()
    assert budget.read(archive, archive.files[0]) == b"x" * 6


def test_a_file_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    archive = open_archive(tmp_path)
    (tmp_path / "a").unlink()
    report = ImportReport()
    assert AttachmentBudget(report).read(archive, archive.files[0]) is None
    assert report.notes == {"a file cannot be read: no such file or directory": 1}
