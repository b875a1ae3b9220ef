"""Regular files, private files and cache files."""

import os
import stat
from pathlib import Path

import pytest

from cllm.files import (
    CacheFolder,
    FileTooLargeError,
    NotRegularFileError,
    is_same_file,
    read_regular_file,
    write_new_file,
)


def test_a_cache_file_is_flushed_to_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("os.fsync", lambda _: calls.append(list(tmp_path.glob("*.json"))))
    cache = CacheFolder(folder=tmp_path, max_files=9, max_bytes=99)

    cache.write("a", b"1")

    assert calls == [[]]
    assert cache.read("a") == b"1"


def test_a_file_is_read_up_to_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")

    assert read_regular_file(path, limit=5) == b"12345"
    with pytest.raises(FileTooLargeError):
        read_regular_file(path, limit=4)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(NotRegularFileError):
        read_regular_file(pipe, limit=5)


def test_a_folder_is_refused_and_not_left_open(tmp_path):
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)

    with pytest.raises(IsADirectoryError):
        read_regular_file(tmp_path, limit=5)

    after = os.open(tmp_path, os.O_RDONLY)
    os.close(after)
    assert after == free


def test_a_link_is_refused_with_nofollow(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")

    assert read_regular_file(link, limit=5) == b"1"
    with pytest.raises(OSError, match="symbolic"):
        read_regular_file(link, limit=5, flags=os.O_NOFOLLOW)


def test_a_new_file_is_private_and_replaces_nothing(tmp_path):
    path = tmp_path / "file"
    write_new_file(path, b"1")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_new_file(path, b"2")
    assert path.read_bytes() == b"1"


class TestCacheFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        return CacheFolder(folder=tmp_path / "cache", max_files=2, max_bytes=10)

    def test_a_missing_entry_is_none(self, folder):
        assert folder.read("a") is None

    def test_an_entry_is_read_back(self, folder):
        folder.write("a", b"1")

        assert folder.read("a") == b"1"
        assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700

    def test_an_entry_above_the_limit_is_not_read(self, folder):
        folder.write("a", b"x" * 11)

        assert folder.read("a") is None

    def test_the_oldest_entries_are_deleted(self, folder):
        for age, key in enumerate(("c", "b", "a")):
            folder.write(key, b"1")
            path = folder._path(key)
            os.utime(path, (1000 + age, 1000 + age))
        folder.write("new", b"1")

        assert [folder.read(key) for key in ("c", "b", "a", "new")] == [None, None, b"1", b"1"]

    def test_clear_returns_the_number_of_complete_files(self, folder):
        folder.write("a", b"1")
        (folder.folder / "half.tmp").write_bytes(b"")

        assert folder.clear() == 1
        assert list(folder.folder.iterdir()) == []

    def test_a_folder_that_cannot_be_written_is_ignored(self, folder):
        folder.folder.write_bytes(b"a file")
        folder.write("a", b"1")

        assert folder.read("a") is None


def test_links_lead_to_the_same_file_and_a_missing_file_is_compared_by_its_path(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"")
    second.write_bytes(b"")
    (tmp_path / "symbolic").symlink_to(first)
    (tmp_path / "hard").hardlink_to(first)
    (tmp_path / "folder").symlink_to(tmp_path)

    for name in ("first", "symbolic", "hard", "folder/first"):
        assert is_same_file(first, Path(name))
        assert not is_same_file(second, Path(name))
    assert is_same_file(tmp_path / "missing", Path("folder/missing"))
    assert not is_same_file(first, tmp_path / "missing")
