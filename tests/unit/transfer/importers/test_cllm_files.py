import json
from pathlib import Path

import pytest
from tests.import_sources import write_chatgpt, write_zip
from tests.unit.transfer.conftest import Import, list_all

from cllm.app import now
from cllm.core.conversation import Branch, StoredConversation
from cllm.core.ports import Store
from cllm.transfer.archive import open_archive
from cllm.transfer.export_formats import encode_line
from cllm.transfer.importers.cllm_files import decode_file, read_conversations
from cllm.transfer.report import ImportReport
from cllm.wire.conversation_file.codec import encode_conversation

pytestmark = pytest.mark.asyncio


async def test_files_lines_and_archives_are_read(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_chatgpt(tmp_path / "a.zip"))
    conversations = list((await list_all(store)).values())
    folder = tmp_path / "folder"
    (folder / ".locks").mkdir(parents=True)
    (folder / ".locks/x.json").write_text("{}", encoding="utf-8")
    for one in conversations:
        (folder / f"{one.id}.json").write_bytes(encode_conversation(one))
    lines = tmp_path / "all.jsonl"
    lines.write_bytes(b"".join(map(encode_line, conversations)))
    files = {f"conversations/{one.id}.json": encode_conversation(one) for one in conversations}
    archive = write_zip(tmp_path / "b.zip", {**files, "manifest.json": {"format": "cllm-backup"}})
    single = folder / f"{conversations[0].id}.json"
    for source, count in ((folder, 3), (lines, 3), (archive, 3), (single, 1)):
        report = await import_file(source)
        assert (report.unchanged, report.skipped) == (count, [])


async def test_the_oldest_conversation_is_first(tmp_path: Path) -> None:
    for name, year in (("b", 2024), ("a", 2025), ("c", 2023)):
        value = {"id": name, "messages": [], "created_at": f"{year}-01-01T00:00:00Z"}
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    (tmp_path / "readme.txt").write_text("x", encoding="utf-8")
    found = read_conversations(open_archive(tmp_path), ImportReport())
    assert [one.id for one in found] == ["c", "b", "a"]


async def test_damage_is_reported_and_the_rest_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{", encoding="utf-8")
    (tmp_path / "b.json").write_text('{"id": "b"}', encoding="utf-8")
    good = json.dumps({"id": "c", "messages": []})
    (tmp_path / "d.jsonl").write_text(f"{{\n{good}\n", encoding="utf-8")
    report = ImportReport()
    found = list(read_conversations(open_archive(tmp_path), report))
    assert [one.id for one in found] == ["c"]
    assert [(one.path, one.reason) for one in report.skipped] == [
        ("a.json", "it is not valid JSON"),
        ("b.json", "it has no messages"),
        ("d.jsonl", "line 1: it is not valid JSON"),
    ]


async def test_every_field_of_a_file_is_read() -> None:
    moment = now()
    conversation = StoredConversation(
        id="c-1",
        name="cats",
        created_at=moment,
        updated_at=moment,
        archived_at=moment,
        parent=Branch(conversation="c-0", sequence=2),
        family="c-0",
        source="codex",
        is_side=True,
        path_start=b"\x01",
    )
    assert decode_file(encode_conversation(conversation)) == conversation
