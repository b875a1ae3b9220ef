import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.import_sources import open_webui_chat
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.core.ports import Store
from cllm.core.reply import Usage

pytestmark = pytest.mark.asyncio


async def test_an_export_is_read(import_file: Import, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([open_webui_chat(), {"chat": {"title": "x"}}]), encoding="utf-8")
    report = await import_file(path)
    chat = (await list_all(store))["Greeting"]
    assert texts(chat) == ["Hello\n[file: a]", "Hi", "More", "It failed."]
    assert [turn.state for turn in chat.turns] == ["complete", "incomplete"]
    assert chat.turns[0].messages[1].json()["reasoning_content"] == "> Hm"
    assert chat.turns[0].messages[0].json()["content"][1]["type"] == "image_url"
    assert (chat.turns[0].model, chat.turns[0].usage) == ("llama3", Usage(input=3, output=2))
    (variant,) = chat.variants
    assert (variant.messages[-1].text, variant.model) == ("Hey", "qwen3")
    assert chat.system is not None
    assert chat.system.text == "Be kind."
    assert chat.archived_at is not None
    assert [one.reason for one in report.skipped] == ["it has no ID"]
    assert (await import_file(path)).unchanged == 1


async def test_the_database_has_the_same_chats(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    chat = open_webui_chat()
    path = tmp_path / "webui.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE chat (id, title, chat, created_at, updated_at, archived)")
        row = (chat["id"], chat["title"], json.dumps(chat["chat"]), 1767225600, 1767225700, 1)
        database.execute("INSERT INTO chat VALUES (?, ?, ?, ?, ?, ?)", row)
        database.execute("INSERT INTO chat VALUES ('bad', 'Bad', '{', 1, 1, 0)")
    report = await import_file(path)
    assert (report.imported, [one.id for one in report.skipped]) == (1, ["bad"])
    export = tmp_path / "chats.json"
    export.write_text(json.dumps([chat]), encoding="utf-8")
    assert (await import_file(export)).unchanged == 1


async def test_a_damaged_export_is_reported(import_file: Import, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(f'[{json.dumps(open_webui_chat())}, {{"a": nope}}, {{', encoding="utf-8")
    report = await import_file(path)
    assert (report.imported, [one.damaged for one in report.skipped]) == (1, [True, True])
