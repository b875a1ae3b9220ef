"""`cllm PROMPT`: the options of a turn, and the flags that list, show and delete."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from cllm.cli import completion, output
from cllm.cli.inputs import (
    NO_PROMPT,
    WIDE_HELP,
    HelpCommand,
    OptionError,
    cllm_path_option,
    command_line,
    conversations_path_option,
    current_environment,
    is_interactive,
    read_piped_text,
    store_option,
    system_file_option,
    trust_option,
)
from cllm.core.conversation import FILES_PREFIX, is_valid_id
from cllm.core.errors import InvalidIdError, UsageError
from cllm.core.message import AnyPart
from cllm.settings.cllmfile import FILE_NAME
from cllm.settings.layers import CommandLine, list_config_names
from cllm.settings.sections import MAX_VERBOSITY
from cllm.settings.variables import Value, parse_variable

AUTOMATIC = "\0automatic"
SCHEMA_OPTIONS = ("schema", "json_schema", "json_schema_file")
STANDARD_INPUT = "-"
# Whether the prompt follows `--`.
LITERAL = "cllm.literal"
REF: dict[str, Any] = {"metavar": "ID", "shell_complete": completion.complete_conversations}
SETTINGS = (
    *("model", "temperature", "max_tokens", "stream", "store", "conversations_path", "log_file"),
    *("json_schema", "json_schema_file"),
)

HELP = """Send PROMPT and standard input to a language model and print the reply."""
EXAMPLES = (
    'git diff | cllm -m openai/gpt-4o "Write a commit message."',
    'cllm "My cat is called Luna." --conversation cats',
)


class AskCommand(HelpCommand):
    """The command without a name; messages call it `cllm`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        return super().make_context("cllm", args, parent=None, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[LITERAL] = "--" in args
        after_flag = (word for flag, word in pairwise(args) if flag == "-c")
        for word in after_flag:
            self._check_is_no_config(ctx, args, word)
        words = tuple(args)
        try:
            rest = super().parse_args(ctx, args)
            if not ctx.resilient_parsing:
                self._check_all(ctx.params)
        except (click.UsageError, OptionError):
            from cllm.cli.command_words import check_arguments

            check_arguments(words)
            raise
        return rest

    def _check_all(self, options: dict[str, Any]) -> None:
        if options["every_place"] and not options["list_conversations"]:
            raise OptionError("--all needs --list-conversations.")

    def _check_is_no_config(self, ctx: click.Context, args: list[str], word: str) -> None:
        """`-c NAME` was the flag of settings files."""
        name = word.removesuffix(f".{FILE_NAME}")
        try:
            values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        except click.UsageError:
            values = {}
        path = values.get("cllm_path")
        line = CommandLine(cllm_path=None if path is None else Path(path))
        if name in list_config_names(current_environment(), line):
            raise OptionError(
                f"-c continues the last conversation; to apply {name}.{FILE_NAME}, use: -C {name}"
            )

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from cllm.cli.help import write_main_help

        write_main_help(self, ctx, formatter)


@click.command(
    cls=AskCommand, name="cllm", help=HELP, examples=EXAMPLES, context_settings=WIDE_HELP
)
@click.argument("prompt", required=False, shell_complete=completion.complete_commands)
@completion.model_option
@click.option("-t", "--temperature", type=float, metavar="NUMBER", help="Sampling temperature.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="Maximum number of tokens in the reply."
)
@click.option(
    "-s/",
    "--stream/--no-stream",
    default=None,
    help="Print the reply as it arrives, or at the end.",
)
@click.option("-x", "--extract", is_flag=True, help="Print only the first code block of the reply.")
@click.option("--raw", is_flag=True, help="Print the provider's JSON response; save nothing.")
@click.option("--system", metavar="TEXT", help="System prompt.")
@system_file_option
@click.option(
    "--system-policy",
    type=click.Choice(["captured", "dynamic"]),
    default="captured",
    help="captured (default): store the system prompt with the conversation; "
    "dynamic: do not store it.",
)
@click.option(
    "--conversation",
    is_flag=False,
    flag_value=AUTOMATIC,
    default=None,
    metavar="[ID]",
    shell_complete=completion.complete_conversations,
    help="Continue conversation ID, or start it; without ID, start one with an automatic ID.",
)
@click.option(
    "-a",
    "--attach",
    "attachments",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="Attach an image, PDF or text file (repeatable).",
)
@click.option(
    "--exec",
    "exec_commands",
    multiple=True,
    metavar="COMMAND",
    help="Add a command's output to the prompt (repeatable).",
)
@click.option(
    "--no-context-exec", is_flag=True, help="Do not run the `context_commands` of the Cllmfile."
)
@click.option(
    "--allow-commands", is_flag=True, help="Let the model run commands that the rules allow."
)
@click.option(
    "--command-allow",
    multiple=True,
    metavar="PATTERN",
    help="Allow commands such as 'git log*' (repeatable).",
)
@click.option(
    "--command-deny",
    multiple=True,
    metavar="PATTERN",
    help="Deny commands, even allowed ones (repeatable).",
)
@click.option("--confirm-commands", is_flag=True, help="Ask you before the model runs a command.")
@click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a variable of the Cllmfile (repeatable).",
)
@click.option("--read-only", is_flag=True, help="Send the conversation, but do not save this turn.")
@click.option("--list-conversations", is_flag=True, help="List the stored conversations.")
@click.option(
    "--all", "every_place", is_flag=True, help="List the conversations of every known location."
)
@click.option("--show-conversation", **REF, help="Print a conversation.")
@click.option("--delete-conversation", **REF, help="Delete a conversation permanently.")
@click.option(
    "-c",
    "--continue",
    "continues",
    is_flag=True,
    help="Continue the last conversation used here.",
)
@click.option(
    "-C",
    "--config",
    metavar="NAME",
    shell_complete=completion.complete_configs,
    help="Apply NAME.Cllmfile.yml on top of Cllmfile.yml.",
)
@click.option(
    "-T",
    "--template",
    metavar="NAME",
    shell_complete=completion.complete_templates,
    help="Use a prompt template (cllm templates list).",
)
@click.option("--show-config", is_flag=True, help="Print the effective settings and their sources.")
@click.option("--schema", metavar="FIELDS", help="Require JSON with these fields: 'name, age int'.")
@click.option(
    "--json-schema", metavar="JSON", help="Require a JSON reply that matches this schema."
)
@click.option(
    "--json-schema-file",
    metavar="FILE",
    type=click.Path(),
    help="Read the JSON schema from a file or an https URL.",
)
@click.option(
    "--validate-schema", is_flag=True, help="Check the JSON schema without sending a prompt."
)
@click.option("--clear-schema-cache", is_flag=True, help="Delete the downloaded schemas.")
@click.option("--list-models", is_flag=True, help="List the available models.")
@store_option
@conversations_path_option
@cllm_path_option
@click.option("-v", "verbosity", count=True, help="Log activity; -vv logs more, -vvv everything.")
@click.option("--debug", is_flag=True, help="Log everything, same as -vvv.")
@click.option("--json-logs", is_flag=True, help="Log as JSON, one record per line.")
@click.option("--log-file", metavar="PATH", help="Log to a file as well.")
@trust_option
@click.option("--version", is_flag=True, help="Print the version.")
def command(**options: Any) -> None:
    """Run a turn, or the flag that replaces it."""
    if options["version"]:
        from cllm import __version__

        output.print_line(f"cllm {__version__}")
        return
    if options["clear_schema_cache"]:
        from cllm.cli.schema import clear_schema_cache

        clear_schema_cache()
        return
    line = _command_line(options)
    managed = ("show_conversation", "delete_conversation")
    if options["list_conversations"] or any(options[name] is not None for name in managed):
        _manage_conversations(options, line)
    elif options["show_config"]:
        from cllm.cli.show_config import show_config

        show_config(current_environment(), line)
    elif options["validate_schema"]:
        from cllm.cli.schema import validate_schema

        validate_schema(line)
    elif options["list_models"]:
        from cllm.cli.models import print_models

        print_models(line)
    else:
        _ask(options, line)


