"""Access to an index that is damaged, locked or in a folder that cannot be written."""

import sqlite3
from pathlib import Path

import pytest

from cllm.stores.json.file_index import IndexAccess, UnusableIndexError, find_index_path
from cllm.stores.json.path_index import PathIndex


def test_the_path_is_that_of_the_real_folder(tmp_path: Path):
    folder, link = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    link.symlink_to(folder)

    paths = {find_index_path(tmp_path, "search", each) for each in (folder, link, tmp_path / "c")}

    assert len(paths) == 2
    assert {path.parent for path in paths} == {tmp_path / "search"}


def test_a_damaged_index_is_built_again(tmp_path: Path):
    path = tmp_path / "index.sqlite3"
    path.write_bytes(b"no database " * 100)
    access = IndexAccess(path, PathIndex)

    assert access.use(lambda index: index.refresh({}, lambda _key: None)) == set()
    access.close()
    assert path.read_bytes().startswith(b"SQLite format 3")


def test_an_index_that_cannot_be_created_is_unusable(tmp_path: Path):
    path = tmp_path / "file" / "index.sqlite3"
    path.parent.write_text("A file is in the way.", encoding="utf-8")
    access = IndexAccess(path, PathIndex)

    for _ in range(2):
        with pytest.raises(UnusableIndexError):
            access.use(lambda _index: None)


def test_damage_that_a_new_file_does_not_repair_makes_it_unusable(tmp_path: Path):
    calls = []

    def fail(_index: PathIndex) -> None:
        calls.append(1)
        raise sqlite3.DatabaseError

    with pytest.raises(UnusableIndexError):
        IndexAccess(tmp_path / "index.sqlite3", PathIndex).use(fail)
    assert len(calls) == 2
