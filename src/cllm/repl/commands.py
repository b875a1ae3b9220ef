"""The commands of a chat, in the order of `/help`. Each gets the text after its name."""

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from cllm.core.conversation import Summary, check_id
from cllm.core.errors import UsageError
from cllm.core.ports import Changes, Hit
from cllm.engine.summaries import SummarySaved, SummaryStarted
from cllm.files import write_new_file
from cllm.history.system_prompt import GivenPrompt
from cllm.repl.chat import Chat
from cllm.repl.format import (
    MAX_TITLE,
    empty_list_lines,
    format_markdown,
    format_price,
    format_usage,
    last_turn_with_usage,
    pin_lines,
    pluralize,
    stats_lines,
    summary_line,
    summary_lines,
    tail_lines,
    window_lines,
)
from cllm.repl.screen import wrap_line
from cllm.repl.turn import run_chat_turn
from cllm.settings.layers import expand_home
from cllm.terminal import one_line
from cllm.window.cache_report import build_cache_report
from cllm.wire.conversation_file.codec import encode_conversation

Action = Callable[[Chat, str], Awaitable[None]]
ESCAPE = "//"
HELP_FOOTER = (
    "Everything else is said to the model. Alt-Enter, or a backslash at the end of a line, begins "
    "a new line. Ctrl-C stops an answer."
)
DEFAULT_LISTED = 20
MAX_FOUND = 20
MAX_HITS = 1000
OPEN_COMMAND = "open them with: cllm chat --store"
MAX_SHOWN = 60
MAX_DIGITS = 9


class ExitChat(BaseException):
    """The person leaves the chat."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`is_word`: it also works without a slash, alone on a line."""

    name: str
    takes: str
    about: str
    action: Action
    aliases: tuple[str, ...] = ()
    is_word: bool = False
    completes: Literal["conversations", "models", "files"] | None = None


COMMANDS: list[Command] = []


def command(
    name: str, takes: str, about: str, *aliases: str, **more: Any
) -> Callable[[Action], Action]:
    def add(action: Action) -> Action:
        head: dict[str, Any] = {"name": name, "takes": takes, "about": about, "aliases": aliases}
        COMMANDS.append(Command(**head, **more, action=action))
        return action

    return add


@command("help", "", "List the commands.", "h", "?")
async def show_help(chat: Chat, _rest: str) -> None:
    chat.screen.print_lines(help_lines(chat.screen.columns))


def help_lines(columns: int | None = None) -> list[str]:
    heads = [(f"/{row.name} {row.takes}".rstrip(), row) for row in COMMANDS]
    width = max(len(head) for head, _ in heads) + 2
    lines = [f"{head:<{width}}{row.about}{_aliases_text(row)}" for head, row in heads]
    return [
        *(cut for line in lines for cut in wrap_line(line, columns, indent=" " * width)),
        "",
        *wrap_line(HELP_FOOTER, columns),
    ]


def _aliases_text(row: Command) -> str:
    words = [row.name, *row.aliases[:1]] if row.is_word else []
    names = [*words, *(f"/{alias}" for alias in row.aliases)]
    return f" (also {', '.join(names)})" if names else ""


@command("new", "", "Begin a conversation; this one stays stored.")
async def new(chat: Chat, _rest: str) -> None:
    chat.new()
    chat.screen.note(f"A new conversation: {chat.ref}")


@command("clear", "", "The same, and say so.", is_word=True)
async def clear(chat: Chat, _rest: str) -> None:
    chat.new()
    chat.screen.print_lines(["Conversation cleared"])


@command("list", "[N]", "List the newest conversations.")
async def list_newest(chat: Chat, rest: str) -> None:
    page = await chat.app.store.list_conversations(limit=_parse_number(rest) or DEFAULT_LISTED)
    for notice in page.notices:
        chat.screen.warn(notice)
    if not page.items:
        others = await chat.app.count_other_stores()
        for line in empty_list_lines(chat.app.settings.store, others, advice=OPEN_COMMAND):
            chat.screen.note(line)
        if not chat.options.is_saved:
            chat.screen.note("This chat was started with --no-save; /save ID stores it.")
    chat.screen.print_lines(summary_line(summary) for summary in page.items)


