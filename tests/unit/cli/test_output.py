"""The lines that commands print."""

import errno
import io
import sys

import click
import pytest

from cllm.cli import output
from cllm.core.errors import UsageError
from cllm.core.notice import Notice


def test_errors_warnings_and_notes_are_one_line_on_standard_error(capsys):
    output.error("It\nfailed.")
    output.error("Configuration error: it failed.")
    output.warn(Notice(code="a", message="Old."))
    output.note("Done\x1b[2J.")

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "Error: It failed.",
        "Configuration error: it failed.",
        "Warning: Old.",
        "Done\\x1b[2J.",
    ]


def test_a_usage_error_has_the_usage_and_one_line(capsys):
    command = click.Command("cllm")
    output.usage_error(click.UsageError("No\nsuch option", click.Context(command)))

    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: ")
    assert lines[-1] == "Error: No such option"


def test_a_line_is_escaped_and_json_is_not(capsys):
    output.print_line("a\tb\x07")
    output.print_exactly('{"a": "\\t"}')

    assert capsys.readouterr().out.splitlines() == ["a b\\x07", '{"a": "\\t"}']


class FailingStream(io.StringIO):
    def __init__(self, number: int, descriptor: int) -> None:
        super().__init__()
        self._number = number
        self._descriptor = descriptor

    def write(self, _text: str) -> int:
        raise OSError(self._number, "failed")

    def fileno(self) -> int:
        return self._descriptor


@pytest.fixture
def fail(monkeypatch, tmp_path):
    """Makes standard output fail with an error number."""
    with (tmp_path / "out").open("wb") as file:
        yield lambda number: monkeypatch.setattr(
            sys, "stdout", FailingStream(number, file.fileno())
        )


class TestAnswerPrinter:
    def test_a_line_break_is_added_only_if_text_follows(self, capsys):
        printer = output.AnswerPrinter()
        printer.write("One.")
        printer.break_line()
        printer.write("Two.")
        printer.break_line()
        printer.end()

        assert capsys.readouterr().out == "One.\nTwo.\n"

    def test_a_failing_output_is_raised_at_the_end(self, fail):
        fail(errno.ENOSPC)
        printer = output.AnswerPrinter()
        printer.write("One.")

        with pytest.raises(UsageError, match="no space left"):
            printer.end()

    def test_a_closed_pipe_is_not_an_error(self, fail):
        fail(errno.EPIPE)
        printer = output.AnswerPrinter()
        printer.write("One.")
        printer.end()

        assert isinstance(printer.failure, BrokenPipeError)
