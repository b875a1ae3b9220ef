"""The loop of a chat: reads lines and executes them."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, BinaryIO, Protocol, TextIO

from cllm.core.errors import CllmError
from cllm.repl.chat import Chat
from cllm.repl.commands import ExitChat, parse_command, show_tail, unescape_message
from cllm.repl.screen import echo
from cllm.repl.turn import run_chat_turn
from cllm.terminal import TerminationSignal

PROMPT = "You: "
CONTINUATION = "\\"
MAX_PRESSES = 2


class InputReader(Protocol):
    """Reads messages; EOFError at the end. `blocks`: reading stops the event loop."""

    blocks: bool

    async def read(self) -> str: ...


class LineReader:
    """Reads lines; a backslash at the end joins the next. `asks` gets the prompt."""

    blocks = True

    def __init__(self, lines: BinaryIO | None, asks: TextIO | None = None) -> None:
        self._lines = lines
        self._asks = asks

    async def read(self) -> str:
        read: list[str] = []
        while True:
            if self._asks is not None:
                self._asks.write(PROMPT)
                self._asks.flush()
            data = b"" if self._lines is None else self._lines.readline()
            if not data and not read:
                raise EOFError
            line = data.decode("utf-8", "replace").rstrip("\r\n")
            if not line.endswith(CONTINUATION):
                return "\n".join([*read, line]).rstrip("\n")
            read.append(line.removesuffix(CONTINUATION))


class Signals:
    """Handles SIGINT, SIGTERM and SIGHUP. A read that `blocks` is ended by an exception."""

    def __init__(self, *, blocks: bool) -> None:
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._chat = asyncio.current_task()
        self._blocks = blocks
        self._work: asyncio.Task[None] | None = None
        self._presses = 0

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    async def run_cancellable(self, work: Coroutine[Any, Any, None]) -> None:
        """Ctrl-C cancels the work and waits for its cleanup."""
        # The line editor may have replaced the handlers.
        self.listen()
        self._presses = 0
        self._work = asyncio.ensure_future(work)
        try:
            await self._work
        except asyncio.CancelledError:
            if self.ended:
                raise TerminationSignal from None
            if not self._presses:
                self._work.cancel()
                raise
        finally:
            self._work = None
        if self.ended:
            raise TerminationSignal

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._work is None or self._presses > MAX_PRESSES:
                raise KeyboardInterrupt
            self._presses += 1
            if self._presses == 1:
                self._loop.call_soon_threadsafe(self._work.cancel)
            return
        self.ended = True
        if self._work is not None:
            self._loop.call_soon_threadsafe(self._work.cancel)
        elif self._blocks:
            raise TerminationSignal
        elif self._chat is not None:
            self._loop.call_soon_threadsafe(self._chat.cancel)


async def run_chat(
    chat: Chat, reader: InputReader, *, ref: str | None, confirms_exit: bool
) -> None:
    """Run until the input ends. Ctrl-C at the prompt raises; a `confirms_exit` chat needs two."""
    signals = Signals(blocks=reader.blocks)
    signals.listen()
    # A line editor shows what is typed; keys pressed before its prompt wait for it.
    silence = contextlib.nullcontext() if reader.blocks else echo(on=False, by_line=False)
    try:
        with contextlib.suppress(ExitChat), silence:
            await start_chat(chat, ref)
            while True:
                line = await _read_line(chat, reader, confirms_exit=confirms_exit)
                with echo(on=False, by_line=reader.blocks):
                    await signals.run_cancellable(_execute(chat, line))
    except asyncio.CancelledError:
        if signals.ended:
            raise TerminationSignal from None
        raise
    finally:
        await chat.app.close()


async def _read_line(chat: Chat, reader: InputReader, *, confirms_exit: bool) -> str:
    pressed = False
    while True:
        try:
            return await reader.read()
        except KeyboardInterrupt:
            if pressed or not confirms_exit:
                raise
            pressed = True
            chat.screen.note("Press Ctrl-C again to leave, or Ctrl-D.")
        except EOFError:
            raise ExitChat from None


async def start_chat(chat: Chat, ref: str | None) -> None:
    notices = () if ref is None else await chat.open_or_start(ref)
    show_tail(chat)
    for notice in notices:
        chat.screen.warn(notice)
    if chat.conversation is None:
        where = f"kept as {chat.ref}" if chat.options.is_saved else "not kept"
        chat.screen.note(
            f"A new conversation with {chat.model}, {where}. /help lists the commands."
        )
    elif chat.app.settings.model_is_explicit and chat.chosen_model != chat.model:
        chat.screen.note(
            f"The conversation keeps its model, {chat.model}; to go on with the other one: "
            f"/model {chat.chosen_model}"
        )


async def _execute(chat: Chat, line: str) -> None:
    try:
        if not line.strip():
            chat.screen.note("Nothing was said; type a message, or /help.")
            return
        order = parse_command(line)
        if order is None:
            await run_chat_turn(chat, chat.request(unescape_message(line)))
        else:
            command, rest = order
            await command.action(chat, rest)
    except CllmError as error:
        chat.failures += 1
        chat.screen.error(error)
