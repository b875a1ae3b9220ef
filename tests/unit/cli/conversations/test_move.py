import pytest

from cllm.cli.main import run


def test_the_conversations_have_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conversations", "move", "--to", "json:x"]) == 2
    assert "Name the conversations to move, or use --all." in capsys.readouterr().err
