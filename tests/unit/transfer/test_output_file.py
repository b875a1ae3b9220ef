import os
from pathlib import Path

import pytest

from cllm.core.errors import UsageError
from cllm.transfer.output_file import make_output_folder, write_atomically


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with write_atomically(path) as file:
        file.write(b"x")
        assert not path.exists()
    assert path.read_bytes() == b"x"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), write_atomically(tmp_path / "a"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="--force"), write_atomically(path):
        pass
    with write_atomically(path, force=True) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(UsageError, match="exists"), write_atomically(path):
        path.write_bytes(b"other")
    assert path.read_bytes() == b"other"


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a folder"), write_atomically(tmp_path):
        pass
    with pytest.raises(UsageError, match="Cannot write"), write_atomically(tmp_path / "no/a"):
        pass
    with pytest.raises(UsageError, match="Cannot write"):
        make_output_folder(tmp_path / "file")


def test_a_special_file_is_never_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(UsageError, match="a pipe"), write_atomically(path, force=True):
            pass
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_link_is_replaced_by_the_file_and_its_target_does_not_change(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with write_atomically(link, force=True) as file:
        file.write(b"new")
    assert (target.read_bytes(), link.read_bytes()) == (b"old", b"new")
