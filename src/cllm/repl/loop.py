"""The loop of a chat: reads lines and executes them."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from shlex import quote
from types import FrameType
from typing import Any, BinaryIO, Protocol, TextIO

from cllm.app import DEFAULT_MODEL, DEFAULT_MODEL_LABEL
from cllm.core.errors import CllmError
from cllm.default_model import take_hint
from cllm.repl.chat import Chat
from cllm.repl.commands import ExitChat, parse_command, show_tail, unescape_message
from cllm.repl.screen import echo
from cllm.repl.turn import run_chat_turn
from cllm.settings.load import file_store
from cllm.stores.registry import redact_password
from cllm.terminal import TerminationSignal, decode_input

PROMPT = "You: "
CONTINUATION = "\\"
MAX_PRESSES = 2


class InputReader(Protocol):
    """Reads messages; raises EOFError at the end. `blocks`: reading blocks the event loop."""

    blocks: bool

    async def read(self) -> str: ...


class LineReader:
    """Reads lines; a backslash at the end joins the next one. The prompt goes to `prompt_to`."""

    blocks = True

    def __init__(
        self,
        lines: BinaryIO | None,
        prompt_to: TextIO | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._lines = lines
        self._prompt_to = prompt_to
        self._warn = warn

    async def read(self) -> str:
        lines: list[str] = []
        while True:
            if self._prompt_to is not None:
                self._prompt_to.write(PROMPT)
                self._prompt_to.flush()
            data = b"" if self._lines is None else self._lines.readline()
            if not data and not lines:
                raise EOFError
            text, warning = decode_input(data)
            if warning is not None and self._warn is not None:
                self._warn(warning)
            line = text.rstrip("\r\n")
            if not line.endswith(CONTINUATION):
                return "\n".join([*lines, line]).rstrip("\n")
            lines.append(line.removesuffix(CONTINUATION))


class Signals:
    """Handles SIGINT, SIGTERM and SIGHUP. An exception ends a read that `blocks`."""

    def __init__(self, *, blocks: bool) -> None:
        self.is_terminated = False
        self._loop = asyncio.get_running_loop()
        self._chat = asyncio.current_task()
        self._blocks = blocks
        self._work: asyncio.Task[None] | None = None
        self._presses = 0

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    async def run_cancellable(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work; Ctrl-C cancels it and waits for its cleanup."""
        # The line editor may have replaced the handlers.
        self.listen()
        self._presses = 0
        self._work = asyncio.ensure_future(work)
        try:
            await self._work
        except asyncio.CancelledError:
            if self.is_terminated:
                raise TerminationSignal from None
            if not self._presses:
                self._work.cancel()
                raise
        finally:
            self._work = None
        if self.is_terminated:
            raise TerminationSignal

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._work is None or self._presses > MAX_PRESSES:
                raise KeyboardInterrupt
            self._presses += 1
            if self._presses == 1:
                self._loop.call_soon_threadsafe(self._work.cancel)
            return
        self.is_terminated = True
        if self._work is not None:
            self._loop.call_soon_threadsafe(self._work.cancel)
        elif self._blocks:
            raise TerminationSignal
        elif self._chat is not None:
            self._loop.call_soon_threadsafe(self._chat.cancel)


async def run_chat(
    chat: Chat, reader: InputReader, *, ref: str | None, confirms_exit: bool
) -> None:
    """Run until the input ends. Ctrl-C at the prompt exits, with `confirms_exit` the second one."""
    signals = Signals(blocks=reader.blocks)
    signals.listen()
    # A line editor echoes the input itself; keys pressed before its prompt are not lost.
    silence = contextlib.nullcontext() if reader.blocks else echo(on=False, by_line=False)
    try:
        with contextlib.suppress(ExitChat), silence:
            await start_chat(chat, ref)
            while True:
                line = await _read_line(chat, reader, confirms_exit=confirms_exit)
                with echo(on=False, by_line=reader.blocks):
                    await signals.run_cancellable(_execute(chat, line))
        if confirms_exit and chat.options.is_saved and chat.conversation is not None:
            chat.screen.note(f"Continue with: {resume_command(chat)}")
    except asyncio.CancelledError:
        if signals.is_terminated:
            raise TerminationSignal from None
        raise
    finally:
        await chat.app.close()


def resume_command(chat: Chat) -> str:
    settings = chat.app.settings
    is_default = settings.store == file_store(settings.files_folder)
    store = "" if is_default else f" --store {quote(redact_password(settings.store))}"
    return f"cllm chat {chat.ref}{store}"


async def _read_line(chat: Chat, reader: InputReader, *, confirms_exit: bool) -> str:
    was_pressed = False
    while True:
        try:
            return await reader.read()
        except KeyboardInterrupt:
            if was_pressed or not confirms_exit:
                raise
            was_pressed = True
            chat.screen.note("Press Ctrl-C again, or Ctrl-D, to leave.")
        except EOFError:
            raise ExitChat from None


async def start_chat(chat: Chat, ref: str | None) -> None:
    notices = () if ref is None else await chat.open_or_start(ref)
    if chat.conversation is None:
        chat.app.check_chosen_model(chat.model)
    show_tail(chat)
    for notice in notices:
        chat.screen.warn(notice)
    if chat.conversation is None:
        state = f"saved as {chat.ref}" if chat.options.is_saved else "not saved"
        chat.screen.note(f"New conversation with {chat.model}, {state}. /help lists the commands.")
        if chat.app.settings.model is None and chat.model == chat.app.model:
            hint = take_hint(chat.app.model_choice, chat.app.cache_paths.root)
            if hint is not None:
                chat.screen.note(hint)
        if chat.model == DEFAULT_MODEL and chat.screen.is_terminal:
            chat.screen.note(DEFAULT_MODEL_LABEL)
    elif chat.conversation.model not in (None, chat.model):
        chat.screen.note(
            f"The model is {chat.model}, from the next message on; it was "
            f"{chat.conversation.model}."
        )


async def _execute(chat: Chat, line: str) -> None:
    try:
        if not line.strip():
            chat.screen.note("The message is empty; type a message, or /help.")
            return
        parsed = parse_command(line)
        if parsed is None:
            before = await chat.start_next_branch()
            if before is not None:
                chat.screen.note(f"Continuing in branch {chat.ref}; {before} is unchanged.")
            await run_chat_turn(chat, chat.request(unescape_message(line)))
        else:
            command, rest = parsed
            await command.action(chat, rest)
    except CllmError as error:
        chat.failures += 1
        chat.screen.error(error)
