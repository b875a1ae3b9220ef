"""The settings and environment of the child process, and the reason of its exit."""

import sys
from pathlib import Path

import msgspec
import pytest

from cllm.core.errors import LocalModelError
from cllm.providers.local.process import (
    ModelProcessSettings,
    _child_environment,
    _find_reason,
    launch,
)


def test_a_child_gets_no_keys():
    environ = {"PATH": "/bin", "OPENAI_API_KEY": "x", "HF_TOKEN": "x", "LC_ALL": "C"}
    assert _child_environment(environ) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "GOMP_SPINCOUNT": "2000",
    }


def test_a_spin_count_in_the_environment_is_used():
    assert _child_environment({"GOMP_SPINCOUNT": "5"})["GOMP_SPINCOUNT"] == "5"


def test_a_failed_start_raises_a_local_model_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    settings = ModelProcessSettings(name="a", model=tmp_path, slots=tmp_path)
    with pytest.raises(LocalModelError, match="Cannot start"):
        launch(settings, {})


def test_the_settings_are_one_line_with_the_key():
    settings = ModelProcessSettings(name="a\nb", model=Path("/m.gguf"), slots=Path("/slots"))
    line = settings.encode_line("secret")
    assert line.count(b"\n") == 1
    read = msgspec.json.decode(line)
    assert (read["name"], read["model"], read["key"]) == ("a\nb", "/m.gguf", "secret")


def test_the_reason_is_the_first_error_line():
    tail = "0.1 E gguf: bad version: 0\n0.2 E load failed\nRuntimeError: see above.\n"
    assert _find_reason(tail) == "gguf: bad version: 0"


def test_without_an_error_line_the_reason_is_the_last_line():
    assert _find_reason("Traceback\nMemoryError: no room.\n\n") == "MemoryError: no room"
    assert _find_reason("") == "no reason reported"
