"""The prompt and the conversation of `cllm PROMPT`."""

import io
import sys
from typing import Any

import pytest

from cllm.cli.ask import (
    AUTOMATIC,
    _build_prompt_text,
    _command_line,
    _split_prompt_and_ref,
    command,
)
from cllm.cli.inputs import NO_PROMPT, read_piped_text
from cllm.core.errors import InvalidIdError, UsageError


@pytest.mark.parametrize(
    ("prompt", "conversation", "expected"),
    [
        ("Hello", None, ("Hello", None)),
        ("Hello", AUTOMATIC, ("Hello", AUTOMATIC)),
        ("Hello", "cats", ("Hello", "cats")),
        (None, "cats", (None, "cats")),
        (None, "My cat is Luna.", ("My cat is Luna.", AUTOMATIC)),
    ],
)
def test_an_invalid_id_is_the_prompt_if_there_is_none(prompt, conversation, expected):
    assert _split_prompt_and_ref(prompt, conversation) == expected


def test_an_invalid_id_beside_a_prompt_is_an_error():
    with pytest.raises(InvalidIdError):
        _split_prompt_and_ref("Hello", "../cats")


@pytest.fixture
def pipe(monkeypatch):
    def write(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return write


def test_prompt_and_standard_input_are_joined(pipe):
    pipe(b"Luna\n")

    assert _build_prompt_text("Hello", ()) == "Hello\nLuna"


def test_standard_input_that_is_an_attachment_is_not_text(pipe):
    pipe(b"Luna\n")

    assert _build_prompt_text("Hello", ("-",)) == "Hello"


def test_no_text_is_an_error_unless_a_file_is_attached(pipe):
    pipe(b" \n")
    with pytest.raises(UsageError, match=NO_PROMPT):
        _build_prompt_text(None, ())

    pipe(b"")
    assert _build_prompt_text(None, ("a.png",)) == ""


def test_binary_input_is_an_error(pipe):
    pipe(b"a\0b")

    with pytest.raises(UsageError, match="--attach -"):
        read_piped_text()


def parse(*arguments: str) -> dict[str, Any]:
    return command.make_context("cllm", list(arguments)).params


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "nan"], "-t needs a number"),
        (["-m", ""], "-m needs the name of a model"),
        (["--json-schema", "{}", "--json-schema-file", "a"], "not both"),
        (["--var", "=1"], "is not KEY=VALUE"),
    ],
)
def test_an_invalid_option_is_an_error_with_advice(arguments, message):
    with pytest.raises(UsageError, match=message):
        _command_line(parse(*arguments))


def test_options_become_settings():
    line = _command_line(parse("-vvvv", "--raw", "-C", "a.Cllmfile.yml", "--var", "N=3"))

    assert line.values == {"raw_response": True, "verbosity": 3}
    assert (line.config, line.variables) == ("a", {"N": 3})
