from pathlib import Path

import pytest

from cllm.cli.main import run


def test_a_conversation_that_differs_sets_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a/cats.json"
    file.parent.mkdir()
    file.write_text('{"id": "cats", "model": "one", "messages": []}', encoding="utf-8")
    assert run(["backup", "b.zip", "--store", "json:a"]) == 0
    file.write_text('{"id": "cats", "model": "two", "messages": []}', encoding="utf-8")
    assert run(["restore", "b.zip", "--store", "json:a"]) == 1
    assert "cats: another conversation with this ID exists." in capsys.readouterr().err
    assert '"two"' in file.read_text(encoding="utf-8")
