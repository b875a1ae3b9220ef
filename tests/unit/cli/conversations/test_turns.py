"""The text of an edited message."""

import io

import pytest

from cllm.cli.conversations.turns import _read_text, _with_model
from cllm.cli.inputs import OptionError
from cllm.settings.load import CommandLine


class Piped:
    """Standard input that is a pipe."""

    closed = False

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)

    def isatty(self) -> bool:
        return False


def test_the_argument_is_the_text(monkeypatch):
    monkeypatch.setattr("sys.stdin", Piped(b"other"))

    assert _read_text("New.", "Old.") == "New."


def test_standard_input_is_the_text(monkeypatch):
    monkeypatch.setattr("sys.stdin", Piped(b"New.\nText.\n"))

    assert _read_text(None, "Old.") == "New.\nText."


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_without_a_text_it_is_an_error(monkeypatch, data):
    monkeypatch.setattr("sys.stdin", Piped(data))

    with pytest.raises(OptionError, match="text is missing"):
        _read_text(None, "Old.")


def test_a_model_is_a_setting_of_the_command_line():
    line = CommandLine(values={"store": "json:a"})

    assert _with_model(line, None) is line
    assert _with_model(line, "a/b").values == {"store": "json:a", "model": "a/b"}
    with pytest.raises(OptionError):
        _with_model(line, "")