def _manage_conversations(options: dict[str, Any], line: CommandLine) -> None:
    if options["list_conversations"]:
        from cllm.cli.conversations.list import print_conversations

        print_conversations(line, every_place=options["every_place"])
    elif options["show_conversation"] is not None:
        from cllm.cli.conversations.show import print_conversation

        print_conversation(line, options["show_conversation"])
    else:
        from cllm.cli.conversations.delete import delete_conversation

        delete_conversation(line, options["delete_conversation"])


def _command_line(options: dict[str, Any]) -> CommandLine:
    if options["temperature"] is not None and not math.isfinite(options["temperature"]):
        raise OptionError("-t needs a number, such as 0.7.")
    if options["model"] == "":
        raise OptionError("-m needs the name of a model, such as openai/gpt-4o.")
    schemas = [name for name in SCHEMA_OPTIONS if options[name] is not None]
    if len(schemas) > 1:
        names = [f"--{name.replace('_', '-')}" for name in schemas]
        raise OptionError(f"Use either {' or '.join(names)}, not both.")
    if options["schema"] is not None:
        options = options | {"json_schema": _expand_schema(options["schema"])}
    if options["extract"] and options["raw"]:
        raise OptionError("Use either -x or --raw, not both.")
    flags = {
        "raw_response": options["raw"] or None,
        "verbosity": min(options["verbosity"], MAX_VERBOSITY) or None,
        "debug": options["debug"] or None,
        "json_logs": options["json_logs"] or None,
    }
    config = options["config"]
    return command_line(
        options,
        flags | {name: options[name] for name in SETTINGS},
        template=options["template"],
        config=None if config is None else config.removesuffix(f".{FILE_NAME}"),
        variables=dict(map(_parse_variable, options["variables"])),
    )


