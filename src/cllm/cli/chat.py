"""`cllm chat`: talk with a model in the terminal. Parses, and hands over to `cllm.repl`."""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cllm.cli import completion, printing
from cllm.cli.inputs import given_prompt, here
from cllm.cli.main import EXIT_ERROR, Terminated
from cllm.core.errors import UsageError
from cllm.settings.layers import WORDS, CommandLine, Layered, Place, user_folder
from cllm.settings.sections import LARGEST_WINDOW
from cllm.terminal import one_line

if TYPE_CHECKING:
    from cllm.app import App
    from cllm.engine.rounds import ToolBox
    from cllm.providers.local.models import Event
    from cllm.repl.chat import Chat, ChatOptions, Hold
    from cllm.repl.loop import Reader
    from cllm.repl.screen import Screen
    from cllm.settings.load import Settings

HELP = """Talk with a language model in the terminal.

Every conversation is kept under an id of its own. With ID, go on with that one, or begin it. /help
lists what can be done in the chat. Without a terminal each line of standard input is a message.

\b
Examples:
  cllm chat
  cllm chat cats
  cllm chat -m openai/gpt-4o --system "Answer in one sentence."
  cllm chat --no-save < questions.txt"""

HISTORY = "chat_history"
UNSAVED = "memory:"
# Variables that other chat programs use too; whatever else says something goes over them.
OTHERS_VARIABLES = {
    "MODEL_NAME": "model",
    "MAX_TOKENS": "max_tokens",
    "TEMPERATURE": "temperature",
    "DEBUG": "debug",
}


@click.command(
    name="chat",
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("ref", metavar="[ID]", required=False, shell_complete=completion.conversations)
@click.option(
    "-m",
    "--model",
    metavar="MODEL",
    shell_complete=completion.models,
    help="The model, as provider/name.",
)
@click.option("--system", metavar="TEXT", help="The system prompt of a new conversation.")
@click.option(
    "--system-file", metavar="PATH", type=click.Path(path_type=Path), help="It, from a file."
)
@click.option(
    "--max-turns",
    type=click.IntRange(1, LARGEST_WINDOW),
    help="Send at most so many earlier turns (10).",
)
@click.option("--no-stats", is_flag=True, help="Do not say after each answer what it used.")
@click.option("--no-save", is_flag=True, help="Keep nothing of what is said.")
@click.option("--debug", is_flag=True, help="Say everything that is done.")
@click.option(
    "--store", metavar="URL", help="Where they are kept: json:PATH, sqlite:PATH, postgresql://…"
)
@click.option("--conversations-path", metavar="PATH", help="The folder of the conversation files.")
@click.option(
    "--cllm-path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="The folder to use in place of .cllm.",
)
@click.option("--trust", is_flag=True, help="Trust the Cllmfiles here, this time.")
def command(ref: str | None, **options: Any) -> int:
    """Talk until the person leaves; 1 if a line that was piped in went wrong."""
    if options["no_save"] and ref is not None:
        raise UsageError("--no-save begins a conversation of its own; leave out the ID.")
    if options["model"] == "":
        raise UsageError("Give -m a model's name, such as openai/gpt-4o.")
    place = here()
    settings = _settings(place, _command_line(options))
    return _talk(settings, _chat_options(options, settings), ref)


def _command_line(options: dict[str, Any]) -> CommandLine:
    names = ("model", "store", "conversations_path")
    values = {name: options[name] for name in names if options[name] is not None}
    return CommandLine(
        values=values | ({"debug": True} if options["debug"] else {}),
        system=given_prompt(options["system"], options["system_file"]),
        cllm_path=options["cllm_path"],
        trust=options["trust"],
    )


def _settings(place: Place, line: CommandLine) -> "Settings":
    from cllm.cli.trust import trusted_layers  # noqa: PLC0415 - reads files
    from cllm.settings.load import type_settings  # noqa: PLC0415

    layered = over_others_variables(trusted_layers(place, line), place.environment)
    settings = type_settings(layered, place, line)
    for notice in settings.notices:
        printing.warn(notice)
    return settings


def over_others_variables(layered: Layered, environment: Mapping[str, str]) -> Layered:
    """The layers, with the variables of other programs below them all."""
    given = {key: name for name, key in OTHERS_VARIABLES.items() if environment.get(name)}
    if layered.values.get("verbosity") is not None:
        given.pop("debug", None)
    found = {
        key: _read_variable(name, environment[name].strip())
        for key, name in given.items()
        if layered.values.get(key) is None
    }
    return msgspec.structs.replace(
        layered,
        values={**layered.values, **found},
        sources={**layered.sources, **{key: given[key] for key in found}},
    )


def _read_variable(name: str, text: str) -> Any:
    if name == "MAX_TOKENS":
        return whole_number(name, text)
    if name == "TEMPERATURE":
        return _number(name, text)
    if name == "DEBUG":
        # Many programs have this one, with words of their own; those are not for us.
        return WORDS.get(text.lower(), False)
    return text


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise UsageError(f"{name} must be a number such as 0.7, not '{one_line(text)}'.")
    return number


def whole_number(name: str, text: str) -> int:
    """A number from 1 on, as a variable has it."""
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_WINDOW))
    if not digits or not 1 <= int(text) <= LARGEST_WINDOW:
        raise UsageError(
            f"{name} must be a whole number from 1 to {LARGEST_WINDOW}, not '{one_line(text)}'."
        )
    return int(text)


