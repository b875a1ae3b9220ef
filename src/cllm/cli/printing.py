"""What reaches the person: answers on standard output, everything else on standard error."""

import os
import sys

import click

from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.repl.plain import CONTROL, TURNING

PREFIXED = ("Configuration error: ", "Context error: ", "Variable error: ")


def prepare_streams() -> None:
    """Make printing any character safe, whatever the encoding, also where a stream is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            setattr(sys, name, nowhere)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def error(text: str) -> None:
    """One line that says what went wrong."""
    line = one_line(text)
    _say(line if line.startswith(PREFIXED) else f"Error: {line}")


def warn(notice: Notice) -> None:
    _say(f"Warning: {one_line(notice.message)}")


def note(text: str) -> None:
    _say(one_line(text))


def shown(text: str) -> str:
    """A text that somebody else wrote, with what a terminal would hide or turn around escaped."""
    line = " ".join(text.splitlines())
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in line
    )


def one_line(text: str) -> str:
    return TURNING.sub("", CONTROL.sub("", " ".join(text.splitlines())))


def _say(line: str) -> None:
    try:
        click.echo(line, err=True)
    except OSError:
        return


class AnswerPrinter:
    """Prints an answer as it comes, and ends it with exactly one line break.

    Line breaks wait until something follows them. Once standard output takes no more it goes on
    in silence, so that the answer can still be kept; `end` then says what was wrong, unless it was
    only that the reader had gone.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._breaks = ""
        self._wrote = False
        self._failure: OSError | None = None

    @property
    def is_silent(self) -> bool:
        """Whether standard output takes no more."""
        return self._failure is not None

    def write(self, text: str) -> None:
        shown = self._breaks + (CONTROL.sub("", text) if self._is_terminal else text)
        said = shown.rstrip("\n")
        self._breaks = shown[len(said) :]
        if said:
            self._put(said)

    def break_line(self) -> None:
        """What comes next, if anything does, begins on a line of its own."""
        if self._wrote and not self._breaks:
            self._breaks = "\n"

    def end(self) -> None:
        if self._wrote:
            self._put("\n")
        if self._failure is not None and not isinstance(self._failure, BrokenPipeError):
            reason = os.strerror(self._failure.errno or 0).lower()
            raise UsageError(f"The answer cannot be written to standard output ({reason}).")

    def _put(self, text: str) -> None:
        if self._failure is not None:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._wrote = True
        except OSError as error:
            abandon_stdout()
            self._failure = error


def abandon_stdout() -> None:
    """Point standard output at nothing, so that closing it at exit does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
