"""The commands of a chat, in the order of `/help`. Each receives the text after its name."""

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from cllm.core.conversation import check_id, check_title
from cllm.core.errors import UsageError
from cllm.core.ports import Changes
from cllm.engine.conversation_search import (
    FoundConversation,
    describe_no_results,
    search_conversations,
)
from cllm.engine.summaries import SummarySaved, SummaryStarted
from cllm.files import write_new_file
from cllm.history.system_prompt import GivenPrompt
from cllm.repl.chat import Chat
from cllm.repl.format import (
    MAX_TITLE,
    empty_list_lines,
    format_list_lines,
    format_price,
    format_standing_summary,
    format_usage,
    last_turn_with_usage,
    pin_lines,
    stats_lines,
    tail_lines,
    window_lines,
)
from cllm.repl.screen import wrap_line
from cllm.repl.turn import run_chat_turn
from cllm.settings.layers import expand_home
from cllm.terminal import cut_cells, one_line, pluralize
from cllm.window.cache_report import build_cache_report
from cllm.wire.conversation_file.codec import encode_conversation
from cllm.wire.conversation_file.transcript import encode_markdown, transcript_of

Action = Callable[[Chat, str], Awaitable[None]]
ESCAPE = "//"
HELP_FOOTER = (
    "Any other input is sent to the model. Alt-Enter, or a backslash at the end of a line, starts "
    "a new line. Ctrl-C stops a reply."
)
DEFAULT_LISTED = 20
MAX_FOUND = 20
OPEN_COMMAND = "open them with: cllm chat --store"
MAX_SHOWN = 60
MAX_DIGITS = 9


class ExitChat(BaseException):
    """The user leaves the chat."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`is_word`: the name also works without a slash, alone on a line."""

    name: str
    argument: str
    description: str
    action: Action
    aliases: tuple[str, ...] = ()
    is_word: bool = False
    completes: Literal["conversations", "models", "files"] | None = None


COMMANDS: list[Command] = []


def command(
    name: str, argument: str, description: str, *aliases: str, **options: Any
) -> Callable[[Action], Action]:
    def add(action: Action) -> Action:
        COMMANDS.append(
            Command(
                name=name,
                argument=argument,
                description=description,
                aliases=aliases,
                action=action,
                **options,
            )
        )
        return action

    return add


@command("help", "", "List the commands.", "h", "?")
async def show_help(chat: Chat, _rest: str) -> None:
    chat.screen.print_lines(help_lines(chat.screen.columns))


def help_lines(columns: int | None = None) -> list[str]:
    heads = [(f"/{row.name} {row.argument}".rstrip(), row) for row in COMMANDS]
    width = max(len(head) for head, _ in heads) + 2
    lines = [f"{head:<{width}}{row.description}{_aliases_text(row)}" for head, row in heads]
    return [
        *(cut for line in lines for cut in wrap_line(line, columns, indent=" " * width)),
        "",
        *wrap_line(HELP_FOOTER, columns),
    ]


def _aliases_text(row: Command) -> str:
    words = [row.name, *row.aliases[:1]] if row.is_word else []
    names = [*words, *(f"/{alias}" for alias in row.aliases)]
    return f" (also {', '.join(names)})" if names else ""


@command("new", "", "Start a new conversation; this one remains stored.")
async def new(chat: Chat, _rest: str) -> None:
    chat.new()
    chat.screen.note(f"New conversation: {chat.ref}")


@command("clear", "", "Start a new conversation, like /new.", is_word=True)
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
        for line in empty_list_lines(chat.app.store_urls, others, advice=OPEN_COMMAND):
            chat.screen.note(line)
        if not chat.options.is_saved:
            chat.screen.note("This chat was started with --no-save; /save ID stores it.")
    chat.screen.print_lines(format_list_lines(page.items, chat.screen.columns))


