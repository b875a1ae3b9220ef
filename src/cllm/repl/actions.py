"""What the commands of a chat do: each takes the chat and what stood after its name.

They go through the store and the engine like every other surface, and show what came of it.
"""

import asyncio
import os
import shlex
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

from cllm.assembly.cache_report import cache_report
from cllm.assembly.system import GivenPrompt
from cllm.core.conversation import Conversation, StandingSummary, Summary, check_id
from cllm.core.errors import UsageError
from cllm.core.ports import Hit
from cllm.engine.compacting import Summarised, Summarising
from cllm.repl.answering import take_turn
from cllm.repl.chat import Chat
from cllm.repl.status import (
    as_markdown,
    counted,
    empty_list_lines,
    last_usage,
    money,
    stats_lines,
    tail_lines,
    usage_text,
)
from cllm.settings.layers import expanded
from cllm.terminal import one_line
from cllm.wire.conversation_file.codec import encode_conversation

LISTED = 20
FOUND = 20
MOST_HITS = 1000
TITLE = 60
ADVICE = "open them with: cllm chat --store"
SHORT = 60
LONGEST_NUMBER = 9


class Leave(BaseException):
    """The person wants to leave the chat."""


async def leave(_chat: Chat, _rest: str) -> None:
    raise Leave


async def new(chat: Chat, _rest: str) -> None:
    chat.new()
    chat.screen.note(f"A new conversation: {chat.ref}")


async def clear(chat: Chat, _rest: str) -> None:
    chat.new()
    chat.screen.say(["Conversation cleared"])


async def list_newest(chat: Chat, rest: str) -> None:
    page = await chat.store.list_conversations(limit=number_in(rest) or LISTED)
    for notice in page.notices:
        chat.screen.warn(notice)
    if not page.items:
        others = await chat.app.other_histories()
        for line in empty_list_lines(chat.app.settings.store, others, advice=ADVICE):
            chat.screen.note(line)
        if not chat.options.saves:
            chat.screen.note("This chat was started with --no-save; /save ID stores it.")
    chat.screen.say(summary_line(summary) for summary in page.items)


def summary_line(summary: Summary) -> str:
    """A conversation on one line."""
    count = counted(summary.message_count, "message")
    title = one_line(summary.title or "", longest=TITLE)
    return f"{summary.ref}  {_when(summary.updated_at)}  {count}  {title}".rstrip()


def _when(moment: datetime) -> str:
    try:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError):
        return moment.isoformat()


async def open_conversation(chat: Chat, rest: str) -> None:
    if not rest:
        raise UsageError("Say which conversation: /open ID; /list shows them.")
    notices = await chat.open(rest)
    show_tail(chat)
    for notice in notices:
        chat.screen.warn(notice)


def show_tail(chat: Chat) -> None:
    """The end of the conversation that was opened."""
    if chat.conversation is not None:
        chat.screen.say(tail_lines(chat.conversation))


async def search(chat: Chat, rest: str) -> None:
    """Conversations that were titled so or in which it was said, one entry each."""
    if not rest:
        raise UsageError("Say what to look for: /search TEXT.")
    page = await chat.store.list_conversations(limit=10**9)
    hits = await chat.store.search(rest, limit=MOST_HITS)
    places = {hit.conversation: hit for hit in reversed(hits.items)}
    found = 0
    for summary in page.items:
        where = _where(summary, places.get(summary.id), rest.casefold())
        if where is None:
            continue
        if found == FOUND:
            chat.screen.note(f"These are the newest {FOUND}; there may be more.")
            return
        chat.screen.say([summary_line(summary), f"    {where}"])
        found += 1
    if not found:
        chat.screen.note(f"Nowhere was '{one_line(rest)}' said.")


def _where(summary: Summary, hit: Hit | None, wanted: str) -> str | None:
    """The title, or the best place of the conversation, in which it stands."""
    if summary.title is not None and wanted in summary.title.casefold():
        return f"in the title: {one_line(summary.title)}"
    return None if hit is None else f"{hit.sequence} {hit.role}: {one_line(hit.snippet)}"


async def model(chat: Chat, rest: str) -> None:
    if not rest:
        chat.screen.say([chat.model])
        return
    chat.app.find_route(rest)
    before = chat.ref
    if chat.conversation is None:
        chat.chosen_model = rest
        chat.screen.note(f"The model is {rest}.")
    elif rest != chat.model:
        await chat.branch(model=rest)
        chat.screen.note(f"Going on with {rest} in the branch {chat.ref}; {before} stays.")


async def system(chat: Chat, rest: str) -> None:
    if not rest:
        chat.screen.say([_system_text(chat) or "There is no system prompt."])
        return
    given = GivenPrompt(text=rest, source="--system", explicit=True)
    before = chat.ref
    if chat.conversation is None:
        chat.system = given
        chat.screen.note("The conversation will be under this system prompt.")
    else:
        await chat.branch(system=given)
        chat.screen.note(f"Going on under it in the branch {chat.ref}; {before} stays.")


