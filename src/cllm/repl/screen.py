"""The output of a chat: replies and lists to standard output, the rest to standard error."""

import contextlib
import re
import shutil
import sys
import termios
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from cllm.core.errors import CllmError
from cllm.core.notice import Notice
from cllm.terminal import PlainPrinter, error_line, escape, message_line, write_control

if TYPE_CHECKING:
    from cllm.repl.render import LivePrinter

    Answer = PlainPrinter | LivePrinter

MIN_COLUMNS = 20
CHAT_COMMANDS = {
    re.compile(r"list conversations with: cllm conversations list"): (
        "/list lists the conversations."
    ),
    re.compile(r"(?<![\w-])-m (?!pip )(?=[\w/])"): "/model ",
    re.compile(r"(?<![\w-])with -m(?=[,;. ])"): "with /model",
    re.compile(r"(?<![\w-])--attach(?![\w-])"): "/attach",
    re.compile(r"(?<![\w-])--exec(?![\w-])"): "/context",
}
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


def wrap_line(line: str, columns: int | None, *, indent: str = "") -> list[str]:
    """Wrap between words; a long word is not split."""
    if columns is None:
        return [line]
    cut = textwrap.wrap(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return cut or [line]


def in_chat_words(text: str) -> str:
    """Return the advice of an error with the chat's commands instead of the shell's flags."""
    for flag, command in CHAT_COMMANDS.items():
        text = flag.sub(command, text)
    return text


def replace_surrogates(text: str) -> str:
    """Replace bytes that are not UTF-8 by replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Screen:
    def __init__(
        self, out: TextIO, err: TextIO, *, environment: Mapping[str, str], draws: bool = True
    ) -> None:
        self._out = out
        self._err = err
        usable = environment.get("TERM", "dumb") != "dumb"
        self.is_terminal = out.isatty()
        self._draws = self.is_terminal and usable and draws
        self._dims = err.isatty() and usable and not environment.get("NO_COLOR")
        self._answer: Answer | None = None

    def start_answer(self) -> "Answer":
        if self._draws and self.columns is not None:
            from cllm.repl.render import LivePrinter  # noqa: PLC0415 - rich loads slowly

            self._answer = LivePrinter(self._out)
        else:
            self._answer = PlainPrinter(self._out)
        return self._answer

    def end_answer(self) -> None:
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        answer.end()
        if answer.failure is not None:
            raise answer.failure
        if self._draws:
            self.print_lines([""])

    def print_lines(self, lines: Iterable[str]) -> None:
        self._out.writelines(f"{escape(line)}\n" for line in lines)
        self._out.flush()

    @property
    def columns(self) -> int | None:
        """None if the output is not a terminal, or a narrow one."""
        wide = shutil.get_terminal_size().columns
        return wide if self.is_terminal and wide > MIN_COLUMNS else None

    def note(self, text: str) -> None:
        self._print_to_stderr(message_line(text), dim=self._dims)

    def warn(self, notice: Notice) -> None:
        self._print_to_stderr(f"Warning: {message_line(notice.message)}")

    def error(self, error: CllmError) -> None:
        self._print_to_stderr(error_line(in_chat_words(str(error))))

    def _print_to_stderr(self, line: str, *, dim: bool = False) -> None:
        self.settle_answer()
        text = "\n".join(wrap_line(line, self.columns if self._err.isatty() else None))
        with contextlib.suppress(OSError):
            self._out.flush()
            write_control(self._err, DIM if dim else "")
            self._err.write(text)
            write_control(self._err, PLAIN if dim else "")
            self._err.write("\n")
            self._err.flush()

    def settle_answer(self) -> None:
        """Finish the growing reply, so that other output can follow."""
        if self._answer is not None:
            self._answer.settle()

    @contextlib.contextmanager
    def show_typing(self) -> Iterator[None]:
        """Echo the input of the user during a question."""
        self.settle_answer()
        with echo(on=True):
            yield


@contextlib.contextmanager
def echo(*, on: bool, by_line: bool = True) -> Iterator[None]:
    """Turn the terminal's echo on or off, and line mode, which consumes Ctrl-D."""
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, TypeError, ValueError):
        # Standard input is not a terminal, None or closed.
        yield
        return
    flags = before[3] & ~(termios.ECHO | termios.ICANON)
    flags |= (termios.ECHO if on else 0) | (termios.ICANON if by_line else 0)
    _set_terminal_modes([*before[:3], flags, *before[4:]])
    try:
        yield
    finally:
        _set_terminal_modes(before)


def _set_terminal_modes(modes: list[Any]) -> None:
    with contextlib.suppress(termios.error):
        termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)