@command("open", "ID", "Go on with another conversation.", completes="conversations")
async def open_conversation(chat: Chat, rest: str) -> None:
    if not rest:
        raise UsageError("Say which conversation: /open ID; /list shows them.")
    notices = await chat.open(rest)
    show_tail(chat)
    for notice in notices:
        chat.screen.warn(notice)


def show_tail(chat: Chat) -> None:
    if chat.conversation is not None:
        chat.screen.print_lines(tail_lines(chat.conversation))


@command("search", "TEXT", "Find conversations in which it was said.")
async def search(chat: Chat, rest: str) -> None:
    if not rest:
        raise UsageError("Say what to look for: /search TEXT.")
    page = await chat.app.store.list_conversations(limit=10**9)
    hits = await chat.app.store.search(rest, limit=MAX_HITS)
    best = {hit.conversation: hit for hit in reversed(hits.items)}
    matches = [
        (summary, _match_text(summary, best.get(summary.id), rest)) for summary in page.items
    ]
    found = [(summary, match) for summary, match in matches if match is not None]
    for summary, match in found[:MAX_FOUND]:
        chat.screen.print_lines([summary_line(summary), f"    {match}"])
    if len(found) > MAX_FOUND:
        chat.screen.note(f"These are the newest {MAX_FOUND}; there may be more.")
    if not found:
        chat.screen.note(f"Nowhere was '{one_line(rest)}' said.")


def _match_text(summary: Summary, hit: Hit | None, wanted: str) -> str | None:
    if summary.title is not None and wanted.casefold() in summary.title.casefold():
        return f"in the title: {one_line(summary.title)}"
    return None if hit is None else f"{hit.sequence} {hit.role}: {one_line(hit.snippet)}"


@command("model", "[NAME]", "Show the model, or go on with another one.", completes="models")
async def model(chat: Chat, rest: str) -> None:
    if not rest:
        chat.screen.print_lines([chat.model])
        return
    chat.app.find_route(rest)
    if chat.conversation is None:
        chat.chosen_model = rest
        chat.screen.note(f"The model is {rest}.")
    elif rest != chat.model:
        before = await chat.branch(model=rest)
        chat.screen.note(f"Going on with {rest} in the branch {chat.ref}; {before} stays.")


@command("system", "[TEXT]", "Show the system prompt, or go on under another one.")
async def system(chat: Chat, rest: str) -> None:
    conversation = chat.conversation
    if not rest:
        prompt = chat.system if conversation is None else conversation.system
        text = None if prompt is None else prompt.text
        chat.screen.print_lines([text or "There is no system prompt."])
        return
    given = GivenPrompt(text=rest, source="--system", explicit=True)
    if conversation is None:
        chat.system = given
        chat.screen.note("The conversation will be under this system prompt.")
    else:
        before = await chat.branch(system=given)
        chat.screen.note(f"Going on under it in the branch {chat.ref}; {before} stays.")


@command("context", "[COMMAND]", "Show the context, or run a shell command for the next message.")
async def context(chat: Chat, rest: str) -> None:
    if rest:
        chat.exec_commands += (rest,)
        chat.screen.note("It runs with the next message.")
        return
    chat.screen.print_lines(_context_lines(chat))


def _context_lines(chat: Chat) -> Iterator[str]:
    record = None if chat.conversation is None else chat.conversation.context_record
    captured = () if record is None else record.commands
    for outcome in captured:
        yield f"captured at the beginning: {one_line(outcome.command)} ({outcome.state})"
    for configured in chat.app.settings.context:
        if configured.kind == "dynamic" or chat.conversation is None:
            when = "with every message" if configured.kind == "dynamic" else "at the beginning"
            yield f"runs {when}: {one_line(configured.written)}"
    for line in chat.exec_commands:
        yield f"runs with the next message: {one_line(line)}"
    if not (chat.app.settings.context or chat.exec_commands or captured):
        yield "There are no context commands."
    yield from summary_lines(chat.conversation)
    yield from pin_lines(chat.conversation)


@command("attach", "[FILE]", "Show the model a file with the next message.", completes="files")
async def attach(chat: Chat, rest: str) -> None:
    if rest:
        chat.attachments += chat.attach(_file_names(rest))
    text = f"Attached to the next message: {pluralize(len(chat.attachments), 'file')}."
    if rest:
        chat.screen.note(text)
    else:
        chat.screen.print_lines([text])