def _system_text(chat: Chat) -> str | None:
    if chat.conversation is None:
        return chat.system.text
    return None if chat.conversation.system is None else chat.conversation.system.text


async def context(chat: Chat, rest: str) -> None:
    if rest:
        chat.executed += (rest,)
        chat.screen.note("It runs with the next message.")
        return
    chat.screen.say(_context_lines(chat))


def _context_lines(chat: Chat) -> Iterator[str]:
    record = None if chat.conversation is None else chat.conversation.context_record
    for command in () if record is None else record.commands:
        yield f"captured at the beginning: {one_line(command.command)} ({command.state})"
    for configured in chat.app.settings.context:
        if configured.kind == "dynamic" or chat.conversation is None:
            when = "with every message" if configured.kind == "dynamic" else "at the beginning"
            yield f"runs {when}: {one_line(configured.written)}"
    for given in chat.executed:
        yield f"runs with the next message: {one_line(given)}"
    if not (chat.app.settings.context or chat.executed or (record and record.commands)):
        yield "There are no context commands."
    yield from summary_lines(chat.conversation)
    yield from pin_lines(chat.conversation)


async def attach(chat: Chat, rest: str) -> None:
    if not rest:
        chat.screen.say([f"Attached to the next message: {counted(len(chat.attached), 'file')}."])
        return
    chat.attached += chat.attach(_file_names(rest))
    chat.screen.note(f"Attached to the next message: {counted(len(chat.attached), 'file')}.")


def _file_names(rest: str) -> list[str]:
    """The files that are named: one with blanks in it as it is, several as a shell has them."""
    whole = os.path.expanduser(rest)  # noqa: PTH111 - an address is no path
    if os.path.exists(whole):  # noqa: PTH110
        return [whole]
    try:
        words = shlex.split(rest)
    except ValueError:
        return [whole]
    return [os.path.expanduser(word) for word in words]  # noqa: PTH111


async def regenerate(chat: Chat, _rest: str) -> None:
    await take_turn(chat, await chat.request_again())


async def undo(chat: Chat, _rest: str) -> None:
    turn = await chat.undo()
    said = " ".join(message.text for message in turn.asked)
    chat.screen.note(f"Taken back: {one_line(said, longest=TITLE)}")


async def branch(chat: Chat, rest: str) -> None:
    before = chat.ref
    await chat.branch(at=number_in(rest))
    chat.screen.note(f"Going on in the branch {chat.ref}; {before} stays.")


async def title(chat: Chat, rest: str) -> None:
    if rest:
        await chat.rename(one_line(rest))
        chat.screen.note(f"The title is: {one_line(rest, longest=TITLE)}")
        return
    kept = None if chat.conversation is None else chat.conversation.title
    chat.screen.say([kept or chat.title or "There is no title yet."])


async def save(chat: Chat, rest: str) -> None:
    if not chat.options.saves:
        await chat.keep(rest or None)
        chat.screen.note(f"Kept as {chat.ref}; from here on everything is.")
    elif rest:
        before = chat.ref
        await chat.branch(ref=check_id(rest))
        chat.screen.note(f"Going on in the copy {chat.ref}; {before} stays.")
    else:
        chat.screen.note(f"Everything is kept as {chat.ref}; /save ID makes a copy.")


async def export(chat: Chat, rest: str) -> None:
    name = _unquoted(rest)
    if not name:
        raise UsageError("Say into which file: /export FILE.")
    chat.last_turn()
    conversation = chat.conversation
    if conversation is None:
        return
    path = chat.app.settings.place.directory / expanded(name)
    _write_new(path, _exported(conversation, path))
    chat.screen.note(f"Written to {path}.")


def _unquoted(rest: str) -> str:
    """A file's name, also where it stands between quotes as for a shell."""
    quote = rest[:1]
    quoted = quote in ("'", '"') and len(rest) > 1 and rest.endswith(quote)
    return rest[1:-1] if quoted else rest


def _exported(conversation: Conversation, path: Path) -> bytes:
    if path.suffix.lower() == ".json":
        return encode_conversation(conversation)
    return as_markdown(conversation).encode("utf-8", "replace")


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, for nobody else to read."""
    try:
        _fill(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), path, data)
    except FileExistsError as error:
        raise UsageError(f"'{path}' is there already; name another file.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file's name"
        raise UsageError(f"Cannot write '{one_line(str(path))}' ({reason.lower()}).") from error


def _fill(opened: int, path: Path, data: bytes) -> None:
    """Write the data, or take the new file away again."""
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


async def stats(chat: Chat, _rest: str) -> None:
    talked = () if chat.conversation is None else (chat.conversation,)
    report = cache_report(talked, chat.app.prices.price_turn)
    chat.screen.say(stats_lines(chat.conversation, report, chat.sitting))


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
