"""What reaches the person: answers on standard output, everything else on standard error.

The one place of the command line that writes. On a terminal everything is escaped by its stream
(`cllm.terminal`); elsewhere answers and JSON are exact, and every other line is escaped too.
"""

import contextlib
import io
import os
import sys

import click

from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.terminal import PlainAnswer, escape, make_visible, one_line, protect

PREFIXED = ("Configuration error: ", "Context error: ", "Variable error: ")


def prepare_streams() -> None:
    """Make printing any character safe: on a terminal, in any encoding, on a closed stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            setattr(sys, name, nowhere)
        else:
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
            setattr(sys, name, protect(stream))


def error(text: str) -> None:
    """One line that says what went wrong."""
    line = one_line(text)
    _say(line if line.startswith(PREFIXED) else f"Error: {line}")


def usage_error(error: click.ClickException) -> None:
    """Show what click says of a command line that it cannot read: usage, then the error."""
    written = io.StringIO()
    error.show(written)
    usage, prefix, message = written.getvalue().partition("Error: ")
    _say(escape(usage) + one_line(prefix + message))


def warn(notice: Notice) -> None:
    _say(f"Warning: {one_line(notice.message)}")


def note(text: str) -> None:
    _say(one_line(text))


def print_line(text: str) -> None:
    """Print a line of output other than an answer: names, titles, settings, results."""
    _write_line(one_line(text))


def print_visibly(text: str) -> None:
    """Print a line in which nothing is hidden: what a person is about to decide on."""
    _write_line(make_visible(text))


def print_exactly(text: str) -> None:
    """Print text that programs read, such as JSON; exact unless the output is a terminal."""
    _write_line(text)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        _write_line(line, err=True)


def _write_line(line: str, *, err: bool = False) -> None:
    click.echo(line, err=err)  # noqa: TID251 - the one place


class AnswerPrinter(PlainAnswer):
    """Prints an answer on standard output.

    Once standard output fails it continues in silence, so that the answer can still be stored;
    `end` then raises the error, unless the reader only closed the pipe.
    """

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def break_line(self) -> None:
        """What follows, if anything does, starts on a new line."""
        if self._open and not self._breaks:
            self._breaks = "\n"

    def end(self) -> None:
        self.settle()
        if self.failure is not None and not isinstance(self.failure, BrokenPipeError):
            reason = os.strerror(self.failure.errno or 0).lower()
            raise UsageError(f"The answer cannot be written to standard output ({reason}).")

    def _put(self, text: str) -> None:
        failed = self.failure is not None
        super()._put(text)
        if self.failure is not None and not failed:
            abandon_stdout()


def abandon_stdout() -> None:
    """Point standard output at nothing, so that closing it at exit does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
