"""`cllm PROMPT`: one turn from the shell, and the flags that list, show and delete."""

import math
import sys
from pathlib import Path
from typing import Any

import click

from cllm.cli import completing
from cllm.cli.given import given_prompt
from cllm.cli.place import here
from cllm.core.errors import InvalidIdError, UsageError
from cllm.core.identity import is_valid_id
from cllm.settings.load import CommandLine

NO_PROMPT = "No prompt provided. Use 'cllm --help' for usage."
AUTOMATIC = "\0automatic"
MAX_INPUT_BYTES = 64 * 1024 * 1024

HELP = """Ask a language model, and keep the conversation whole.

PROMPT, standard input, or both are what you say. Without a conversation nothing is kept.

\b
Examples:
  cllm "Why is the sky blue?"
  git diff | cllm "Write a commit message for this."
  cllm "My cat is called Luna." --conversation cats
  cllm "What is my cat called?" --conversation cats
  cllm -m openai/gpt-4o "Name three rivers." """

EPILOG = """\b
Commands (each has its own --help):
  conversations  list, show, branch and delete conversations (also: c)
  models         fetch, list and remove local models
  trust          trust a Cllmfile that can run or redirect things
  completion     print what bash, zsh or fish needs to complete cllm's words

Exit codes: 0 done, 1 an error, 2 wrong usage, 130 Ctrl-C."""


class AskCommand(click.Command):
    """The command without a name of its own: to the person it is `cllm` itself."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        return super().make_context("cllm", args, parent=None, **extra)


@click.command(
    cls=AskCommand,
    name="cllm",
    help=HELP,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("prompt", required=False, shell_complete=completing.commands)
@click.option(
    "-m",
    "--model",
    metavar="MODEL",
    shell_complete=completing.models,
    help="The model, as provider/name.",
)
@click.option("-t", "--temperature", type=float, metavar="NUMBER", help="How freely to answer.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="At most so many tokens of answer.")
@click.option(
    "-s/", "--stream/--no-stream", default=None, help="Print as it comes (default), or at the end."
)
@click.option("--raw", is_flag=True, help="Print the provider's own JSON; nothing is kept.")
@click.option("--system", metavar="TEXT", help="The system prompt.")
@click.option(
    "--system-file", metavar="PATH", type=click.Path(path_type=Path), help="It, from a file."
)
@click.option(
    "--system-policy",
    type=click.Choice(["captured", "dynamic"]),
    default="captured",
    help="Whether a new conversation keeps its system prompt.",
)
@click.option(
    "--conversation",
    is_flag=False,
    flag_value=AUTOMATIC,
    default=None,
    metavar="[ID]",
    shell_complete=completing.conversations,
    help="Go on with a conversation, or begin it; without ID, a new one.",
)
@click.option("--read-only", is_flag=True, help="Send the conversation, but keep nothing.")
@click.option("--list-conversations", is_flag=True, help="List the conversations.")
@click.option(
    "--show-conversation",
    metavar="ID",
    shell_complete=completing.conversations,
    help="Print a conversation.",
)
@click.option(
    "--delete-conversation",
    metavar="ID",
    shell_complete=completing.conversations,
    help="Delete a conversation for good.",
)
@click.option("--list-models", is_flag=True, help="List the models that can be named here.")
@click.option("--store", metavar="URL", help="Where conversations are kept: json:PATH.")
@click.option("--conversations-path", metavar="PATH", help="The folder of the conversation files.")
@click.option(
    "--cllm-path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="The folder to use in place of .cllm.",
)
@click.option("--trust", is_flag=True, help="Trust the Cllmfiles here, this time.")
@click.option("--version", is_flag=True, help="Print the version.")
def command(**options: Any) -> None:
    """Choose what the options ask for, and do it."""
    if options["version"]:
        from cllm import __version__  # noqa: PLC0415

        click.echo(f"cllm {__version__}")
        return
    line = _command_line(options)
    managed = ("show_conversation", "delete_conversation")
    if options["list_conversations"] or any(options[name] is not None for name in managed):
        _manage(options, line)
    elif options["list_models"]:
        from cllm.cli.listing import list_models  # noqa: PLC0415

        list_models(line)
    else:
        _ask(options, line)


def _manage(options: dict[str, Any], line: CommandLine) -> None:
    from cllm.cli import listing  # noqa: PLC0415

    if options["list_conversations"]:
        listing.list_conversations(line)
    elif options["show_conversation"] is not None:
        listing.show_conversation(line, options["show_conversation"])
    else:
        listing.delete_conversation(line, options["delete_conversation"])


def _command_line(options: dict[str, Any]) -> CommandLine:
    """The options that are settings, as the layer over all files."""
    if options["temperature"] is not None and not math.isfinite(options["temperature"]):
        raise UsageError("Give -t a number, such as 0.7.")
    if options["model"] == "":
        raise UsageError("Give -m a model's name, such as openai/gpt-4o.")
    names = {
        "model": options["model"],
        "temperature": options["temperature"],
        "max_tokens": options["max_tokens"],
        "stream": options["stream"],
        "store": options["store"],
        "conversations_path": options["conversations_path"],
        "raw_response": options["raw"] or None,
    }
    return CommandLine(
        values={name: value for name, value in names.items() if value is not None},
        system=given_prompt(options["system"], options["system_file"]),
        cllm_path=options["cllm_path"],
        trust=options["trust"],
    )


def _ask(options: dict[str, Any], line: CommandLine) -> None:
    prompt, ref = _prompt_and_ref(options["prompt"], options["conversation"])
    if options["read_only"] and ref in (None, AUTOMATIC):
        raise UsageError("--read-only needs --conversation with the ID of one that exists.")
    said = _said(prompt)
    from cllm.cli.asking import AskOptions, ask  # noqa: PLC0415

    ask(
        here(),
        line,
        AskOptions(
            said=said,
            ref=None if ref == AUTOMATIC else ref,
            read_only=options["read_only"],
            automatic=ref == AUTOMATIC,
            policy=options["system_policy"],
        ),
    )


def _prompt_and_ref(prompt: str | None, conversation: str | None) -> tuple[str | None, str | None]:
    """A value of --conversation that is not an id is the prompt, if there is no other one."""
    if conversation in (None, AUTOMATIC) or is_valid_id(conversation or ""):
        return prompt, conversation
    if prompt is None:
        return conversation, AUTOMATIC
    raise InvalidIdError(conversation or "")


def _said(prompt: str | None) -> str:
    """The prompt, what stands on standard input, or both on lines of their own."""
    piped = _piped_text()
    said = "\n".join(part for part in (prompt, piped) if part)
    if not said.strip():
        raise UsageError(NO_PROMPT)
    return said


def _piped_text() -> str | None:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    try:
        data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    except OSError:
        return None
    if len(data) > MAX_INPUT_BYTES:
        raise UsageError(f"Standard input is more than {MAX_INPUT_BYTES} bytes; give less of it.")
    text = data.decode("utf-8", "replace")
    if "\0" in text:
        raise UsageError("Standard input is not text; give the model a text.")
    return text.removesuffix("\n")
