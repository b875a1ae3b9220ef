"""Asking the person on their terminal, also where standard input is a pipe."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from cllm.cli.printing import one_line

TERMINAL = "/dev/tty"
YES = ("y", "yes")


def terminal_confirm() -> Callable[[str, str], Awaitable[bool]] | None:
    """A way to ask whether a command may run; None where there is no terminal."""
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None

    async def confirm(command: str, reason: str) -> bool:
        why = f" ({one_line(reason)})" if reason.strip() else ""
        question = f"The model wants to run: {shown_command(command)}{why}\nRun it? [y/N] "
        return await asyncio.to_thread(ask_on_terminal, question)

    return confirm


def shown_command(command: str) -> str:
    """A command on one line, with its line breaks to be seen."""
    return one_line(" ⏎ ".join(command.strip().splitlines()))


def ask_on_terminal(question: str) -> bool:
    """Whether the person says yes; anything else, and no answer, is no."""
    try:
        with open(TERMINAL, "r+b", buffering=0) as terminal:  # noqa: PTH123 - a device, not a path
            terminal.write(question.encode("utf-8", "replace"))
            answer = terminal.readline(100)
    except OSError:
        return False
    return answer.decode("utf-8", "replace").strip().lower() in YES
