"""Yes/no questions on the terminal, also where standard input is a pipe."""

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Awaitable, Callable

from cllm.terminal import escape, fits_on_screen, make_visible

TERMINAL = "/dev/tty"
YES = ("y", "yes")
POLL_SECONDS = 0.1
MAX_ANSWER_BYTES = 100
MAX_REASON = 300
LINE_FEED = " ⏎ "

TOO_LONG = (
    "The model wants to run a command that is too long to be shown on this terminal; it is not "
    "run.\n"
)


def terminal_confirm() -> Callable[[str, str], Awaitable[bool]] | None:
    """A function that asks whether a command may run; None without a terminal."""
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
        stopped = threading.Event()
        try:
            return await asyncio.to_thread(ask_on_terminal, question, stopped)
        finally:
            # A thread that waits for an answer would keep the process alive.
            stopped.set()

    return confirm


def confirmation_question(command: str, reason: str) -> str:
    """The question, which no text of the model can imitate."""
    visible = LINE_FEED.join(map(make_visible, command.strip().split("\n")))
    lines = ["The model wants to run:", f"  {visible}"]
    if reason.strip():
        shown = make_visible(" ".join(reason.split()))
        cut = shown if len(shown) <= MAX_REASON else f"{shown[: MAX_REASON - 1]}…"
        lines.append(f"Its reason: {cut}")
    return "\n".join([*lines, "Run it? [y/N] "])


def ask_on_terminal(question: str, stopped: threading.Event | None = None) -> bool:
    """Whether the person answers yes; every other answer, and none, is no."""
    try:
        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        os.write(terminal, escape(question).encode("utf-8", "replace"))
        while stopped is None or not stopped.is_set():
            if select.select([terminal], [], [], POLL_SECONDS)[0]:
                answer = os.read(terminal, MAX_ANSWER_BYTES).decode("utf-8", "replace")
                return answer.strip().lower() in YES
    except OSError:
        return False
    finally:
        os.close(terminal)
    return False
