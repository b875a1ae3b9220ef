"""What the commands about the window do: summaries, pins, and what of the conversation is sent.

They go through the store and the engine like every other surface, and show what came of it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

from cllm.core.conversation import Conversation, StandingSummary
from cllm.core.errors import UsageError
from cllm.engine.compacting import Summarised, Summarising
from cllm.repl.chat import Chat
from cllm.repl.status import counted, last_usage, money, usage_text
from cllm.terminal import one_line

SHORT = 60
LONGEST_NUMBER = 9


def number_in(given: str) -> int | None:
    """The number that was given, if one was."""
    if not given:
        return None
    digits = given.isascii() and given.isdigit() and len(given) <= LONGEST_NUMBER
    if not digits or int(given) == 0:
        raise UsageError(f"Give a whole number from 1 on, not '{one_line(given, longest=SHORT)}'.")
    return int(given)


async def compact(chat: Chat, rest: str) -> None:
    """Put all but the newest turn into a summary, or undo the last one."""
    if rest == "undo":
        undone = await chat.undo_summary()
        first = 1 if undone.before is None else undone.before.through + 1
        chat.screen.note(
            f"Undone: the messages {first} to {undone.through} are sent again, as far as there "
            "is room."
        )
        return
    if rest:
        raise UsageError("/compact makes a summary, and /compact undo takes the last one back.")
    try:
        await _make_summary(chat)
    except asyncio.CancelledError:
        chat.screen.note("Interrupted. Nothing was changed.")
        raise


async def _make_summary(chat: Chat) -> None:
    request = chat.request_nothing()
    async with aclosing(chat.app.engine().compact(request)) as events:
        async for event in events:
            match event:
                case Summarising():
                    chat.screen.note(
                        f"Summarising {counted(event.messages, 'message')} "
                        f"({event.piece} of {event.pieces}) …"
                    )
                case Summarised():
                    chat.screen.note(_made(event))
    await chat.look_again()


def _made(event: Summarised) -> str:
    summary = event.summary
    return (
        f"{counted(event.turns, 'turn')} put into a summary, which stands for the messages up to "
        f"{summary.through}; they stay stored. {_took(summary)} /compact undo takes it back."
    )


def _took(summary: StandingSummary) -> str:
    used = "Tokens unknown" if summary.usage is None else usage_text(summary.usage).capitalize()
    price = "cost unknown" if summary.cost is None else money(summary.cost)
    return f"{used} · {price}."


async def pin(chat: Chat, rest: str) -> None:
    """Have a message's turn in every window; without a number, that of the last answer."""
    if rest == "list":
        chat.screen.say(pin_lines(chat.conversation) or ["Nothing is pinned."])
        return
    conversation = chat.stored()
    number = number_in(rest) or conversation.message_count
    if number in conversation.pins:
        chat.screen.note(f"Message {number} is pinned already.")
        return
    await chat.pin((*conversation.pins, number))
    chat.screen.note(f"Message {number} is pinned: its turn is sent every time.")


async def unpin(chat: Chat, rest: str) -> None:
    conversation = chat.stored()
    number = number_in(rest)
    if number is None or number not in conversation.pins:
        pinned = ", ".join(map(str, conversation.pins)) or "none"
        raise UsageError(f"Say which message: /unpin N. Pinned are: {pinned}.")
    await chat.pin(tuple(one for one in conversation.pins if one != number))
    chat.screen.note(f"Message {number} is not pinned any more.")


async def tokens(chat: Chat, _rest: str) -> None:
    """What the last turn used, and what of the conversation it sent."""
    usage = last_usage(chat.conversation)
    if usage is None:
        chat.screen.say(["Nothing was answered in this conversation yet."])
        return
    chat.screen.say([f"The last turn: {usage_text(usage)}.", *window_lines(chat.conversation)])


def window_lines(conversation: Conversation | None) -> list[str]:
    """What of the conversation the last turn sent, what stands for the rest, and what is pinned."""
    turns = () if conversation is None else conversation.turns
    record = next((turn.window for turn in reversed(turns) if turn.window is not None), None)
    lines: list[str] = []
    if record is not None:
        left = record.left_out_messages
        lines.append(
            f"Its window: {counted(record.sent_messages, 'message')}, from number "
            f"{record.first_sequence} on; {left:,} not sent."
        )
    return [*lines, *summary_lines(conversation), *pin_lines(conversation)]


def summary_lines(conversation: Conversation | None) -> list[str]:
    summary = None if conversation is None else conversation.summary
    if summary is None:
        return []
    text = one_line(summary.text, longest=SHORT)
    return [f"summary of the messages up to {summary.through} ({summary.tokens:,} tokens): {text}"]


def pin_lines(conversation: Conversation | None) -> list[str]:
    return [] if conversation is None else list(_pinned(conversation))


def _pinned(conversation: Conversation) -> Iterator[str]:
    for number, _, message in conversation.numbered_messages():
        if number in conversation.pins:
            text = one_line(message.text, longest=SHORT)
            yield f"pinned: {number} {message.role}: {text}"
