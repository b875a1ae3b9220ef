"""The command table: help flags and usage errors."""

import pytest

from cllm.cli.main import run


@pytest.mark.parametrize("command", [[], ["chat"], ["conversations"], ["conversations", "stats"]])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_with_both_flags(command, flag, capsys):
    assert run([*command, flag]) == 0
    assert capsys.readouterr().out.startswith("Usage: cllm")


def test_a_prompt_that_looks_like_a_flag_gets_a_hint(capsys):
    assert run(["-5 + 3"]) == 2
    assert "cllm -- '-5 + 3'" in capsys.readouterr().err


def test_an_unknown_flag_of_a_command_gets_no_hint_about_prompts(capsys):
    assert run(["conversations", "stats", "--nope"]) == 2
    error = capsys.readouterr().err
    assert "--nope" in error
    assert "cllm --" not in error
