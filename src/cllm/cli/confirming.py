"""Asking the person on their terminal, also where standard input is a pipe."""

import asyncio
import os
import select
import threading
from collections.abc import Awaitable, Callable

from cllm.cli.printing import shown

TERMINAL = "/dev/tty"
YES = ("y", "yes")
LOOK_EVERY = 0.1
LONGEST_ANSWER = 100


def terminal_confirm() -> Callable[[str, str], Awaitable[bool]] | None:
    """A way to ask whether a command may run; None where there is no terminal."""
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None

    async def confirm(command: str, reason: str) -> bool:
        why = f" ({shown(reason)})" if reason.strip() else ""
        question = f"The model wants to run: {shown_command(command)}{why}\nRun it? [y/N] "
        stopped = threading.Event()
        try:
            return await asyncio.to_thread(ask_on_terminal, question, stopped)
        finally:
            # Whoever waits for an answer that nobody wants any more would keep the program alive.
            stopped.set()

    return confirm


def shown_command(command: str) -> str:
    """A command on one line, with its line breaks and all that is hidden in it to be seen."""
    return shown(" ⏎ ".join(command.strip().splitlines()))


def ask_on_terminal(question: str, stopped: threading.Event | None = None) -> bool:
    """Whether the person says yes; anything else, and no answer, is no."""
    try:
        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        os.write(terminal, question.encode("utf-8", "replace"))
        while stopped is None or not stopped.is_set():
            if select.select([terminal], [], [], LOOK_EVERY)[0]:
                answer = os.read(terminal, LONGEST_ANSWER).decode("utf-8", "replace")
                return answer.strip().lower() in YES
    except OSError:
        return False
    finally:
        os.close(terminal)
    return False
