"""Yes/no questions on the terminal, also where standard input is a pipe."""

import asyncio
import contextlib
import os
import select
import sys
import threading
from collections.abc import Awaitable, Callable

from cllm.cli import output
from cllm.cli.inputs import OptionError
from cllm.terminal import escape, fits_on_screen, make_visible, one_line

TERMINAL = "/dev/tty"
YES = ("y", "yes")
POLL_SECONDS = 0.1
MAX_ANSWER_BYTES = 100
MAX_REASON = 300
LINE_FEED = " ⏎ "

TOO_LONG = (
    "The model requested a command that does not fit on this terminal. The command was not run.\n"
)


def terminal_confirm() -> Callable[[str, str], Awaitable[bool]] | None:
    """Return a function that asks the user to confirm a command; None without a terminal."""
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None

    async def confirm(command: str, reason: str) -> bool:
        question = confirmation_question(command, reason)
        if not fits_on_screen(question):
            with contextlib.suppress(OSError), open(TERMINAL, "wb", buffering=0) as terminal:  # noqa: ASYNC230, PTH123
                terminal.write(TOO_LONG.encode())
            return False
        stop_event = threading.Event()
        try:
            return await asyncio.to_thread(ask_on_terminal, question, stop_event)
        finally:
            # A waiting thread would prevent the process from exiting.
            stop_event.set()

    return confirm


def confirm_change(question: str, *, yes: bool) -> bool:
    """Whether to make a change that cannot be undone; OptionError without a terminal and --yes."""
    if yes:
        return True
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise OptionError(f"{question} This cannot be undone; to confirm it, add --yes.")
    if ask_on_terminal(f"{one_line(question)} This cannot be undone. [y/N] "):
        return True
    output.note("Nothing was changed.")
    return False


def confirmation_question(command: str, reason: str) -> str:
    """Return the question, in which hidden characters of the model's text are visible."""
    visible = LINE_FEED.join(map(make_visible, command.strip().split("\n")))
    lines = ["The model requests this command:", f"  {visible}"]
    if reason.strip():
        visible_reason = make_visible(" ".join(reason.split()))
        is_long = len(visible_reason) > MAX_REASON
        reason_text = f"{visible_reason[: MAX_REASON - 1]}…" if is_long else visible_reason
        lines.append(f"Reason: {reason_text}")
    return "\n".join([*lines, "Run it? [y/N] "])


def ask_on_terminal(question: str, stop_event: threading.Event | None = None) -> bool:
    """Whether the user answers yes; any other answer is no."""
    try:
        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        os.write(terminal, escape(question).encode("utf-8", "replace"))
        while stop_event is None or not stop_event.is_set():
            if select.select([terminal], [], [], POLL_SECONDS)[0]:
                answer = os.read(terminal, MAX_ANSWER_BYTES).decode("utf-8", "replace")
                return answer.strip().lower() in YES
    except OSError:
        return False
    finally:
        os.close(terminal)
    return False