def _expand_schema(text: str) -> str:
    """Return the JSON schema of a short form; JSON is used as it is."""
    if text.lstrip().startswith("{"):
        return text
    import msgspec

    from cllm.schemas.short_form import parse_short_schema

    try:
        return msgspec.json.encode(parse_short_schema(text)).decode()
    except UsageError as error:
        raise OptionError(str(error)) from error


def _parse_variable(text: str) -> tuple[str, Value]:
    try:
        return parse_variable(text)
    except UsageError as error:
        raise OptionError(str(error)) from error


def _ask(options: dict[str, Any], line: CommandLine) -> None:
    prompt, ref = _split_prompt_and_ref(options["prompt"], options["conversation"])
    if options["continues"] and ref is not None:
        raise OptionError("Use either -c or --conversation, not both.")
    if options["read_only"] and ref in (None, AUTOMATIC) and not options["continues"]:
        raise OptionError("--read-only needs --conversation with an existing ID.")
    attachments: tuple[AnyPart, ...] = ()
    if options["attachments"]:
        from cllm.cli.attachments import read_attachments

        attachments = read_attachments(options["attachments"])
    if not all(command.strip() for command in options["exec_commands"]):
        raise OptionError("--exec needs a command, such as --exec 'git status'.")
    has_template = options["template"] is not None
    text = _build_prompt_text(prompt, options["attachments"], has_template=has_template)
    from cllm.cli.turn import AskOptions, ask

    ask(
        current_environment(),
        line,
        AskOptions(
            text=text,
            attachments=attachments,
            ref=None if ref == AUTOMATIC else ref,
            extract=options["extract"],
            read_only=options["read_only"],
            automatic=ref == AUTOMATIC,
            continues=options["continues"],
            policy=options["system_policy"],
            exec_commands=options["exec_commands"],
            context_exec=not options["no_context_exec"],
            allow_commands=options["allow_commands"],
            command_allow=options["command_allow"],
            command_deny=options["command_deny"],
            confirm_commands=options["confirm_commands"],
        ),
    )


def _split_prompt_and_ref(
    prompt: str | None, conversation: str | None
) -> tuple[str | None, str | None]:
    """Without a prompt, a value of --conversation that is not a valid ID is the prompt."""
    if conversation in (None, AUTOMATIC) or is_valid_id(
        (conversation or "").removeprefix(FILES_PREFIX)
    ):
        return prompt, conversation
    if prompt is None:
        return conversation, AUTOMATIC
    raise InvalidIdError(conversation or "")


def _build_prompt_text(
    prompt: str | None, files: tuple[str, ...], *, has_template: bool = False
) -> str:
    """Join the prompt and standard input, unless that is an attachment.

    The text is empty only with files or a template.
    """
    piped = None if STANDARD_INPUT in files else read_piped_text()
    if prompt is not None and not piped and not has_template:
        _check_word(prompt.strip())
    text = "\n".join(part for part in (prompt, piped) if part)
    if text.strip():
        return text
    if not files and not has_template:
        raise UsageError(NO_PROMPT)
    return ""


def _check_word(prompt: str) -> None:
    context = click.get_current_context(silent=True)
    is_literal = context is not None and context.meta.get(LITERAL, False)
    if is_literal or not prompt or prompt.split() != [prompt]:
        return
    from cllm.cli.main import list_command_words

    if is_interactive() or prompt in list_command_words():
        from cllm.cli.command_words import check_word

        check_word(prompt)
