"""The commands of a chat: one table, and how a line becomes one of its rows.

A row says everything about a command: completion and `/help` read it too. What a command does
stands in `cllm.repl.actions`.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from cllm.core.errors import UsageError
from cllm.repl import actions
from cllm.repl.chat import Chat
from cllm.repl.screen import wrapped

Completes = Literal["conversations", "models", "files"]
Action = Callable[[Chat, str], Awaitable[None]]
ESCAPE = "//"
OTHERWISE = (
    "Everything else is said to the model. Alt-Enter, or a backslash at the end of a line, begins "
    "a new line. Ctrl-C stops an answer."
)


class Command(msgspec.Struct, frozen=True):
    """A command: its name, its argument, its help and its action.

    One that `is_word` is also meant when its name stands alone, without a slash.
    """

    name: str
    takes: str
    about: str
    action: Action
    aliases: tuple[str, ...] = ()
    is_word: bool = False
    completes: Completes | None = None


async def _help(chat: Chat, _rest: str) -> None:
    chat.screen.say(help_lines(chat.screen.columns))


COMMANDS = (
    Command("help", "", "List the commands.", _help, aliases=("h", "?")),
    Command("new", "", "Begin a conversation; this one stays stored.", actions.new),
    Command("clear", "", "The same, and say so.", actions.clear, is_word=True),
    Command("list", "[N]", "List the newest conversations.", actions.list_newest),
    Command(
        "open",
        "ID",
        "Go on with another conversation.",
        actions.open_conversation,
        completes="conversations",
    ),
    Command("search", "TEXT", "Find conversations in which it was said.", actions.search),
    Command(
        "model",
        "[NAME]",
        "Show the model, or go on with another one.",
        actions.model,
        completes="models",
    ),
    Command(
        "system", "[TEXT]", "Show the system prompt, or go on under another one.", actions.system
    ),
    Command(
        "context",
        "[COMMAND]",
        "Show the context, or run a shell command for the next message.",
        actions.context,
    ),
    Command(
        "attach",
        "[FILE]",
        "Show the model a file with the next message.",
        actions.attach,
        completes="files",
    ),
    Command(
        "regenerate",
        "",
        "Ask the last message again; the old answer stays as a variant.",
        actions.regenerate,
        aliases=("retry",),
    ),
    Command("undo", "", "Take the last turn back, for good.", actions.undo),
    Command("branch", "[N]", "Go on in a copy, with the messages up to number N.", actions.branch),
    Command("title", "[TEXT]", "Show the title, or give one.", actions.title),
    Command("save", "[ID]", "Keep the conversation, or a copy of it under ID.", actions.save),
    Command(
        "export",
        "FILE",
        "Write the conversation as Markdown, or as JSON if FILE ends so.",
        actions.export,
        completes="files",
    ),
    Command("tokens", "", "Show what the last turn used, and what it sent.", actions.tokens),
    Command(
        "pin",
        "[N or list]",
        "Send the turn of message N, or of the last one, every time; or list what is pinned.",
        actions.pin,
    ),
    Command("unpin", "N", "Do so no more.", actions.unpin),
    Command(
        "compact",
        "[undo]",
        "Put all but the newest turn into a summary; or undo that.",
        actions.compact,
    ),
    Command(
        "stats",
        "",
        "Show what this conversation and this chat used and cost.",
        actions.stats,
        is_word=True,
    ),
    Command(
        "quit", "", "Leave, as Ctrl-D does.", actions.leave, aliases=("exit", "q"), is_word=True
    ),
)
WORDS = {name: row for row in COMMANDS if row.is_word for name in (row.name, *row.aliases[:1])}
NAMES = {name: row for row in COMMANDS for name in (row.name, *row.aliases)}


def read_order(line: str) -> tuple[Command, str] | None:
    """The command of a line and its argument; None if the line is for the model.

    What begins with a slash and is no command is a mistake, unless it looks like a path.
    """
    text = line.strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()], ""
    if not text.startswith("/") or text.startswith(ESCAPE):
        return None
    word = re.split(r"\s", text[1:], maxsplit=1)[0]
    rest = text[1 + len(word) :]
    command = NAMES.get(word.lower())
    if command is not None:
        if rest.strip() and not command.takes:
            raise UsageError(f"/{command.name} takes nothing after its name; nothing was done.")
        return command, rest.strip()
    if "/" in word or not word:
        return None
    raise UsageError(
        f"There is no command /{word}; /help lists them. To say it to the model, begin with //."
    )


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
