import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import open_webui_chat
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.ports import Store

pytestmark = pytest.mark.asyncio
COLUMNS = "id, chat_id, role, parent_id, content, output, model_id, files, done, usage, created_at"


def write_database(path: Path, chat: dict[str, Any], *rows: tuple[Any, ...]) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE chat (id, title, chat, created_at, pinned, meta)")
        head = (chat["id"], chat["title"], json.dumps(chat["chat"]), 1767225600, 1)
        database.execute("INSERT INTO chat VALUES (?, ?, ?, ?, ?, ?)", (*head, '{"tags": ["a"]}'))
        database.execute(f"CREATE TABLE chat_message ({COLUMNS})")
        database.executemany("INSERT INTO chat_message VALUES (?,?,?,?,?,?,?,?,?,?,?)", rows)
        database.execute("CREATE TABLE file (id, filename, path, data, meta)")
        data = json.dumps({"content": "Cats purr."})
        database.execute("INSERT INTO file VALUES ('f1', 'cats.txt', '/x', ?, NULL)", (data,))
    return path


async def test_messages_of_the_table_are_read(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    chat = open_webui_chat()
    files = json.dumps([{"type": "file", "id": "f1"}])
    output = [
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "Luna"},
        {"type": "message", "content": [{"type": "output_text", "text": "Luna."}]},
    ]
    rows = (
        ("chat-1-u3", "chat-1", "user", "a3", '"Who?"', None, None, files, 1, None, 1767225610),
        ("chat-1-a4", "chat-1", "assistant", "u3", '""', json.dumps(output), "llama3", None, 1,
         '{"input_tokens": 4, "output_tokens": 2}', 1767225611),
        ("chat-1-a3", "chat-1", "assistant", "u2", '"Later."', "{", None, None, 1, None, 1767225604,
        ),
        ("other-x", "other", "user", None, '"No"', None, None, None, 1, None, 1767225604),
    )  # fmt: skip
    chat["chat"]["history"]["currentId"] = "a4"
    path = write_database(tmp_path / "webui.db", chat, *rows)
    report = await import_file(path)
    found = (await list_all(store))["Greeting"]
    assert texts(found)[3:] == ["Later.", "Who?\n[file: cats.txt]\nCats purr.", "", "Luna", "Luna."]
    assert found.turns[1].state == "complete"
    assert (found.turns[-1].model, found.turns[-1].usage is None) == ("llama3", False)
    assert found.metadata["open-webui"] == {"pinned": True, "tags": ["a"]}
    assert report.skipped == []
    assert (await import_file(path)).unchanged == 1


async def test_a_table_without_its_columns_is_reported(import_file: Import, tmp_path: Path) -> None:
    path = write_database(tmp_path / "webui.db", open_webui_chat())
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE chat_message DROP COLUMN chat_id")
    report = await import_file(path)
    assert report.imported == 0
    assert "the database cannot be read" in report.skipped[0].reason


async def test_an_older_export_has_no_ids(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "chat.json"
    chat = open_webui_chat()["chat"]
    path.write_text(json.dumps(chat), encoding="utf-8")
    assert (await import_file(path)).imported == 1
    chat["history"]["messages"]["u9"] = {
        "parentId": "a3", "role": "user", "content": "Now?", "timestamp": 1767225609,
    }  # fmt: skip
    chat["history"]["currentId"] = "u9"
    path.write_text(json.dumps(chat), encoding="utf-8")
    assert (await import_file(path)).continued == 1
    assert texts((await list_all(store))["Greeting"])[-1] == "Now?"
