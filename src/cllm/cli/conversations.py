"""`cllm conversations`: list, show, branch, delete, count and bring up to date what was said."""

from pathlib import Path

import click

from cllm.cli import completing, listing, migrate
from cllm.cli.given import given_prompt
from cllm.settings.load import CommandLine

HELP = """List, show, branch and delete conversations.

\b
Examples:
  cllm conversations list
  cllm conversations show cats
  cllm conversations branch cats --system "You are a vet." --to cats-vet"""


@click.group(name="conversations", help=HELP)
@click.option(
    "--store", metavar="URL", help="Where they are kept: json:PATH, sqlite:PATH, postgresql://…"
)
@click.option("--conversations-path", metavar="PATH", help="The folder of the conversation files.")
@click.option("--cllm-path", type=click.Path(path_type=Path), help="In place of .cllm.")
@click.option("--trust", is_flag=True, help="Trust the Cllmfiles here, this time.")
@click.pass_context
def command(
    ctx: click.Context,
    store: str | None,
    conversations_path: str | None,
    cllm_path: Path | None,
    trust: bool,
) -> None:
    """Note where the conversations are for the command that follows."""
    values = {"store": store, "conversations_path": conversations_path}
    ctx.obj = CommandLine(
        values={name: value for name, value in values.items() if value is not None},
        cllm_path=cllm_path,
        trust=trust,
    )


@command.command(name="list")
@click.pass_obj
def list_all(line: CommandLine) -> None:
    """List the conversations, newest first.

    \b
    Example:
      cllm conversations list
    """  # noqa: D301 - \b keeps click from joining the lines
    listing.list_conversations(line)


@command.command(name="show")
@click.argument("ref", metavar="ID", shell_complete=completing.conversations)
@click.pass_obj
def show(line: CommandLine, ref: str) -> None:
    """Print a conversation.

    \b
    Example:
      cllm conversations show cats
    """  # noqa: D301
    listing.show_conversation(line, ref)


@command.command(name="delete")
@click.argument("ref", metavar="ID", shell_complete=completing.conversations)
@click.pass_obj
def delete(line: CommandLine, ref: str) -> None:
    """Delete a conversation for good; its branches stay.

    \b
    Example:
      cllm conversations delete cats
    """  # noqa: D301
    listing.delete_conversation(line, ref)


@command.command(name="branch")
@click.argument("ref", metavar="ID", shell_complete=completing.conversations)
@click.option("--to", "new", metavar="ID", help="The id of the branch; one is made without it.")
@click.option("--at", type=click.IntRange(min=1), help="The number of the last message to take.")
@click.option("--system", metavar="TEXT", help="The system prompt of the branch.")
@click.option("--system-file", type=click.Path(path_type=Path), help="It, from a file.")
@click.pass_obj
def branch(
    line: CommandLine,
    ref: str,
    *,
    new: str | None,
    at: int | None,
    system: str | None,
    system_file: Path | None,
) -> None:
    """Start a new conversation from what was said in another one.

    Without --system the branch keeps the system prompt of the conversation it comes from.

    \b
    Example:
      cllm conversations branch cats --system "You are a vet." --to cats-vet
    """  # noqa: D301
    listing.branch_conversation(line, ref, new=new, at=at, given=given_prompt(system, system_file))


@command.command(name="stats")
@click.argument("ref", metavar="[ID]", required=False, shell_complete=completing.conversations)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def stats(line: CommandLine, *, ref: str | None, as_json: bool) -> None:
    """Say what a conversation, or all of them, used and cost.

    Tokens that were read from a provider's cache, written to it, and missed: sent before, still
    kept there, and not read all the same. What the cache saved, and what was missed cost. What has
    no known price is said to be unknown.

    \b
    Examples:
      cllm conversations stats
      cllm conversations stats cats --json
    """  # noqa: D301
    from cllm.cli.stats import print_stats  # noqa: PLC0415 - listing does without prices

    print_stats(line, ref, as_json=as_json)


command.add_command(migrate.command)
