"""The lines and the exit code of `cllm doctor`."""

import json
from collections.abc import Callable

import pytest

from cllm.cli.main import run


@pytest.fixture
def doctor(monkeypatch, tmp_path, capsys) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def check(*flags: str, settings: str = "") -> tuple[int, str]:
        (tmp_path / ".cllm").mkdir(exist_ok=True)
        (tmp_path / ".cllm/Cllmfile.yml").write_text(settings, encoding="utf-8")
        code = run(["doctor", *flags])
        return code, str(capsys.readouterr().out)

    return check


def test_each_line_has_a_level_and_a_check(doctor):
    code, out = doctor(settings="model: local/smollm2-135m")

    assert code == 0
    assert all(line.split()[0] in ("ok", "warning") for line in out.splitlines())
    assert "model: local/smollm2-135m uses the provider 'local'." in out


def test_a_problem_is_exit_code_1_and_ends_the_checks(doctor):
    code, out = doctor(settings="stream: often")

    assert code == 1
    assert out.splitlines()[-1].startswith("problem  settings: ")


def test_json_has_the_same_findings(doctor):
    code, out = doctor("--json", settings="- a")
    report = json.loads(out)

    assert (code, report["ok"]) == (1, False)
    assert "problem" in [finding["level"] for finding in report["findings"]]
