import json
from pathlib import Path

import pytest

from cllm.cli.main import run


def test_the_result_is_json_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/bad.json").write_text("{", encoding="utf-8")
    assert run(["verify", "--json", "--store", "json:a"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["ok"], result["conversations"], len(result["problems"])) == (False, 1, 1)