def _file_names(rest: str) -> list[str]:
    """One existing file whose name may have blanks, else names as in a shell."""
    whole = os.path.expanduser(rest)  # noqa: PTH111 - an address is no path
    if os.path.exists(whole):  # noqa: PTH110
        return [whole]
    try:
        words = shlex.split(rest)
    except ValueError:
        return [whole]
    return [os.path.expanduser(word) for word in words]  # noqa: PTH111


@command(
    "regenerate", "", "Ask the last message again; the old answer stays as a variant.", "retry"
)
async def regenerate(chat: Chat, _rest: str) -> None:
    await run_chat_turn(chat, await chat.build_regeneration())


@command("undo", "", "Take the last turn back, for good.")
async def undo(chat: Chat, _rest: str) -> None:
    turn = await chat.undo()
    text = " ".join(message.text for message in turn.asked)
    chat.screen.note(f"Taken back: {one_line(text, longest=MAX_TITLE)}")


@command("branch", "[N]", "Go on in a copy, with the messages up to number N.")
async def branch(chat: Chat, rest: str) -> None:
    before = await chat.branch(at=_parse_number(rest))
    chat.screen.note(f"Going on in the branch {chat.ref}; {before} stays.")


@command("title", "[TEXT]", "Show the title, or give one.")
async def title(chat: Chat, rest: str) -> None:
    if rest:
        chat.title = one_line(rest)
        if chat.conversation is not None:
            await chat.app.store.update(chat.ref, Changes(title=chat.title))
            await chat.reload()
        chat.screen.note(f"The title is: {one_line(rest, longest=MAX_TITLE)}")
        return
    stored = None if chat.conversation is None else chat.conversation.title
    chat.screen.print_lines([stored or chat.title or "There is no title yet."])


@command("save", "[ID]", "Keep the conversation, or a copy of it under ID.")
async def save(chat: Chat, rest: str) -> None:
    if not chat.options.is_saved:
        await chat.keep(rest or None)
        chat.screen.note(f"Kept as {chat.ref}; from here on everything is.")
    elif rest:
        before = await chat.branch(ref=check_id(rest))
        chat.screen.note(f"Going on in the copy {chat.ref}; {before} stays.")
    else:
        chat.screen.note(f"Everything is kept as {chat.ref}; /save ID makes a copy.")