@command("open", "ID", "Open another conversation.", completes="conversations")
async def open_conversation(chat: Chat, rest: str) -> None:
    if not rest:
        raise UsageError("/open needs an ID; /list shows the conversations.")
    notices = await chat.open(rest)
    show_tail(chat)
    for notice in notices:
        chat.screen.warn(notice)


def show_tail(chat: Chat) -> None:
    if chat.conversation is not None:
        chat.screen.print_lines(tail_lines(chat.conversation))


@command("search", "TEXT", "Search the conversations.")
async def search(chat: Chat, rest: str) -> None:
    if not rest:
        raise UsageError("/search needs a text: /search TEXT.")
    found = await search_conversations(chat.app.store, rest)
    results = found.items
    shown = results[:MAX_FOUND]
    columns = chat.screen.columns
    for one in shown:
        match = f"    {_match_text(one)}"
        chat.screen.print_lines(format_list_lines([one.summary], columns))
        chat.screen.print_lines([match if columns is None else cut_cells(match, columns)])
    if len(results) > MAX_FOUND:
        chat.screen.note(f"Only the newest {MAX_FOUND} are shown; there may be more.")
    if not results:
        chat.screen.note(describe_no_results(one_line(rest), "active", more=found.more))


def _match_text(found: FoundConversation) -> str:
    if found.is_in_title:
        return f"in the title: {one_line(found.summary.title or '')}"
    best = found.hits[0]
    return f"{best.sequence} {best.role}: {one_line(best.snippet)}"


@command("model", "[NAME]", "Show the model, or continue with another model.", completes="models")
async def model(chat: Chat, rest: str) -> None:
    if not rest:
        chat.screen.print_lines([chat.model])
        return
    name = chat.app.settings.expand_alias(rest)
    chat.app.find_route(name)
    chat.named_model = name
    chat.screen.note(f"The model is {name}, from the next message on.")


@command("system", "[TEXT]", "Show the system prompt, or continue with another prompt.")
async def system(chat: Chat, rest: str) -> None:
    conversation = chat.conversation
    if not rest:
        stored = chat.system if conversation is None else conversation.system
        current = chat.next_system or stored
        text = None if current is None else current.text
        chat.screen.print_lines([text or "There is no system prompt."])
        return
    prompt = GivenPrompt(text=rest, source="--system", explicit=True)
    if conversation is None:
        chat.system = prompt
        chat.screen.note("The conversation will use this system prompt.")
    else:
        chat.next_system = prompt
        chat.screen.note(
            f"The next message continues with this prompt in a branch; {chat.ref} is unchanged."
        )


@command("context", "[COMMAND]", "Show the context, or run a shell command for the next message.")
async def context(chat: Chat, rest: str) -> None:
    if rest:
        chat.exec_commands += (rest,)
        chat.screen.note("The command runs with the next message.")
        return
    chat.screen.print_lines(_context_lines(chat))


def _context_lines(chat: Chat) -> Iterator[str]:
    record = None if chat.conversation is None else chat.conversation.context_record
    captured = () if record is None else record.commands
    for outcome in captured:
        yield f"captured at the start: {one_line(outcome.command)} ({outcome.state})"
    for configured in chat.app.settings.context:
        if configured.kind == "dynamic" or chat.conversation is None:
            when = "with every message" if configured.kind == "dynamic" else "at the start"
            yield f"runs {when}: {one_line(configured.template)}"
    for line in chat.exec_commands:
        yield f"runs with the next message: {one_line(line)}"
    if not (chat.app.settings.context or chat.exec_commands or captured):
        yield "There are no context commands."
    yield from format_standing_summary(chat.conversation)
    yield from pin_lines(chat.conversation)


@command("attach", "[FILE]", "Attach a file to the next message.", completes="files")
async def attach(chat: Chat, rest: str) -> None:
    if rest:
        chat.attachments += chat.attach(_file_names(rest))
    text = f"Attached to the next message: {pluralize(len(chat.attachments), 'file')}."
    if rest:
        chat.screen.note(text)
    else:
        chat.screen.print_lines([text])


