import zipfile
from pathlib import Path

import pytest

from cllm.cli.main import run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".cllm/conversations"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text('{"id": "a", "messages": []}', encoding="utf-8")
    return tmp_path


def test_a_backup_is_one_private_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", "good.zip"]) == 0
    assert zipfile.is_zipfile(home / "good.zip")
    assert (home / "good.zip").stat().st_mode & 0o777 == 0o600
    folder = home / ".cllm/conversations"
    result = f"Saved 1 conversation with 0 messages from {folder} to good.zip.\n"
    assert capsys.readouterr().out == result


def test_unreadable_conversations_set_the_exit_code(home: Path) -> None:
    (home / ".cllm/conversations/bad.json").write_text("{", encoding="utf-8")
    assert run(["backup", "good.zip"]) == 1
    assert zipfile.is_zipfile(home / "good.zip")
    assert run(["backup", "good.zip"]) == 1
    assert run(["restore", "good.zip", "--store", "json:other"]) == 0
    assert run(["restore", "good.zip", "--store", "json:other"]) == 0
    assert [path.name for path in (home / "other").glob("*.json")] == ["a.json"]
    assert run(["verify"]) == 1
    assert run(["verify", "--store", "json:other"]) == 0
