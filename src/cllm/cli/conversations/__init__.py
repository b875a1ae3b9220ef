"""`cllm conversations`: the table of its commands. A command is imported when it is used."""

import click

from cllm.cli.inputs import (
    LazyGroup,
    cllm_path_option,
    conversations_path_option,
    store_option,
    trust_option,
)

HELP = """List, search, show and change conversations.

Options can be before or after the name of the command."""
EXAMPLES = (
    "cllm conversations list --since 7d",
    "cllm conversations show cats",
    "cllm conversations search luna",
    'cllm conversations branch cats --system "You are a vet." --to cats-vet',
)
_PACKAGE = "cllm.cli.conversations"
# Name: `module:attribute` and description, which is the first line of the command's help.
COMMANDS = {
    "list": (f"{_PACKAGE}.list:command", "List the conversations, newest first."),
    "show": (f"{_PACKAGE}.show:command", "Print a conversation, or the prompt of a turn."),
    "search": (f"{_PACKAGE}.search:command", "Search the messages and titles of conversations."),
    "branch": (f"{_PACKAGE}.branch:command", "Copy a conversation into a new one."),
    "tree": (f"{_PACKAGE}.tree:command", "Print branches and variants as a tree."),
    "diff": (f"{_PACKAGE}.diff:command", "Compare two conversations, branches or variants."),
    "undo": (f"{_PACKAGE}.turns:undo", "Delete the last turn permanently."),
    "regenerate": (
        f"{_PACKAGE}.turns:regenerate",
        "Regenerate the last reply; the old one becomes a variant.",
    ),
    "edit": (f"{_PACKAGE}.turns:edit", "Replace a message, in a variant or a branch."),
    "pin": (f"{_PACKAGE}.attributes:pin", "Always send the turns of messages, or list the pins."),
    "unpin": (f"{_PACKAGE}.attributes:unpin", "Remove pins."),
    "rename": (f"{_PACKAGE}.attributes:rename", "Set the title of a conversation."),
    "archive": (f"{_PACKAGE}.attributes:archive", "Hide conversations from lists and searches."),
    "unarchive": (f"{_PACKAGE}.attributes:unarchive", "Undo `archive`."),
    "delete": (
        f"{_PACKAGE}.delete:command",
        "Delete conversations permanently. Their branches are not deleted.",
    ),
    "export": (
        "cllm.cli.conversations.exports:command",
        "Write conversations to files or to standard output.",
    ),
    "import": (
        "cllm.cli.conversations.imports:command",
        "Import conversations of other programs, or of another cllm.",
    ),
    "move": ("cllm.cli.conversations.move:command", "Move conversations to another store."),
    "stats": (
        f"{_PACKAGE}.stats:command",
        "Print the token usage and cost of one conversation, or of all.",
    ),
    "migrate": (
        f"{_PACKAGE}.migrate:command",
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
