import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import LLM_FOLDER, PIXEL
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.message import Image, Text, ToolResult
from cllm.core.ports import Store
from cllm.core.reply import Usage
from cllm.transfer.archive import open_archive
from cllm.transfer.importers.llm_logs import read_conversations
from cllm.transfer.report import ImportReport
from cllm.wire.convert import parts_of

pytestmark = pytest.mark.asyncio
OLD, NEW = LLM_FOLDER / "llm-0.31.db", LLM_FOLDER / "llm-new.db"


def change(source: Path, target: Path, *statements: tuple[str, tuple[Any, ...]]) -> Path:
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as database, database:
        for statement, values in statements:
            database.execute(statement, values)
    return target


async def test_the_older_tables_are_read(import_file: Import, store: Store) -> None:
    report = await import_file(OLD)
    found = await list_all(store)
    cat = found["My cat is called Luna."]
    assert texts(cat) == ["My cat is called Luna.", "A good name.", "What is she called?", "Luna."]
    assert cat.system is not None
    assert cat.system.text == "You are a vet."
    assert [turn.usage for turn in cat.turns] == [Usage(input=11, output=7)] * 2
    assert [turn.model for turn in cat.turns] == ["served", "served"]
    assert (report.imported, report.messages, report.skipped) == (3, 10, [])
    oslo = found["What is the weather in Oslo?"]
    assert [message.role for turn in oslo.turns for message in turn.messages] == [
        "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert oslo.turns[0].messages[1].json()["tool_calls"][0]["id"] == "call_old"


async def test_fragments_and_attachments_are_part_of_the_prompt(
    import_file: Import, store: Store
) -> None:
    await import_file(OLD)
    pixel = (await list_all(store))["The cat is called Luna. What is…"]
    text, image = pixel.turns[0].messages[0].json()["content"]
    assert text["text"] == "The cat is called Luna.\nWhat is this?"
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


async def test_the_message_store_is_read(import_file: Import, store: Store) -> None:
    report = await import_file(NEW)
    found = await list_all(store)
    assert report.imported == 6
    dog = found["My dog is called Rex."]
    assert texts(dog) == ["My dog is called Rex.", "A strong name.", "What is he called?", "Rex."]
    oslo = found["What is the weather in Oslo tod…"].turns[0]
    assert [message.role for message in oslo.messages] == ["user", "assistant", "tool", "assistant"]
    assert oslo.usage == Usage(input=22, output=14)


async def test_a_conversation_of_both_is_imported_once(import_file: Import, store: Store) -> None:
    await import_file(NEW)
    cat = (await list_all(store))["My cat is called Luna."]
    assert texts(cat)[-2:] == ["And how old is she?", "You did not say."]
    assert [turn.usage for turn in cat.turns] == [Usage(input=11, output=7)] * 3
    assert [turn.started_at for turn in cat.turns] == sorted(turn.started_at for turn in cat.turns)


async def test_a_grown_conversation_is_continued(import_file: Import, store: Store) -> None:
    await import_file(OLD)
    report = await import_file(NEW)
    assert (report.imported, report.continued, report.unchanged) == (3, 1, 2)
    assert len((await list_all(store))["My cat is called Luna."].turns) == 3
    assert (await import_file(NEW)).unchanged == 6


async def test_a_file_on_the_disk_is_read_if_it_is_unchanged(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    image = tmp_path / "pixel.png"
    image.write_bytes(PIXEL)
    assert hashlib.sha256(PIXEL).hexdigest()[:5] == "0eb95"
    statement = "UPDATE attachments SET content = NULL, path = ?"
    report = await import_file(change(OLD, tmp_path / "a.db", (statement, (str(image),))))
    assert report.notes == {}
    image.write_bytes(b"another")
    await store.delete((await list_all(store))["The cat is called Luna. What is…"].id)
    report = await import_file(tmp_path / "a.db")
    assert report.notes == {"a file is not in the database, and not on the disk as it was": 1}
    pixel = (await list_all(store))["The cat is called Luna. What is…"]
    assert texts(pixel)[0].endswith("\n[file: pixel.png]")


async def test_a_url_stays_a_url(import_file: Import, store: Store, tmp_path: Path) -> None:
    statement = "UPDATE attachments SET content = NULL, url = 'https://x.example/a.png'"
    await import_file(change(NEW, tmp_path / "a.db", (statement, ())))
    pixel = (await list_all(store))["The cat is called Luna. What is…"]
    content = pixel.turns[0].messages[0].json()["content"]
    assert content[1]["image_url"] == {"url": "https://x.example/a.png"}


async def test_a_fork_is_a_branch(import_file: Import, store: Store, tmp_path: Path) -> None:
    fork = """INSERT INTO threads (id, name, tip_message_hash, forked_from, datetime_utc)
        SELECT 'forked', 'Fork', m.parent_hash, t.id, t.datetime_utc FROM threads t
        JOIN messages m ON m.hash = t.tip_message_hash WHERE t.name LIKE 'My dog%'"""
    reasoning = """INSERT INTO parts (message_hash, position, type, text)
        SELECT tip_message_hash, 5, 'reasoning', 'Why?' FROM threads WHERE name LIKE 'My dog%'"""
    odd = reasoning.replace("'reasoning'", "'odd'").replace("5", "6")
    path = change(NEW, tmp_path / "a.db", (fork, ()), (reasoning, ()), (odd, ()))
    report = await import_file(path)
    found = await list_all(store)
    dog, forked = found["My dog is called Rex."], found["Fork"]
    assert forked.parent is not None
    assert (forked.parent.conversation, forked.parent.sequence) == (dog.id, 3)
    assert dog.turns[-1].messages[-1].json()["reasoning_content"] == "Why?"
    assert report.notes == {"a part of the type 'odd' was left out": 1}


async def test_a_damaged_database_is_reported(import_file: Import, tmp_path: Path) -> None:
    path = change(NEW, tmp_path / "a.db", ("DROP TABLE parts", ()))
    report = await import_file(path)
    assert report.imported == 2
    (skipped,) = report.skipped
    assert (skipped.path, skipped.damaged) == (str(path), True)
    assert "no such table: parts" in skipped.reason


async def test_a_result_of_a_tool_has_its_attachments(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    payload = '{"tool_call_id": "c", "output": "It\\ud800", "attachments": [{"id": "p"}, {}]}'
    path = change(
        NEW,
        tmp_path / "logs.db",
        ("INSERT INTO attachments VALUES ('p', 'image/png', NULL, NULL, ?)", (PIXEL,)),
        ("UPDATE parts SET payload = ? WHERE type = 'tool_result'", (payload,)),
    )
    await import_file(path)
    messages = [
        m for one in (await list_all(store)).values() for t in one.turns for m in t.messages
    ]
    results = [part for m in messages for part in parts_of(m) if isinstance(part, ToolResult)]
    text, image = next(one.content for one in results if one.call_id == "c")
    assert text == Text(text="It?")
    assert isinstance(image, Image)
    assert image.media_type == "image/png"


async def test_files_outside_of_the_database_can_be_forbidden(store: Store, tmp_path: Path) -> None:
    data = b"secret"
    file = tmp_path / "secret.txt"
    file.write_bytes(data)
    key = hashlib.sha256(data).hexdigest()
    statement = "UPDATE attachments SET content = NULL, path = ?, id = ?"
    path = change(NEW, tmp_path / "logs.db", (statement, (str(file), key)))
    archive, report = open_archive(path), ImportReport()
    archive.can_read_neighbours = False
    nodes = [node for one in read_conversations(archive, report) for node in one.nodes]
    assert not any(b"c2VjcmV0" in message.raw for node in nodes for message in node.messages)


COLUMNS = [
    ("conversations", "name"), ("responses", "model"), ("responses", "prompt"),
    ("responses", "system"), ("responses", "response"), ("responses", "datetime_utc"),
    ("responses", "token_details"), ("tool_calls", "name"), ("tool_calls", "arguments"),
    ("tool_results", "output"), ("fragments", "content"), ("attachments", "type"),
    ("attachments", "content"), ("threads", "name"), ("turns", "model"), ("messages", "role"),
    ("parts", "type"), ("parts", "text"), ("parts", "payload"), ("threads", "tip_message_hash"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column"), COLUMNS)
async def test_columns_can_have_values_of_any_type(
    import_file: Import, tmp_path: Path, table: str, column: str
) -> None:
    for value in (None, 1.5, b"\xff\x00", '{"text_ref": [1, {"fragment": []}]}'):
        path = tmp_path / "logs.db"
        shutil.copy(NEW, path)
        with closing(sqlite3.connect(path)) as database, database:
            triggers = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            for (name,) in triggers.fetchall():
                database.execute(f"DROP TRIGGER {name}")
            try:
                database.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608
            except sqlite3.IntegrityError:
                continue
        report = await import_file(path, "llm", dry_run=True)
        assert report.imported + len(report.skipped) > 0
