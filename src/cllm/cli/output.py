"""The only module of the command line that prints.

On a terminal, `cllm.terminal` escapes everything. Elsewhere answers and JSON are printed exactly,
and all other lines are escaped here.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.terminal import (
    PlainPrinter,
    error_line,
    escape,
    escape_stream,
    escape_styled,
    make_visible,
    message_line,
    one_line,
    write_control,
)

BOLD, DIM, RED, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
# In characters: the layout of a longer text takes seconds.
MAX_MARKDOWN = 60_000


def prepare_streams() -> None:
    """Make printing safe: on a terminal, in any encoding, on a closed stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
        setattr(sys, name, escape_stream(stream))


def is_on_terminal() -> bool:
    """Whether a person reads both streams, and no pipe or file."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def terminal_columns() -> int | None:
    """Return the width of the terminal; None if standard output is not a terminal."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def has_styles() -> bool:
    """Whether standard output shows colours."""
    environment = os.environ
    is_usable = environment.get("TERM", "dumb") != "dumb" and not environment.get("NO_COLOR")
    return sys.stdout.isatty() and is_usable


def style(text: str, code: str) -> str:
    """Style a part of a line for `print_styled`."""
    return f"{code}{one_line(text)}{PLAIN}" if has_styles() else one_line(text)


def print_styled(line: str) -> None:
    """Print a line whose parts passed `style` or `one_line`."""
    write_control(sys.stdout, f"{escape_styled(line)}\n")


def print_markdown(text: str) -> None:
    """Print a text: rendered on a terminal, unchanged elsewhere."""
    columns = terminal_columns()
    if columns is None or os.environ.get("TERM", "dumb") == "dumb" or len(text) > MAX_MARKDOWN:
        printer = AnswerPrinter()
        printer.write(text)
        printer.end()
        return
    from cllm.repl.render import markdown_lines

    for line in markdown_lines(escape(text), columns - 1):
        print_styled(line)


def print_json(value: Any) -> None:
    """Print a value as indented JSON; times are in ISO 8601."""
    import msgspec

    print_exactly(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def error(text: str) -> None:
    _print_to_stderr(error_line(text))


def usage_error(error: click.ClickException) -> None:
    buffer = io.StringIO()
    error.show(buffer)
    usage, prefix, message = buffer.getvalue().partition("Error: ")
    _print_to_stderr(escape(usage) + message_line(prefix + message))


def warn(notice: Notice) -> None:
    _print_to_stderr(f"Warning: {message_line(notice.message)}")


def note(text: str) -> None:
    _print_to_stderr(message_line(text))


def print_line(text: str) -> None:
    print_exactly(one_line(text))


def print_lines(lines: Iterable[str]) -> None:
    """Print many lines at once, each of which passed `one_line`."""
    text = "\n".join(lines)
    if text:
        print_exactly(text)


def print_visibly(text: str) -> None:
    """Print a line with every hidden character visible, for decisions."""
    print_exactly(make_visible(text))


def print_exactly(text: str, *, err: bool = False) -> None:
    """Print text for programs, such as JSON."""
    click.echo(text, err=err)  # noqa: TID251 - the only call


def _print_to_stderr(line: str) -> None:
    with contextlib.suppress(OSError):
        print_exactly(line, err=True)


class AnswerPrinter(PlainPrinter):
    """Prints a reply. After a failure it prints nothing, so that the reply is still saved.

    `end` raises the error, unless the reader closed the pipe.
    """

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def break_line(self) -> None:
        """Start a new line if anything follows."""
        if self._open and not self._breaks:
            self._breaks = "\n"

    def end(self) -> None:
        self.settle()
        if self.failure is not None and not isinstance(self.failure, BrokenPipeError):
            reason = os.strerror(self.failure.errno or 0).lower()
            raise UsageError(
                f"Cannot write the reply to standard output ({reason}); "
                "redirect it to another file."
            )

    def _put(self, text: str) -> None:
        failed = self.failure is not None
        super()._put(text)
        if self.failure is not None and not failed:
            redirect_stdout_to_null()


def redirect_stdout_to_null() -> None:
    """Redirect to /dev/null, so that closing standard output at exit does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
