"""The commands of a chat: one table, and how a line becomes one of its rows.

A row says everything about a command: completion and `/help` read it too. What a command does
stands in `cllm.repl.actions`.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from cllm.core.errors import UsageError
from cllm.repl import actions, window
from cllm.repl.chat import Chat
from cllm.repl.screen import wrapped

Completes = Literal["conversations", "models", "files"]
Action = Callable[[Chat, str], Awaitable[None]]
ESCAPE = "//"
OTHERWISE = (
    "Everything else is said to the model. Alt-Enter, or a backslash at the end of a line, begins "
    "a new line. Ctrl-C stops an answer."
)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command: its names, what it takes, what it is for and what it does.

    One that `is_word` is also meant when its name stands alone, without a slash.
    """

    name: str
    about: str
    action: Action
    takes: str = ""
    aliases: tuple[str, ...] = ()
    is_word: bool = False
    completes: Completes | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was given, and what stood after its name."""

    command: Command
    rest: str


async def _help(chat: Chat, _rest: str) -> None:
    chat.screen.say(help_lines(chat.screen.columns))


COMMANDS = (
    Command(name="help", aliases=("h", "?"), about="List the commands.", action=_help),
    Command(name="new", about="Begin a conversation; this one stays stored.", action=actions.new),
    Command(name="clear", is_word=True, about="The same, and say so.", action=actions.clear),
    Command(
        name="list", takes="[N]", about="List the newest conversations.", action=actions.list_newest
    ),
    Command(
        name="open",
        takes="ID",
        about="Go on with another conversation.",
        action=actions.open_conversation,
        completes="conversations",
    ),
    Command(
        name="search",
        takes="TEXT",
        about="Find conversations in which it was said.",
        action=actions.search,
    ),
    Command(
        name="model",
        takes="[NAME]",
        about="Show the model, or go on with another one.",
        action=actions.model,
        completes="models",
    ),
    Command(
        name="system",
        takes="[TEXT]",
        about="Show the system prompt, or go on under another one.",
        action=actions.system,
    ),
    Command(
        name="context",
        takes="[COMMAND]",
        about="Show the context, or run a shell command for the next message.",
        action=actions.context,
    ),
    Command(
        name="attach",
        takes="[FILE]",
        about="Show the model a file with the next message.",
        action=actions.attach,
        completes="files",
    ),
    Command(
        name="regenerate",
        aliases=("retry",),
        about="Ask the last message again; the old answer stays as a variant.",
        action=actions.regenerate,
    ),
    Command(name="undo", about="Take the last turn back, for good.", action=actions.undo),
    Command(
        name="branch",
        takes="[N]",
        about="Go on in a copy, with the messages up to number N.",
        action=actions.branch,
    ),
    Command(
        name="title", takes="[TEXT]", about="Show the title, or give one.", action=actions.title
    ),
    Command(
        name="save",
        takes="[ID]",
        about="Keep the conversation, or a copy of it under ID.",
        action=actions.save,
    ),
    Command(
        name="export",
        takes="FILE",
        about="Write the conversation as Markdown, or as JSON if FILE ends so.",
        action=actions.export,
        completes="files",
    ),
    Command(
        name="tokens", about="Show what the last turn used, and what it sent.", action=window.tokens
    ),
    Command(
        name="pin",
        takes="[N or list]",
        about="Send the turn of message N, or of the last one, every time; or list what is pinned.",
        action=window.pin,
    ),
    Command(name="unpin", takes="N", about="Do so no more.", action=window.unpin),
    Command(
        name="compact",
        takes="[undo]",
        about="Put all but the newest turn into a summary; or undo that.",
        action=window.compact,
    ),
    Command(
        name="stats",
        is_word=True,
        about="Show what this conversation and this chat used and cost.",
        action=actions.stats,
    ),
    Command(
        name="quit",
        aliases=("exit", "q"),
        is_word=True,
        about="Leave, as Ctrl-D does.",
        action=actions.leave,
    ),
)
WORDS = {name: row for row in COMMANDS if row.is_word for name in (row.name, *row.aliases[:1])}
NAMES = {name: row for row in COMMANDS for name in (row.name, *row.aliases)}


def read_order(line: str) -> Order | None:
    """The command that a line gives; None if it is said to the model.

    What begins with a slash and is no command is a mistake, unless it looks like a path.
    """
    text = line.strip()
    if text.lower() in WORDS:
        return Order(command=WORDS[text.lower()], rest="")
    if not text.startswith("/") or text.startswith(ESCAPE):
        return None
    word = re.split(r"\s", text[1:], maxsplit=1)[0]
    rest = text[1 + len(word) :]
    command = NAMES.get(word.lower())
    if command is not None:
        return _ordered(command, rest.strip())
    if "/" in word or not word:
        return None
    raise UsageError(
        f"There is no command /{word}; /help lists them. To say it to the model, begin with //."
    )


def _ordered(command: Command, rest: str) -> Order:
    """The order; what a command does not take is not passed over in silence."""
    if rest and not command.takes:
        raise UsageError(f"/{command.name} takes nothing after its name; nothing was done.")
    return Order(command=command, rest=rest)


def said_in(line: str) -> str:
    """What is said to the model with a line that is no command: // stands for a slash."""
    return line[1:] if line.startswith(ESCAPE) else line


def help_lines(columns: int | None = None) -> list[str]:
    """A line for each command, cut between words where a terminal is only so wide."""
    heads = [(f"/{row.name} {row.takes}".rstrip(), row) for row in COMMANDS]
    width = max(len(head) for head, _ in heads) + 2
    lines = [f"{head:<{width}}{row.about}{_others(row)}" for head, row in heads]
    return [
        *(cut for line in lines for cut in wrapped(line, columns, indent=" " * width)),
        "",
        *wrapped(OTHERWISE, columns),
    ]


def _others(row: Command) -> str:
    words = [row.name, *row.aliases[:1]] if row.is_word else []
    names = [*words, *(f"/{alias}" for alias in row.aliases)]
    return f" (also {', '.join(names)})" if names else ""
