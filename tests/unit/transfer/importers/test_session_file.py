import sys
from pathlib import Path

import pytest

from cllm.transfer.archive import open_archive
from cllm.transfer.importers import session_file, zstd_stream
from cllm.transfer.importers.session_file import read_records
from cllm.transfer.report import ImportReport


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n{"b\n[]\n{"c": 2}\n')
    archive, report = open_archive(tmp_path), ImportReport()
    assert read_records(archive, archive.files[0], report) == [{"a": 1}, {"c": 2}]
    assert [one.reason for one in report.skipped] == ["2 damaged lines were left out"]


def test_a_file_that_is_too_large_has_no_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_file, "MAX_OBJECT_BYTES", 10)
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n' * 2)
    archive, report = open_archive(tmp_path), ImportReport()
    assert read_records(archive, archive.files[0], report) == []
    assert [one.reason for one in report.skipped] == ["it has more than 10 bytes"]


def test_a_compressed_file_without_a_module_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in zstd_stream.OPENERS:
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "rollout-x.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    archive, report = open_archive(tmp_path), ImportReport()
    assert read_records(archive, archive.files[0], report) == []
    assert "zstandard" in report.skipped[0].reason


def test_an_empty_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    archive, report = open_archive(tmp_path), ImportReport()
    assert read_records(archive, archive.files[0], report) == []
    assert [one.reason for one in report.skipped] == ["it has no messages"]
