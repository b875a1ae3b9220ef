"""`cllm conversations`: the table of its commands. A command is imported when it is used."""

import click

from cllm.cli.inputs import (
    LazyGroup,
    cllm_path_option,
    conversations_path_option,
    store_option,
    trust_option,
)

HELP = """List, show, branch, delete and analyse conversations.

Options can be before or after the name of the command."""
EXAMPLES = (
    "cllm conversations list",
    "cllm conversations show cats",
    'cllm conversations branch cats --system "You are a vet." --to cats-vet',
)
# Name: `module:attribute` and description, which is the first line of the command's help.
COMMANDS = {
    "list": ("cllm.cli.conversations.list:command", "List the conversations, newest first."),
    "show": ("cllm.cli.conversations.show:command", "Print a conversation."),
    "branch": ("cllm.cli.conversations.branch:command", "Copy a conversation into a new one."),
    "delete": (
        "cllm.cli.conversations.delete:command",
        "Delete a conversation permanently. Its branches are not deleted.",
    ),
    "stats": (
        "cllm.cli.conversations.stats:command",
        "Print the token usage and cost of one conversation, or of all.",
    ),
    "migrate": (
        "cllm.cli.conversations.migrate:command",
        "Add data to conversations that an older version of cllm created.",
    ),
}


@click.group(cls=LazyGroup, name="conversations", help=HELP, examples=EXAMPLES, rows=COMMANDS)
@store_option
@conversations_path_option
@cllm_path_option
@trust_option
def command(**_options: object) -> None:
    """Do nothing: the commands read the options."""
