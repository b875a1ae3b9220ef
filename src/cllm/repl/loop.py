"""The chat's loop: read a line, execute it, until the person leaves; and what ends it early.

A reader returns one message or command at a time. EOFError is the end, KeyboardInterrupt Ctrl-C.
"""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, BinaryIO, Protocol, TextIO

from cllm.core.errors import CllmError
from cllm.repl.actions import Leave, show_tail
from cllm.repl.answering import take_turn
from cllm.repl.chat import Chat
from cllm.repl.commands import read_order, said_in
from cllm.repl.screen import echo

NOTHING_SAID = "Nothing was said; type a message, or /help."
AGAIN = "Press Ctrl-C again to leave, or Ctrl-D."
PROMPT = "You: "
CONTINUED = "\\"
PATIENT_PRESSES = 2


class Reader(Protocol):
    """`blocks` says that reading stops everything else on the event loop."""

    blocks: bool

    async def read(self) -> str: ...


class LineReader:
    """Reads lines; one that ends with a backslash goes on with the next.

    `asks` is where the person is asked for a line, if there is a person.
    """

    blocks = True

    def __init__(self, lines: BinaryIO | None, asks: TextIO | None = None) -> None:
        self._lines = lines
        self._asks = asks

    async def read(self) -> str:
        read: list[str] = []
        while True:
            line = self._line()
            if line is None and not read:
                raise EOFError
            if line is None or not line.endswith(CONTINUED):
                return "\n".join([*read, line or ""]).rstrip("\n")
            read.append(line.removesuffix(CONTINUED))

    def _line(self) -> str | None:
        """The next line; None at the end of the input."""
        if self._asks is not None:
            self._asks.write(PROMPT)
            self._asks.flush()
        data = b"" if self._lines is None else self._lines.readline()
        return data.decode("utf-8", "replace").rstrip("\r\n") if data else None


class EndedBySignal(BaseException):
    """The process was asked to end."""


class Signals:
    """Hears the signals; made in the task that the chat is.

    Where reading a line `blocks` the event loop, only an exception ends it.
    """

    def __init__(self, *, blocks: bool) -> None:
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._chat = asyncio.current_task()
        self._blocks = blocks
        self._work: asyncio.Task[None] | None = None
        self._presses = 0

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._hear)

    async def stoppable(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; Ctrl-C ends it early, and what it has to tidy up is waited for.

        EndedBySignal if the process is to end, also where the work was done before it heard of it.
        """
        # Whoever read the keyboard may have listened for themselves meanwhile.
        self.listen()
        self._presses = 0
        self._work = asyncio.ensure_future(work)
        try:
            await self._work
        except asyncio.CancelledError:
            if self.ended:
                raise EndedBySignal from None
            if not self._presses:
                self._work.cancel()
                raise
        finally:
            self._work = None
        if self.ended:
            raise EndedBySignal

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._press()
            return
        self.ended = True
        if self._work is not None:
            self._loop.call_soon_threadsafe(self._work.cancel)
        elif self._blocks:
            raise EndedBySignal
        elif self._chat is not None:
            self._loop.call_soon_threadsafe(self._chat.cancel)

    def _press(self) -> None:
        if self._work is None or self._presses > PATIENT_PRESSES:
            raise KeyboardInterrupt
        self._presses += 1
        if self._presses == 1:
            self._loop.call_soon_threadsafe(self._work.cancel)


async def run_chat(chat: Chat, reader: Reader, *, ref: str | None, patient: bool) -> None:
    """Talk, in the conversation `ref` if one is named, until the end of the input.

    KeyboardInterrupt if the person left by Ctrl-C. At the prompt a `patient` chat, which has a
    person in front of it, takes two presses.
    """
    signals = Signals(blocks=reader.blocks)
    signals.listen()
    try:
        with contextlib.suppress(Leave), _between_prompts(reader):
            await begin(chat, ref)
            while True:
                line = await _read(chat, reader, patient=patient)
                with echo(on=False, by_line=reader.blocks):
                    await signals.stoppable(_obey(chat, line))
    except asyncio.CancelledError:
        if signals.ended:
            raise EndedBySignal from None
        raise
    finally:
        await chat.app.close()


def _between_prompts(reader: Reader) -> contextlib.AbstractContextManager[None]:
    """A reader that edits lines shows what is typed; keys that come before it asks wait for it."""
    return contextlib.nullcontext() if reader.blocks else echo(on=False, by_line=False)


async def _read(chat: Chat, reader: Reader, *, patient: bool) -> str:
    """The next line; Leave at the end of the input, KeyboardInterrupt if that is meant."""
    pressed = False
    while True:
        try:
            return await reader.read()
        except KeyboardInterrupt:
            if pressed or not patient:
                raise
            pressed = True
            chat.screen.note(AGAIN)
        except EOFError:
            raise Leave from None


async def begin(chat: Chat, ref: str | None) -> None:
    """Open the conversation that was named, or say where a new one is kept."""
    notices = () if ref is None else await chat.open_or_begin(ref)
    show_tail(chat)
    for notice in notices:
        chat.screen.warn(notice)
    if chat.conversation is None:
        where = f"kept as {chat.ref}" if chat.options.saves else "not kept"
        chat.screen.note(
            f"A new conversation with {chat.model}, {where}. /help lists the commands."
        )
    elif chat.app.settings.model_is_explicit and chat.chosen_model != chat.model:
        chat.screen.note(
            f"The conversation keeps its model, {chat.model}; to go on with the other one: "
            f"/model {chat.chosen_model}"
        )


async def _obey(chat: Chat, line: str) -> None:
    """Do what one line says; a mistake is told, and the chat goes on."""
    try:
        if not line.strip():
            chat.screen.note(NOTHING_SAID)
            return
        order = read_order(line)
        if order is None:
            await take_turn(chat, chat.request(said_in(line)))
        else:
            command, rest = order
            await command.action(chat, rest)
    except CllmError as error:
        chat.failures += 1
        chat.screen.error(error)
