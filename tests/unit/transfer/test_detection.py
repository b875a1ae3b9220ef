import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.import_sources import (
    LLM_FOLDER,
    chatgpt_cats,
    claude_birds,
    write_chatgpt,
    write_claude,
    write_zip,
)

from cllm.core.errors import UsageError
from cllm.transfer import detection
from cllm.transfer.archive import open_archive
from cllm.transfer.detection import FORMATS, detect_format, open_source

CLAUDE_CODE = {"type": "user", "sessionId": "s", "uuid": "u", "message": {}}
CODEX = {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "x"}}
OPEN_WEBUI = {"id": "a", "title": "T", "chat": {"history": {"messages": {}}}}
CLLM: dict[str, Any] = {"id": "cats", "model": None, "messages": [], "metadata": {}}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ([chatgpt_cats()], "chatgpt"),
        ({"conversations": [chatgpt_cats()]}, "chatgpt"),
        ([claude_birds()], "claude-ai"),
        ([OPEN_WEBUI], "open-webui"),
        (OPEN_WEBUI["chat"], "open-webui"),
        (CLLM, "cllm"),
        ({"format": "cllm-backup"}, "cllm"),
        ([{"a": 1}], None),
        ([], None),
        ("text", None),
    ],
)
def test_json_is_recognised_by_its_fields(tmp_path: Path, value: Any, name: str | None) -> None:
    path = tmp_path / "download"
    path.write_text(json.dumps(value), encoding="utf-8")
    assert detect_format(open_archive(path)) == name


@pytest.mark.parametrize(
    ("line", "name"),
    [(CLAUDE_CODE, "claude-code"), (CODEX, "codex"), (CLLM, "cllm"), ({"a": 1}, None)],
)
def test_lines_are_recognised_by_their_fields(
    tmp_path: Path, line: dict[str, Any], name: str | None
) -> None:
    folder = tmp_path / "projects/a"
    folder.mkdir(parents=True)
    (folder / "broken.jsonl").write_text("{", encoding="utf-8")
    (folder / "x.jsonl").write_text('{"type": "summary"}\n' + json.dumps(line), encoding="utf-8")
    assert detect_format(open_archive(tmp_path)) == name


def test_archives_and_databases_are_recognised(tmp_path: Path) -> None:
    assert detect_format(open_archive(write_chatgpt(tmp_path / "a.zip"))) == "chatgpt"
    assert detect_format(open_archive(write_claude(tmp_path / "b.zip"))) == "claude-ai"
    assert detect_format(open_archive(LLM_FOLDER / "llm-new.db")) == "llm"
    (tmp_path / "rollout-1.jsonl.zst").write_bytes(b"")
    assert detect_format(open_archive(tmp_path / "rollout-1.jsonl.zst")) == "codex"


@pytest.mark.parametrize(
    ("tables", "name"),
    [(("chat",), "open-webui"), (("conversations", "turns", "leases"), "cllm"), (("a",), None)],
)
def test_a_database_is_recognised_by_its_tables(
    tmp_path: Path, tables: tuple[str, ...], name: str | None
) -> None:
    with closing(sqlite3.connect(tmp_path / "x")) as database, database:
        for table in tables:
            database.execute(f"CREATE TABLE {table} (a)")
    assert detect_format(open_archive(tmp_path / "x")) == name
    (tmp_path / "y").write_bytes(b"SQLite format 3\0" + b"x" * 100)
    assert detect_format(open_archive(tmp_path / "y")) is None


def test_an_unknown_format_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a.json": [1]})
    with pytest.raises(UsageError, match="name it with --from"):
        open_source(path, None)


def test_the_name_of_a_format_wins(tmp_path: Path) -> None:
    chosen, archive, read = open_source(write_chatgpt(tmp_path / "a.zip"), "claude-ai")
    archive.close()
    assert chosen == "claude-ai"
    assert read.__module__ == f"{detection.IMPORTERS}.{FORMATS['claude-ai']}"


def test_few_files_of_a_folder_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "MAX_PEEKS", 2)
    for name in "abc":
        (tmp_path / f"{name}.json").write_text("[]", encoding="utf-8")
    (tmp_path / "z.json").write_text(json.dumps([chatgpt_cats()]), encoding="utf-8")
    assert detect_format(open_archive(tmp_path)) is None