@command(
    "export",
    "FILE",
    "Write the conversation as Markdown, or as JSON if FILE ends so.",
    completes="files",
)
async def export(chat: Chat, rest: str) -> None:
    is_quoted = rest[:1] in ("'", '"') and len(rest) > 1 and rest.endswith(rest[:1])
    name = rest[1:-1] if is_quoted else rest
    if not name:
        raise UsageError("Say into which file: /export FILE.")
    chat.last_turn()
    conversation = chat.stored()
    path = chat.app.settings.env.directory / expand_home(name)
    if path.suffix.lower() == ".json":
        data = encode_conversation(conversation)
    else:
        data = format_markdown(conversation).encode("utf-8", "replace")
    try:
        write_new_file(path, data)
    except FileExistsError as error:
        raise UsageError(f"'{path}' is there already; name another file.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file's name"
        raise UsageError(f"Cannot write '{one_line(str(path))}' ({reason.lower()}).") from error
    chat.screen.note(f"Written to {path}.")


@command("tokens", "", "Show what the last turn used, and what it sent.")
async def tokens(chat: Chat, _rest: str) -> None:
    turn = last_turn_with_usage(chat.conversation)
    if turn is None or turn.usage is None:
        chat.screen.print_lines(["Nothing was answered in this conversation yet."])
        return
    lines = window_lines(chat.conversation)
    chat.screen.print_lines([f"The last turn: {format_usage(turn.usage)}.", *lines])


@command(
    "pin",
    "[N or list]",
    "Send the turn of message N, or of the last one, every time; or list what is pinned.",
)
async def pin(chat: Chat, rest: str) -> None:
    if rest == "list":
        chat.screen.print_lines(pin_lines(chat.conversation) or ["Nothing is pinned."])
        return
    conversation = chat.stored()
    number = _parse_number(rest) or conversation.message_count
    if number in conversation.pins:
        chat.screen.note(f"Message {number} is pinned already.")
        return
    await chat.pin((*conversation.pins, number))
    chat.screen.note(f"Message {number} is pinned: its turn is sent every time.")


@command("unpin", "N", "Do so no more.")
async def unpin(chat: Chat, rest: str) -> None:
    conversation = chat.stored()
    number = _parse_number(rest)
    if number is None or number not in conversation.pins:
        pinned = ", ".join(map(str, conversation.pins)) or "none"
        raise UsageError(f"Say which message: /unpin N. Pinned are: {pinned}.")
    await chat.pin(tuple(one for one in conversation.pins if one != number))
    chat.screen.note(f"Message {number} is not pinned any more.")


@command("compact", "[undo]", "Put all but the newest turn into a summary; or undo that.")
async def compact(chat: Chat, rest: str) -> None:
    if rest == "undo":
        chat.stored()
        undone = await chat.app.engine().undo_summary(chat.ref)
        await chat.reload()
        first = 1 if undone.before is None else undone.before.through + 1
        chat.screen.note(
            f"Undone: the messages {first} to {undone.through} are sent again, as far as there "
            "is room."
        )
        return
    if rest:
        raise UsageError("/compact makes a summary, and /compact undo takes the last one back.")
    try:
        chat.stored()
        async with aclosing(chat.app.engine().compact(chat.build_request(()))) as events:
            async for event in events:
                chat.screen.note(_progress_text(event))
        await chat.reload_with_usage()
    except asyncio.CancelledError:
        chat.screen.note("Interrupted. Nothing was changed.")
        raise


def _progress_text(event: SummaryStarted | SummarySaved) -> str:
    if isinstance(event, SummaryStarted):
        messages = pluralize(event.messages, "message")
        return f"Summarising {messages} ({event.piece} of {event.pieces}) …"
    summary = event.summary
    used = format_price(summary.usage, summary.cost)
    return (
        f"{pluralize(event.turns, 'turn')} put into a summary, which stands for the messages up to "
        f"{summary.through}; they stay stored. {used[0].upper()}{used[1:]}. "
        "/compact undo takes it back."
    )


@command("stats", "", "Show what this conversation and this chat used and cost.", is_word=True)
async def stats(chat: Chat, _rest: str) -> None:
    conversations = () if chat.conversation is None else (chat.conversation,)
    report = build_cache_report(conversations, chat.app.prices.price_turn)
    chat.screen.print_lines(stats_lines(chat.conversation, report, chat.session_usage))


@command("quit", "", "Leave, as Ctrl-D does.", "exit", "q", is_word=True)
async def quit_chat(_chat: Chat, _rest: str) -> None:
    raise ExitChat


COMMANDS_BY_WORD = {
    name: row for row in COMMANDS if row.is_word for name in (row.name, *row.aliases[:1])
}
COMMANDS_BY_NAME = {name: row for row in COMMANDS for name in (row.name, *row.aliases)}


def parse_command(line: str) -> tuple[Command, str] | None:
    """The command of a line and its argument; None if the line is for the model."""
    text = line.strip()
    if text.lower() in COMMANDS_BY_WORD:
        return COMMANDS_BY_WORD[text.lower()], ""
    if not text.startswith("/") or text.startswith(ESCAPE):
        return None
    word = re.split(r"\s", text[1:], maxsplit=1)[0]
    rest = text[1 + len(word) :].strip()
    found = COMMANDS_BY_NAME.get(word.lower())
    if found is not None:
        if rest and not found.takes:
            raise UsageError(f"/{found.name} takes nothing after its name; nothing was done.")
        return found, rest
    if "/" in word or not word:
        return None
    raise UsageError(
        f"There is no command /{word}; /help lists them. To say it to the model, begin with //."
    )


def unescape_message(line: str) -> str:
    """The message of a line: // stands for a slash."""
    return line[1:] if line.startswith(ESCAPE) else line


def _parse_number(text: str) -> int | None:
    if not text:
        return None
    digits = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    if not digits or int(text) == 0:
        raise UsageError(
            f"Give a whole number from 1 on, not '{one_line(text, longest=MAX_SHOWN)}'."
        )
    return int(text)
