"""The files of uploads: names, pieces, locks and interrupted imports."""

from datetime import UTC, datetime, timedelta

import pytest

from cllm.server.http.errors import ApiError
from cllm.server.uploads import (
    INTERRUPTED,
    LIFETIME,
    MAX_FINISHED,
    ImportProgress,
    Upload,
    UploadFolder,
    UploadInfo,
)

NOW = datetime.now(UTC)


@pytest.fixture
def folder(tmp_path):
    return UploadFolder(tmp_path, "sqlite:a.db")


def create(
    folder: UploadFolder,
    upload_id: str = "one",
    *,
    size: int = 4,
    name: str = "a.zip",
    at: datetime = NOW,
) -> Upload:
    info = UploadInfo(id=upload_id, owner="local", name=name, size=size, created_at=at)
    return folder.create(info)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chat export.zip", "chat_export.zip"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("..", "archive"),
        ("x" * 300 + ".jsonl.zst", "x" * 90 + ".jsonl.zst"),
        ("日本\0.json", "_.json"),
    ],
)
def test_a_file_name_is_safe_and_has_its_ending(folder, tmp_path, name, expected):
    upload = create(folder, name=name)
    assert upload.path.name == expected
    assert upload.path.resolve().is_relative_to(tmp_path)
    assert folder.find("one", "local").path == upload.path


def test_stores_have_separate_uploads(folder, tmp_path):
    create(folder)
    with pytest.raises(ApiError, match="No import has this ID"):
        UploadFolder(tmp_path, "sqlite:b.db").find("one", "local")


def test_a_piece_has_to_continue_the_upload(folder):
    upload = create(folder)
    assert upload.append(0, b"ab") == 2
    with pytest.raises(ApiError, match="starts at offset 2"):
        upload.append(3, b"d")
    assert upload.append(2, b"cd") == 4
    assert upload.path.read_bytes() == b"abcd"


def test_two_requests_cannot_use_an_upload_at_once(folder):
    upload = create(folder)
    with upload.lock(), pytest.raises(ApiError, match="Another request"):
        folder.find("one", "local").append(0, b"a")
    assert upload.append(0, b"a") == 1


def test_an_import_whose_process_died_has_failed(folder):
    upload = create(folder)
    with upload.lock():
        upload.write_progress(ImportProgress(conversations=3))
        assert folder.find("one", "local").progress.state == "running"
    progress = folder.find("one", "local").progress
    assert (progress.state, progress.conversations) == ("failed", 3)
    assert progress.error == INTERRUPTED


def test_progress_of_a_deleted_upload_is_not_written(folder, tmp_path):
    upload = create(folder)
    upload.delete()
    upload.write_progress(ImportProgress())
    assert not upload.exists
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(ApiError, match="No import has this ID"):
        upload.append(0, b"a")


def test_the_newest_reports_are_stored(folder):
    for number in range(MAX_FINISHED + 2):
        upload = create(folder, f"n{number}", at=NOW + timedelta(seconds=number))
        upload.write_progress(ImportProgress(state="complete"))
        upload.delete_archive()
        assert upload.received == upload.info.size
    with pytest.raises(ApiError, match="No import has this ID"):
        folder.find("n0", "local")
    assert folder.find(f"n{MAX_FINISHED + 1}", "local").progress.state == "complete"


def test_a_folder_that_a_crash_left_is_deleted_when_it_is_old(folder, tmp_path):
    create(folder)
    for info in tmp_path.rglob("info.json"):
        info.write_bytes(b"")
    with pytest.raises(ApiError, match="No import has this ID"):
        folder.find("one", "local")
    folder.delete_expired(NOW)
    assert list(tmp_path.rglob("info.json"))
    folder.delete_expired(NOW + 2 * LIFETIME)
    assert not list(tmp_path.rglob("info.json"))
