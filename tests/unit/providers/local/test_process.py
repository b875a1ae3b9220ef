"""What a child is given, and how its end is explained."""

import sys
from pathlib import Path

import msgspec
import pytest

from cllm.core.errors import LocalModelError
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.providers.local.process import (
    ModelProcessSettings,
    _child_environment,
    _reason_in,
    launch,
)
from cllm.providers.local.provider import limit_reply

PROMPT = Prompt(model="m", messages=(plain_message("user", "Hello"),))


def test_a_child_gets_no_keys():
    environ = {"PATH": "/bin", "OPENAI_API_KEY": "x", "HF_TOKEN": "x", "LC_ALL": "C"}
    assert _child_environment(environ) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "GOMP_SPINCOUNT": "2000",
    }


def test_the_persons_own_spin_count_wins():
    assert _child_environment({"GOMP_SPINCOUNT": "5"})["GOMP_SPINCOUNT"] == "5"


def test_a_child_that_cannot_be_started_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    settings = ModelProcessSettings(name="a", model=tmp_path, slots=tmp_path)
    with pytest.raises(LocalModelError, match="cannot be started"):
        launch(settings, {})


def test_the_settings_are_one_line_with_the_key():
    settings = ModelProcessSettings(name="a\nb", model=Path("/m.gguf"), slots=Path("/slots"))
    line = settings.line("secret")
    assert line.count(b"\n") == 1
    read = msgspec.json.decode(line)
    assert (read["name"], read["model"], read["key"]) == ("a\nb", "/m.gguf", "secret")


def test_the_first_error_is_the_reason():
    tail = "0.1 E gguf: bad version: 0\n0.2 E load failed\nRuntimeError: see above.\n"
    assert _reason_in(tail) == "gguf: bad version: 0"


def test_without_an_error_line_the_last_line_is_the_reason():
    assert _reason_in("Traceback\nMemoryError: no room.\n\n") == "MemoryError: no room"
    assert _reason_in("") == "it gave no reason"


def test_a_reply_has_a_bound_though_nobody_set_one():
    assert limit_reply(PROMPT).parameters == {"max_tokens": 512}


def test_what_the_caller_set_stays():
    given = {"temperature": 1, "max_tokens": 5}
    prompt = msgspec.structs.replace(PROMPT, parameters=given)
    assert limit_reply(prompt).parameters == given


def test_a_bound_under_its_newer_name_is_a_bound():
    prompt = msgspec.structs.replace(PROMPT, parameters={"max_completion_tokens": 5})
    assert limit_reply(prompt).parameters == {"max_completion_tokens": 5}
