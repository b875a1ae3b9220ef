"""`cllm chat`: parses the options and starts the chat of `cllm.repl`."""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cllm.cli import completion
from cllm.cli.inputs import (
    WIDE_HELP,
    HelpCommand,
    OptionError,
    cllm_path_option,
    command_line,
    conversations_path_option,
    current_environment,
    piped_input,
    store_option,
    system_file_option,
    trust_option,
)
from cllm.cli.main import EXIT_ERROR
from cllm.core.errors import UsageError
from cllm.settings.layers import BOOLEAN_WORDS, LayeredSettings, user_folder
from cllm.settings.sections import MAX_WINDOW
from cllm.terminal import one_line

if TYPE_CHECKING:
    from cllm.app import App
    from cllm.engine.tool_rounds import ToolBox
    from cllm.providers.local.models import DownloadEvent
    from cllm.repl.chat import ApplySchema, Chat, ChatOptions
    from cllm.repl.loop import InputReader
    from cllm.repl.screen import Screen
    from cllm.settings.load import Settings

HELP = """Chat with a language model in the terminal.

Without ID, a new conversation gets an automatic ID. With ID, the chat continues or creates
that conversation. In the chat, /help lists the commands. If standard input is not a terminal, each
line is a message."""
EXAMPLES = (
    "cllm chat",
    "cllm chat cats",
    "cllm chat -c",
    'cllm chat -m openai/gpt-4o --system "Answer in one sentence."',
    "cllm chat --no-save < questions.txt",
)

HISTORY = "chat_history"
MEMORY_STORE = "memory:"


@click.command(
    cls=HelpCommand, name="chat", help=HELP, examples=EXAMPLES, context_settings=WIDE_HELP
)
@click.argument(
    "ref", metavar="[ID]", required=False, shell_complete=completion.complete_conversations
)
@click.option(
    "-c",
    "--continue",
    "continues",
    is_flag=True,
    help="Continue the last conversation used here.",
)
@completion.model_option
@click.option("--system", metavar="TEXT", help="System prompt of a new conversation.")
@system_file_option
@click.option(
    "--max-turns",
    type=click.IntRange(1, MAX_WINDOW),
    help="Maximum number of earlier turns to send (default: the configured window, else 10).",
)
@click.option("--no-stats", is_flag=True, help="Do not print usage and cost after each reply.")
@click.option("--no-save", is_flag=True, help="Do not store the conversation.")
@click.option("--debug", is_flag=True, help="Log everything that cllm does.")
@store_option
@conversations_path_option
@cllm_path_option
@trust_option
def command(ref: str | None, **options: Any) -> int:
    if options["no_save"] and ref is not None:
        raise OptionError("--no-save always starts a new conversation; omit the ID.")
    if options["continues"] and (ref is not None or options["no_save"]):
        raise OptionError("Use -c without an ID and without --no-save.")
    if options["model"] == "":
        raise OptionError("-m needs the name of a model, such as openai/gpt-4o.")
    settings = _load_settings(options)
    chat_options = _build_chat_options(options, settings)
    return _run_chat(settings, chat_options, ref, continues=options["continues"])


def _load_settings(options: dict[str, Any]) -> "Settings":
    from cllm.cli.trust import build_settings_with_warnings, load_trusted_layers

    env = current_environment()
    values = {name: options[name] for name in ("model", "store", "conversations_path")}
    line = command_line(options, values | {"debug": options["debug"] or None})
    layered = _add_variables(load_trusted_layers(env, line), env.environment)
    return build_settings_with_warnings(layered, env, line)


def _parse_number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise UsageError(f"{name} must be a number such as 0.7, not '{one_line(text)}'.")
    return number


def _parse_whole_number(name: str, text: str) -> int:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_WINDOW))
    if not digits or not 1 <= int(text) <= MAX_WINDOW:
        raise UsageError(
            f"{name} must be a whole number from 1 to {MAX_WINDOW}, not '{one_line(text)}'."
        )
    return int(text)


# Environment variables that other chat programs use too: setting and parser. Many programs read
# DEBUG, so a value that is not a boolean is not an error.
VARIABLES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "MODEL_NAME": ("model", lambda _, text: text),
    "MAX_TOKENS": ("max_tokens", _parse_whole_number),
    "TEMPERATURE": ("temperature", _parse_number),
    "DEBUG": ("debug", lambda _, text: BOOLEAN_WORDS.get(text.lower(), False)),
}


def _add_variables(layered: LayeredSettings, environment: Mapping[str, str]) -> LayeredSettings:
    """Add the environment variables of other programs below all layers."""
    values, sources = {}, {}
    for name, (key, read) in VARIABLES.items():
        is_set = layered.values.get(key) is not None
        if key == "debug":
            is_set = is_set or layered.values.get("verbosity") is not None
        if environment.get(name) and not is_set:
            values[key], sources[key] = read(name, environment[name].strip()), name
    return msgspec.structs.replace(
        layered, values={**layered.values, **values}, sources={**layered.sources, **sources}
    )


