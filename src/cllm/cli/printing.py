"""What reaches the person: answers on standard output, everything else on standard error."""

import os
import re
import sys

import click

from cllm.core.notice import Notice

PREFIXED = ("Configuration error: ", "Context error: ", "Variable error: ")
# Control characters of a model's answer could move the cursor, set the title or answer for the
# person; on a terminal only line breaks and tabs are let through.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def prepare_streams() -> None:
    """Make printing any character safe, whatever the terminal's encoding."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def error(text: str) -> None:
    """One line that says what went wrong."""
    line = one_line(text)
    _say(line if line.startswith(PREFIXED) else f"Error: {line}")


def warn(notice: Notice) -> None:
    _say(f"Warning: {one_line(notice.message)}")


def note(text: str) -> None:
    _say(one_line(text))


def one_line(text: str) -> str:
    return CONTROL.sub("", " ".join(text.splitlines()))


def _say(line: str) -> None:
    try:
        click.echo(line, err=True)
    except OSError:
        return


class AnswerPrinter:
    """Prints an answer as it comes, and ends it with exactly one line break.

    Once nobody reads standard output any more it goes on in silence, so that the answer can still
    be kept.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._last = "\n"
        self.reader_is_gone = False

    def write(self, text: str) -> None:
        if self.reader_is_gone or not text:
            return
        shown = CONTROL.sub("", text) if self._is_terminal else text
        try:
            sys.stdout.write(shown)
            sys.stdout.flush()
        except BrokenPipeError:
            abandon_stdout()
            self.reader_is_gone = True
        self._last = shown[-1:] or self._last

    def end(self) -> None:
        if self._last != "\n":
            self.write("\n")


def abandon_stdout() -> None:
    """Point standard output at nothing, so that closing it at exit does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
