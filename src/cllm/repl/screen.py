"""What the chat shows: answers and the output of commands on standard output, the rest on stderr.

Everything that is not an answer waits until the growing answer is out of its way.
"""

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from cllm.core.errors import CllmError
from cllm.core.notice import Notice
from cllm.terminal import PlainAnswer, escape, one_line, write_control

if TYPE_CHECKING:
    from cllm.repl.render import LiveAnswer

    Answer = PlainAnswer | LiveAnswer

NARROWEST = 20
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
OTHER_ERRORS = ("Configuration error: ", "Context error: ", "Variable error: ")


def wrapped(line: str, columns: int | None, *, indent: str = "") -> list[str]:
    """The line cut between words for a terminal so wide; what is one word stays whole."""
    if columns is None:
        return [line]
    cut = textwrap.wrap(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return cut or [line]


def whole_text(text: str) -> str:
    """The text with whole characters only: bytes that were none become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Screen:
    """The two streams of this process, and how much they can show."""

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

    def begin_answer(self) -> "Answer":
        """A new answer; it is shown until `end_answer`."""
        wide = shutil.get_terminal_size().columns > NARROWEST
        if self._draws and wide:
            from cllm.repl.render import LiveAnswer  # noqa: PLC0415 - rich loads slowly

            self._answer = LiveAnswer(self._out)
        else:
            self._answer = PlainAnswer(self._out)
        return self._answer

    def end_answer(self) -> None:
        """Finish what is shown; OSError if it could not be."""
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        answer.end()
        if answer.failure is not None:
            raise answer.failure
        if self._draws:
            self.say([""])

    def say(self, lines: Iterable[str]) -> None:
        """What a command has to say."""
        for line in lines:
            self._out.write(f"{escape(line)}\n")
        self._out.flush()

    @property
    def columns(self) -> int | None:
        """How wide lines may be; None where nobody looks at them, or there is no room anyway."""
        wide = shutil.get_terminal_size().columns
        return wide if self.is_terminal and wide > NARROWEST else None

    def note(self, text: str) -> None:
        """Something beside the answer, on a line of its own."""
        self._beside(one_line(text), dim=self._dims)

    def warn(self, notice: Notice) -> None:
        self._beside(f"Warning: {one_line(notice.message)}")

    def error(self, error: CllmError) -> None:
        line = one_line(str(error))
        self._beside(line if line.startswith(OTHER_ERRORS) else f"Error: {line}")

    def _beside(self, line: str, *, dim: bool = False) -> None:
        self.make_way()
        shown = "\n".join(wrapped(line, self.columns if self._err.isatty() else None))
        with contextlib.suppress(OSError):
            self._out.flush()
            write_control(self._err, DIM if dim else "")
            self._err.write(shown)
            write_control(self._err, PLAIN if dim else "")
            self._err.write("\n")
            self._err.flush()

    def make_way(self) -> None:
        """Somebody else is about to write: what is drawn stays above it."""
        if self._answer is not None:
            self._answer.settle()

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """The person is asked something meanwhile, and sees what they type."""
        self.make_way()
        with echo(on=True):
            yield


@contextlib.contextmanager
def echo(*, on: bool, by_line: bool = True) -> Iterator[None]:
    """Whether the terminal shows what is typed, and whether it waits for whole lines.

    While it waits for lines it takes Ctrl-D for itself; else that is there for who reads next.
    """
    before = _terminal_modes()
    if before is None:
        yield
        return
    import termios  # noqa: PLC0415 - where there is a terminal

    flags = _with(_with(before[3], termios.ECHO, on=on), termios.ICANON, on=by_line)
    _set_modes([*before[:3], flags, *before[4:]])
    try:
        yield
    finally:
        _set_modes(before)


def _with(flags: int, flag: int, *, on: bool) -> int:
    return flags | flag if on else flags & ~flag


def _terminal_modes() -> list[Any] | None:
    import termios  # noqa: PLC0415

    if sys.stdin is None or sys.stdin.closed or not os.isatty(sys.stdin.fileno()):
        return None
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except termios.error:
        return None


def _set_modes(modes: list[Any]) -> None:
    import termios  # noqa: PLC0415

    with contextlib.suppress(termios.error):
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)