def _build_chat_options(options: dict[str, Any], settings: "Settings") -> "ChatOptions":
    from cllm.repl.chat import ChatOptions
    from cllm.window.strategies import ByTurns

    environment = settings.env.environment
    max_turns = options["max_turns"]
    if max_turns is None and environment.get("MAX_CONTEXT_TURNS"):
        max_turns = _parse_whole_number(
            "MAX_CONTEXT_TURNS", environment["MAX_CONTEXT_TURNS"].strip()
        )
    show_stats = environment.get("SHOW_STATS", "").strip().lower()
    if show_stats and show_stats not in BOOLEAN_WORDS:
        raise UsageError(f"SHOW_STATS must be true or false, not '{one_line(show_stats)}'.")
    default = None if settings.window.is_configured else ByTurns()
    return ChatOptions(
        window=default if max_turns is None else ByTurns(max_turns=max_turns),
        show_stats=not options["no_stats"] and BOOLEAN_WORDS.get(show_stats, True),
        is_saved=not options["no_save"],
    )


def _run_chat(
    settings: "Settings", options: "ChatOptions", ref: str | None, *, continues: bool
) -> int:
    from cllm.repl.loop import run_chat
    from cllm.repl.screen import Screen

    environment = settings.env.environment
    screen = Screen(sys.stdout, sys.stderr, environment=environment, draws=settings.verbosity == 0)
    apply_schema = None
    with contextlib.ExitStack() as stack:
        if settings.schema is not None:
            from cllm.cli.schema import open_checker, require_schema

            checker = stack.enter_context(open_checker(settings.schema, settings.env))
            apply_schema = partial(require_schema, checker)
        chat = _open_chat(settings, options, screen, apply_schema=apply_schema)
        if continues:
            ref = _find_last(chat)
        is_interactive = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        reader = _open_reader(chat, is_interactive=is_interactive)
        asyncio.run(run_chat(chat, reader, ref=ref, confirms_exit=is_interactive))
    return EXIT_ERROR if chat.failures and not is_interactive else 0


def _find_last(chat: "Chat") -> str:
    from cllm.cli.continuation import find_last_conversation

    last = find_last_conversation(chat.app.settings)
    chat.screen.note(f"Continuing conversation: {last.ref}")
    return last.id


def _open_chat(
    settings: "Settings",
    options: "ChatOptions",
    screen: "Screen",
    *,
    apply_schema: "ApplySchema | None",
) -> "Chat":
    from cllm.app import App
    from cllm.cli.attachments import read_attachments
    from cllm.cli.progress import Progress
    from cllm.repl.chat import Chat
    from cllm.settings.load import use_single_store

    progress = Progress()

    def report(event: "DownloadEvent") -> None:
        screen.settle_answer()
        progress(event)

    new_log = None
    if settings.verbosity > 0 or settings.log_file is not None:
        from cllm.cli.turn_log import start_logging

        new_log = start_logging(settings)
    chat_settings = settings if options.is_saved else use_single_store(settings, MEMORY_STORE)
    app = App(chat_settings, report=report, warn=screen.warn)
    return Chat(
        app,
        screen,
        options,
        attach=read_attachments,
        tools=_open_tools(app, screen),
        open_saved_app=lambda: App(settings, report=report, warn=screen.warn),
        new_log=new_log,
        apply_schema=apply_schema,
    )


def _open_tools(app: "App", screen: "Screen") -> "ToolBox | None":
    if not app.settings.allow_commands:
        return None
    from cllm.cli.confirmation import terminal_confirm

    ask = terminal_confirm()

    async def confirm(command: str, reason: str) -> bool:
        with screen.show_typing():
            return ask is not None and await ask(command, reason)

    return app.command_tool(
        app.settings.commands, confirm=None if ask is None else confirm, report=screen.note
    )


def _open_reader(chat: "Chat", *, is_interactive: bool) -> "InputReader":
    """Return a reader with line editing if the terminal supports it."""
    from cllm.repl.loop import LineReader
    from cllm.repl.screen import MIN_COLUMNS

    env = chat.app.settings.env
    can_edit = env.environment.get("TERM", "dumb") not in ("dumb", "unknown", "")
    can_edit = can_edit and shutil.get_terminal_size().columns > MIN_COLUMNS
    if not (is_interactive and chat.screen.is_terminal and can_edit):
        lines = sys.stdin.buffer if is_interactive else piped_input()
        prompt_to = sys.stderr if is_interactive else None
        return LineReader(lines, prompt_to=prompt_to, warn=chat.screen.note)
    from cllm.repl.format import status_line
    from cllm.repl.input import ChatCompleter, TerminalReader, open_history

    return TerminalReader(
        history=open_history(user_folder(env) / HISTORY if chat.options.is_saved else None),
        completer=ChatCompleter(chat),
        status=lambda: status_line(chat.model, chat.conversation, is_saved=chat.options.is_saved),
    )
