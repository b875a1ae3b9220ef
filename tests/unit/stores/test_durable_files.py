import errno
import os
from pathlib import Path

import pytest

from cllm.core.errors import StoreUnavailableError
from cllm.stores.durable_files import file_error, make_folder, read_file, remove_file, write_file


def test_a_written_file_is_complete_without_a_temporary_file(tmp_path: Path):
    write_file(tmp_path, "a.json", b"one")
    write_file(tmp_path, "a.json", b"two")
    assert read_file(tmp_path / "a.json")[0] == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "--conversations-path"),
        (errno.EROFS, "--conversations-path"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_every_error_says_what_to_do(number: int, advice: str):
    error = file_error(OSError(number, os.strerror(number)), Path("f/a.json"), action="write")
    assert str(error).startswith("Cannot write f/a.json: ")
    assert advice in str(error)
    assert error.path == "f/a.json"


def test_an_error_without_errno_is_reported():
    assert "strange" in str(file_error(OSError("strange"), Path("a"), action="read"))


def test_a_write_does_not_create_a_missing_folder(tmp_path: Path):
    with pytest.raises(StoreUnavailableError):
        write_file(tmp_path / "none", "a.json", b"x")
    with pytest.raises(StoreUnavailableError):
        remove_file(tmp_path, "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_the_name_of_the_file_is_not_replaced(tmp_path: Path):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(StoreUnavailableError):
        write_file(tmp_path, "a.json", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_existing_folder_keeps_its_mode(tmp_path: Path):
    (tmp_path / "a").mkdir(mode=0o755)
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755


def test_file_and_folder_are_fsynced_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def watched_fsync(fd: int) -> None:
        seen.append("fsync " + Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    def watched_replace(path: Path, target: Path) -> Path:
        seen.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    write_file(tmp_path, "a.json", b"x")
    assert seen == ["fsync .a.json.tmp", "rename", f"fsync {tmp_path.name}"]
