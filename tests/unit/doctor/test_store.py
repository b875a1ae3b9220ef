"""Findings about the folder of conversation files."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cllm.doctor import Finding
from cllm.doctor.store import LEFTOVER_SECONDS, check_store

NOW = datetime.now(UTC)


def check(folder: Path, *, fix: bool = False, now: datetime = NOW) -> dict[str, Finding]:
    return {one.check: one for one in check_store(f"json:{folder}", fix=fix, now=now)}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "conversations"
    path.mkdir(mode=0o700)
    return path


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("memory:", "memory: stores no files."),
        ("postgresql://ann:secret@db/cllm", "postgresql://ann:***@db/cllm is checked by: cllm db"),
    ],
)
def test_a_store_without_files_is_not_checked(url, text):
    (finding,) = check_store(url, fix=False, now=NOW)

    assert finding.message.startswith(text)


def test_the_file_and_the_space_of_a_database_are_checked(tmp_path):
    path = tmp_path / "a.db"
    path.touch()
    database, space = check_store(f"sqlite:{path}?synchronous=normal", fix=False, now=NOW)

    assert (database.level, space.check) == ("ok", "space")
    assert database.message.startswith(f"{path} is readable and writable; it is checked by:")


def test_a_database_that_is_missing_or_a_folder_is_reported(tmp_path):
    (missing,) = check_store(f"sqlite:{tmp_path}/a.db", fix=False, now=NOW)
    (folder,) = check_store(f"sqlite:{tmp_path}", fix=False, now=NOW)

    assert (missing.level, folder.level) == ("ok", "problem")
    assert "does not exist yet" in missing.message
    assert "is not a file" in folder.message


def test_a_database_that_cannot_be_written_is_a_problem(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    path.touch()
    # Root may write everywhere.
    monkeypatch.setattr("os.access", lambda file, _mode: file != path.parent)
    (database,) = check_store(f"sqlite:{path}", fix=False, now=NOW)

    assert database.level == "problem"
    assert "check the permissions" in database.message


@pytest.mark.parametrize("url", ["json:{}", "sqlite:{}/a.db"])
def test_a_store_that_cannot_be_checked_is_a_problem(url, tmp_path):
    (finding,) = check_store(url.format(tmp_path / ("a" * 300)), fix=False, now=NOW)

    assert finding.level == "problem"
    assert finding.message.startswith("cannot check ")
    assert finding.message.endswith("(file name too long).")


def test_a_private_folder_is_ok(folder):
    findings = check(folder)

    assert {one.level for one in findings.values()} == {"ok"}
    assert findings["store"].message == f"{folder} is readable and writable."
    assert findings["leftovers"].message == "no leftover temporary files."


def test_a_missing_folder_is_created_later(tmp_path):
    assert "does not exist yet" in check(tmp_path / "missing")["store"].message


def test_a_file_instead_of_the_folder_is_a_problem(tmp_path):
    (tmp_path / "file").touch()

    assert check(tmp_path / "file")["store"].level == "problem"


def test_files_that_others_can_read_are_a_warning_and_can_be_repaired(folder):
    file = folder / "cats.json"
    file.touch()
    file.chmod(0o644)
    folder.chmod(0o755)

    assert check(folder)["permissions"].message == (
        f"other users can read {folder}, cats.json; repair with: cllm doctor --fix"
    )
    assert check(folder, fix=True)["permissions"].fixed
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_old_temporary_files_are_deleted_with_fix(folder):
    leftover = folder / ".cats.json.tmp"
    leftover.touch(mode=0o600)
    os.utime(leftover, (NOW.timestamp(), NOW.timestamp()))
    later = NOW + timedelta(seconds=LEFTOVER_SECONDS + 60)

    assert check(folder)["leftovers"].level == "ok"
    assert check(folder, now=later)["leftovers"].level == "warning"
    assert check(folder, now=later, fix=True)["leftovers"].fixed
    assert list(folder.iterdir()) == []
