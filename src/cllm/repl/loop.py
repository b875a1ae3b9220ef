"""The chat's loop: read a line, do what it says, until the person leaves."""

import asyncio
import contextlib

from cllm.core.errors import CllmError
from cllm.repl.actions import Leave, show_tail
from cllm.repl.answering import take_turn
from cllm.repl.chat import Chat
from cllm.repl.commands import read_order, said_in
from cllm.repl.lines import Reader
from cllm.repl.screen import echo
from cllm.repl.signals import EndedBySignal, Signals

NOTHING_SAID = "Nothing was said; type a message, or /help."
AGAIN = "Press Ctrl-C again to leave, or Ctrl-D."


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
            await order.command.action(chat, order.rest)
    except CllmError as error:
        chat.failures += 1
        chat.screen.error(error)
