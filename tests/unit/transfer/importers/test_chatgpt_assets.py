import json
from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import PIXEL, write_zip

from cllm.core.message import Document, Image
from cllm.transfer.archive import open_archive
from cllm.transfer.importers import attachment_budget
from cllm.transfer.importers.attachment_budget import TOO_MANY_BYTES
from cllm.transfer.importers.chatgpt_assets import ChatGptAssets
from cllm.transfer.report import ImportReport


def open_assets(path: Path, files: dict[str, Any]) -> tuple[ChatGptAssets, ImportReport]:
    report = ImportReport()
    return ChatGptAssets(open_archive(write_zip(path, files)), report), report


def test_a_file_is_found_by_the_start_of_its_name(tmp_path: Path) -> None:
    files = {"dalle-generations/file-abc-image.webp": PIXEL, "file-abcd.png": b"x"}
    assets, _ = open_assets(tmp_path / "a.zip", files)
    assert isinstance(assets.find("file-service://file-abc"), Image)
    assert isinstance(assets.find("sediment://file-abc#p_0.png"), Image)
    assert assets.find("file-ab") is None
    assert assets.find("sandbox:/") is None


def test_the_name_of_a_file_comes_from_the_indexes(tmp_path: Path) -> None:
    files = {
        "a/file_1.dat": b"one",
        "file_2.dat": b"two",
        "conversation_asset_file_names.json": {"file_1.dat": "folder/one.txt"},
        "library_files.json": [{"file_id": "file_2", "file_name": "two.pdf"}, 7],
    }
    assets, _ = open_assets(tmp_path / "a.zip", files)
    found = [assets.find("file_1"), assets.find("file_2")]
    names = [part.name for part in found if isinstance(part, Document)]
    assert names == ["one.txt", "two.pdf"]


def test_a_damaged_index_is_reported(tmp_path: Path) -> None:
    _, report = open_assets(tmp_path / "a.zip", {"library_files.json": b"{"})
    assert report.notes == {"library_files.json cannot be read": 1}
    assert json.dumps(report.notes)


def test_the_type_of_a_file_comes_from_the_library(tmp_path: Path) -> None:
    library = [{"file_id": "file_1", "file_name": "one", "mime_type": "text/csv"}]
    assets, _ = open_assets(tmp_path / "a.zip", {"file_1.dat": b"1", "library_files.json": library})
    found = assets.find("file_1")
    assert isinstance(found, Document)
    assert (found.media_type, found.name) == ("text/csv", "one")


def test_one_file_in_many_messages_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment_budget, "MAX_CONVERSATION_BYTES", 5)
    assets, report = open_assets(tmp_path / "a.zip", {"file_1.dat": b"one"})
    assert assets.find("file_1") is not None
    assert assets.find("file_1") is None
    assert report.notes == {TOO_MANY_BYTES: 1}