def _file_names(rest: str) -> list[str]:
    """Return one existing file, whose name may contain spaces, else names as in a shell."""
    whole = os.path.expanduser(rest)  # noqa: PTH111 - a URL is not a path
    if os.path.exists(whole):  # noqa: PTH110
        return [whole]
    try:
        words = shlex.split(rest)
    except ValueError:
        return [whole]
    return [os.path.expanduser(word) for word in words]  # noqa: PTH111


@command("regenerate", "", "Regenerate the last reply; the old one becomes a variant.", "retry")
async def regenerate(chat: Chat, _rest: str) -> None:
    await run_chat_turn(chat, await chat.build_regeneration())


@command("undo", "", "Delete the last turn permanently.")
async def undo(chat: Chat, _rest: str) -> None:
    messages = await chat.undo()
    text = " ".join(message.text for message in messages if message.role == "user")
    chat.screen.note(f"Deleted the last turn: {one_line(text, max_length=MAX_TITLE)}")


@command("branch", "[N]", "Continue in a branch, with the messages up to number N.")
async def branch(chat: Chat, rest: str) -> None:
    before = await chat.branch(at=_parse_number(rest))
    chat.screen.note(f"Continuing in branch {chat.ref}; {before} is unchanged.")


@command("title", "[TEXT]", "Show or set the title.")
async def title(chat: Chat, rest: str) -> None:
    if rest:
        chat.title = check_title(one_line(rest))
        if chat.conversation is not None:
            await chat.app.store.update(chat.ref, Changes(title=chat.title))
            await chat.reload()
        chat.screen.note(f"The title is: {one_line(rest, max_length=MAX_TITLE)}")
        return
    stored = None if chat.conversation is None else chat.conversation.title
    chat.screen.print_lines([stored or chat.title or "There is no title yet."])


@command("save", "[ID]", "Save the conversation, or a copy of it as ID.")
async def save(chat: Chat, rest: str) -> None:
    if not chat.options.is_saved:
        await chat.save_to_store(rest or None)
        chat.screen.note(f"Saved as {chat.ref}; new messages are saved too.")
    elif rest:
        before = await chat.branch(ref=check_id(rest))
        chat.screen.note(f"Continuing in the copy {chat.ref}; {before} is unchanged.")
    else:
        chat.screen.note(f"The conversation is saved as {chat.ref}; /save ID makes a copy.")


