"""What the command line says about flags that it does not know, and about itself."""

import pytest

from cllm.cli.main import run


@pytest.mark.parametrize("command", [[], ["chat"], ["conversations"], ["conversations", "stats"]])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_explains_itself_by_either_flag(command, flag, capsys):
    assert run([*command, flag]) == 0
    assert capsys.readouterr().out.startswith("Usage: cllm")


def test_a_prompt_that_looks_like_a_flag_is_told_how_to_be_one(capsys):
    assert run(["-5 + 3"]) == 2
    assert "cllm -- '-5 + 3'" in capsys.readouterr().err


def test_a_command_with_a_flag_that_it_does_not_know_is_not_taken_for_a_prompt(capsys):
    assert run(["conversations", "stats", "--nope"]) == 2
    told = capsys.readouterr().err
    assert "--nope" in told
    assert "A prompt that begins" not in told