def _chat_options(options: dict[str, Any], settings: "Settings") -> "ChatOptions":
    from cllm.assembly.window import ByTurns  # noqa: PLC0415 - with the rest of the chat
    from cllm.repl.chat import ChatOptions  # noqa: PLC0415

    environment = settings.place.environment
    most = options["max_turns"]
    if most is None and environment.get("MAX_CONTEXT_TURNS"):
        most = whole_number("MAX_CONTEXT_TURNS", environment["MAX_CONTEXT_TURNS"].strip())
    shown = environment.get("SHOW_STATS", "").strip().lower()
    if shown and shown not in WORDS:
        raise UsageError(f"SHOW_STATS must be true or false, not '{one_line(shown)}'.")
    usual = None if settings.window.is_given else ByTurns()
    return ChatOptions(
        window=usual if most is None else ByTurns(max_turns=most),
        show_stats=not options["no_stats"] and WORDS.get(shown, True),
        saves=not options["no_save"],
    )


def _talk(settings: "Settings", options: "ChatOptions", ref: str | None) -> int:
    from cllm.repl.loop import EndedBySignal, run_chat  # noqa: PLC0415
    from cllm.repl.screen import Screen  # noqa: PLC0415

    environment = settings.place.environment
    logged = settings.verbosity > 0 or settings.log_file is not None
    screen = Screen(sys.stdout, sys.stderr, environment=environment, draws=settings.verbosity == 0)
    with contextlib.ExitStack() as stack:
        hold = _hold(settings, stack)
        chat = _chat(settings, options, screen, hold=hold, logged=logged)
        has_person = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        reader = _reader(chat, has_person=has_person)
        try:
            asyncio.run(run_chat(chat, reader, ref=ref, patient=has_person))
        except EndedBySignal:
            raise Terminated from None
    return EXIT_ERROR if chat.failures and not has_person else 0


def _hold(settings: "Settings", stack: contextlib.ExitStack) -> "Hold | None":
    """What holds replies to the settings' JSON schema, for as long as the stack lasts."""
    if settings.schema is None:
        return None
    from cllm.cli.schema import held_to, open_checker  # noqa: PLC0415 - rarely needed

    checker = stack.enter_context(open_checker(settings.schema, settings.place))
    return partial(held_to, checker)


def _chat(
    settings: "Settings",
    options: "ChatOptions",
    screen: "Screen",
    *,
    hold: "Hold | None",
    logged: bool,
) -> "Chat":
    from cllm.app import App  # noqa: PLC0415
    from cllm.cli.attaching import attached_parts  # noqa: PLC0415
    from cllm.cli.progress import Progress  # noqa: PLC0415
    from cllm.cli.turn_log import TurnLog, start_logging  # noqa: PLC0415
    from cllm.repl.chat import Chat  # noqa: PLC0415

    progress = Progress()

    def report(event: "Event") -> None:
        screen.make_way()
        progress(event)

    if logged:
        start_logging(settings)
    used = settings if options.saves else msgspec.structs.replace(settings, store=UNSAVED)
    app = App(used, report=report)
    return Chat(
        app,
        screen,
        options,
        attach=attached_parts,
        tools=_tools(app, screen),
        open_kept=lambda: App(settings, report=report),
        new_log=(lambda: TurnLog().hear) if logged else None,
        hold=hold,
    )


def _tools(app: "App", screen: "Screen") -> "ToolBox | None":
    """What the model may use: commands, if the settings let it."""
    if not app.settings.allow_commands:
        return None
    from cllm.cli.confirming import terminal_confirm  # noqa: PLC0415 - rarely used

    ask = terminal_confirm()

    async def confirm(wanted: str, reason: str) -> bool:
        with screen.asking():
            return ask is not None and await ask(wanted, reason)

    return app.command_tool(
        app.settings.commands, confirm=None if ask is None else confirm, report=screen.note
    )


def _reader(chat: "Chat", *, has_person: bool) -> "Reader":
    """Line editing where there is a terminal that can do it, else lines as they come."""
    from cllm.repl.loop import LineReader  # noqa: PLC0415
    from cllm.repl.screen import NARROWEST  # noqa: PLC0415

    place = chat.app.settings.place
    able = place.environment.get("TERM", "dumb") not in ("dumb", "unknown", "")
    able = able and shutil.get_terminal_size().columns > NARROWEST
    if not (has_person and chat.screen.is_terminal and able):
        lines = None if sys.stdin is None or sys.stdin.closed else sys.stdin.buffer
        return LineReader(lines, asks=sys.stderr if has_person else None)
    from cllm.repl.input import (  # noqa: PLC0415 - loads slowly
        KnownNames,
        TerminalReader,
        open_history,
    )
    from cllm.repl.status import status_line  # noqa: PLC0415

    return TerminalReader(
        history=open_history(user_folder(place) / HISTORY if chat.options.saves else None),
        names=KnownNames(chat),
        status=lambda: status_line(chat.model, chat.conversation, saves=chat.options.saves),
    )