@command(
    "export",
    "FILE",
    "Write the conversation to FILE: JSON if it ends in .json, else Markdown.",
    completes="files",
)
async def export(chat: Chat, rest: str) -> None:
    is_quoted = rest[:1] in ("'", '"') and len(rest) > 1 and rest.endswith(rest[:1])
    name = rest[1:-1] if is_quoted else rest
    if not name:
        raise UsageError("/export needs a file: /export FILE.")
    chat.last_turn()
    conversation = chat.require_conversation()
    path = chat.app.settings.env.directory / expand_home(name)
    if path.suffix.lower() == ".json":
        data = encode_conversation(conversation)
    else:
        data = encode_markdown(transcript_of(conversation)).encode("utf-8", "replace")
    try:
        write_new_file(path, data)
    except FileExistsError as error:
        raise UsageError(f"'{path}' already exists; choose another file.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise UsageError(f"Cannot write '{one_line(str(path))}' ({reason.lower()}).") from error
    chat.screen.note(f"Written to {path}.")


@command("tokens", "", "Show the usage and the window of the last turn.")
async def tokens(chat: Chat, _rest: str) -> None:
    turn = last_turn_with_usage(chat.conversation)
    if turn is None or turn.usage is None:
        chat.screen.print_lines(["This conversation has no reply yet."])
        return
    lines = window_lines(chat.conversation)
    chat.screen.print_lines([f"The last turn: {format_usage(turn.usage)}.", *lines])


@command(
    "pin",
    "[N or list]",
    "Always send the turn of message N (default: the last); or list the pins.",
)
async def pin(chat: Chat, rest: str) -> None:
    if rest == "list":
        chat.screen.print_lines(pin_lines(chat.conversation) or ["Nothing is pinned."])
        return
    conversation = chat.require_conversation()
    number = _parse_number(rest) or conversation.message_count
    if number in conversation.pins:
        chat.screen.note(f"Message {number} is already pinned.")
        return
    await chat.pin(number)
    chat.screen.note(f"Message {number} is pinned: its turn is always sent.")


@command("unpin", "N", "Remove the pin of message N.")
async def unpin(chat: Chat, rest: str) -> None:
    conversation = chat.require_conversation()
    number = _parse_number(rest)
    if number is None or number not in conversation.pins:
        pinned = ", ".join(map(str, conversation.pins)) or "none"
        raise UsageError(f"/unpin needs the number of a pinned message. Pinned: {pinned}.")
    await chat.unpin(number)
    chat.screen.note(f"Message {number} is no longer pinned.")


@command("compact", "[undo]", "Summarise all turns except the newest, or undo the last summary.")
async def compact(chat: Chat, rest: str) -> None:
    if rest == "undo":
        chat.require_conversation()
        undone = await chat.app.engine().undo_summary(chat.ref)
        await chat.reload()
        first = 1 if undone.before is None else undone.before.through + 1
        chat.screen.note(
            f"The summary was removed: messages {first} to {undone.through} are sent again if they "
            "fit in the window."
        )
        return
    if rest:
        raise UsageError("Use /compact to make a summary, or /compact undo to remove the last one.")
    try:
        chat.require_conversation()
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
        return f"Summarising {messages} (request {event.piece} of {event.pieces}) …"
    summary = event.summary
    used = format_price(summary.usage, summary.cost)
    return (
        f"{pluralize(event.turns, 'turn')} summarised, up to message {summary.through}; the "
        f"messages remain stored. {used[0].upper()}{used[1:]}. /compact undo removes the summary."
    )


@command("stats", "", "Show the usage and cost of this conversation and this chat.", is_word=True)
async def stats(chat: Chat, _rest: str) -> None:
    conversations = () if chat.conversation is None else (chat.conversation,)
    report = build_cache_report(conversations, chat.app.prices.price_turn)
    chat.screen.print_lines(stats_lines(chat.conversation, report, chat.session_usage))


@command("quit", "", "Leave the chat, like Ctrl-D.", "exit", "q", is_word=True)
async def quit_chat(_chat: Chat, _rest: str) -> None:
    raise ExitChat


COMMANDS_BY_WORD = {
    name: row for row in COMMANDS if row.is_word for name in (row.name, *row.aliases[:1])
}
COMMANDS_BY_NAME = {name: row for row in COMMANDS for name in (row.name, *row.aliases)}


def parse_command(line: str) -> tuple[Command, str] | None:
    """Return the command of a line and its argument; None for a message to the model."""
    text = line.strip()
    if text.lower() in COMMANDS_BY_WORD:
        return COMMANDS_BY_WORD[text.lower()], ""
    if not text.startswith("/") or text.startswith(ESCAPE):
        return None
    word = re.split(r"\s", text[1:], maxsplit=1)[0]
    rest = text[1 + len(word) :].strip()
    command = COMMANDS_BY_NAME.get(word.lower())
    if command is not None:
        if rest and not command.argument:
            raise UsageError(f"/{command.name} takes no argument and was not run; enter it alone.")
        return command, rest
    if "/" in word or not word:
        return None
    raise UsageError(
        f"There is no command /{word}; /help lists the commands. "
        "To send the line to the model, start it with //."
    )


def unescape_message(line: str) -> str:
    """Return the message of a line; // at its start means a slash."""
    return line[1:] if line.startswith(ESCAPE) else line


def _parse_number(text: str) -> int | None:
    if not text:
        return None
    digits = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    if not digits or int(text) == 0:
        raise UsageError(
            f"Use a whole number of at least 1, not '{one_line(text, max_length=MAX_SHOWN)}'."
        )
    return int(text)
