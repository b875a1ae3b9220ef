import json
import zipfile
from pathlib import Path

import pytest
from tests.import_sources import write_zip

from cllm.core.errors import UsageError
from cllm.transfer import archive as archives
from cllm.transfer.archive import open_archive
from cllm.transfer.json_stream import DamagedFileError


def test_a_zip_a_folder_and_a_file_have_the_same_interface(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "b").mkdir(parents=True)
    (folder / "b/c.json").write_text("[1]")
    (folder / "a.json").write_text("[2]")
    archive = write_zip(tmp_path / "a.zip", {"b/c.json": [1], "a.json": [2]})
    for source in (folder, archive):
        opened = open_archive(source)
        assert [(file.name, file.base) for file in opened.files] == [
            ("a.json", "a.json"),
            ("b/c.json", "c.json"),
        ]
        found = opened.find("b/c.json")
        assert found is not None
        assert json.loads(opened.read(found)) == [1]
        opened.close()
    single = open_archive(folder / "a.json")
    assert [single.read(file) for file in single.files] == [b"[2]"]


def test_links_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.json").symlink_to(tmp_path / "secret")
    assert open_archive(folder).files == ()
    link = zipfile.ZipInfo("link.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert open_archive(tmp_path / "a.zip").files == ()


def test_names_outside_the_archive_write_nothing(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    opened = open_archive(write_zip(inner / "a.zip", {"../../evil": b"x", "/abs": b"y"}))
    assert [opened.read(file) for file in opened.files] == [b"x", b"y"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.zip", "inner"]


@pytest.mark.parametrize(
    ("limit", "value", "words"),
    [
        ("MAX_ENTRIES", 1, "more than 1 entries"),
        ("MAX_TOTAL_BYTES", 10, "more than 10 bytes when unpacked"),
        ("MAX_ENTRY_BYTES", 10, "'a' has more than 10 bytes"),
        ("MIN_RATIO_BYTES", 10, "compressed more than 300 times"),
    ],
)
def test_an_archive_has_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, words: str
) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": b"\0" * 1_000_000, "b": b""})
    monkeypatch.setattr(archives, limit, value)
    with pytest.raises(UsageError, match=words):
        open_archive(path)


def test_a_folder_has_a_maximum_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).touch()
    monkeypatch.setattr(archives, "MAX_ENTRIES", 1)
    with pytest.raises(UsageError, match="more than 1 files"):
        open_archive(tmp_path)


def test_a_damaged_archive_is_one_sentence(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": b"x" * 1000})
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\x01\x02")
    data[start : start + 4] = b"nope"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="not a readable ZIP archive"):
        open_archive(path)


def test_an_archive_without_its_end_is_damaged(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": b"x" * 1000})
    path.write_bytes(path.read_bytes()[:40])

    with pytest.raises(UsageError, match=r"not a readable ZIP archive \(it is damaged\)"):
        open_archive(path)


def test_a_damaged_entry_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": bytes(range(256)) * 50})
    data = bytearray(path.read_bytes())
    data[45:80] = b"\xff" * 35
    path.write_bytes(data)
    opened = open_archive(path)
    with pytest.raises(DamagedFileError, match="damaged"):
        opened.read(opened.files[0])


def test_an_encrypted_entry_is_reported(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": b"x"})
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)
    opened = open_archive(path)
    with pytest.raises(DamagedFileError, match="encrypted"):
        opened.read(opened.files[0])


def test_an_attachment_has_a_maximum_size(tmp_path: Path) -> None:
    opened = open_archive(write_zip(tmp_path / "a.zip", {"a": b"x" * 11}))
    with pytest.raises(DamagedFileError, match="more than 10 bytes"):
        opened.read(opened.files[0], limit=10)


def test_a_path_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        open_archive(tmp_path / "missing")
    with pytest.raises(UsageError, match="not a file or folder"):
        open_archive(Path("/dev/null"))
