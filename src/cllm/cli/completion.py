"""`cllm completion`, and the completion of option values.

With invalid settings, values are not completed.
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from cllm.cli import output
from cllm.cli.inputs import HelpCommand
from cllm.core.errors import CllmError
from cllm.terminal import one_line

if TYPE_CHECKING:
    from cllm.app import App
    from cllm.core.ports import ArchiveFilter

HELP = """Print a shell completion script.

SHELL is bash, zsh or fish. The script completes commands, options, conversations, models and
settings files."""
EXAMPLES = (
    "cllm completion bash >> ~/.bashrc",
    "cllm completion zsh >> ~/.zshrc",
    "cllm completion fish > ~/.config/fish/completions/cllm.fish",
)
MAX_CONVERSATIONS = 500


@click.command(cls=HelpCommand, name="completion", help=HELP, examples=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def command(shell: str) -> None:
    from cllm.cli.main import root

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion script for {shell}.")
    output.print_exactly(kind(root, {}, "cllm", "_CLLM_COMPLETE").source())


def _open_app(ctx: click.Context) -> "App":
    """Open the store that the options of the incomplete command select."""
    from cllm.app import App
    from cllm.cli.inputs import current_environment
    from cllm.settings.load import CommandLine, load_settings

    options = ctx.params
    names = ("store", "conversations_path")
    line = CommandLine(
        values={name: options[name] for name in names if options.get(name)},
        cllm_path=options.get("cllm_path"),
    )
    return App(load_settings(current_environment(), line))


def complete_conversations(
    ctx: click.Context,
    _param: click.Parameter,
    incomplete: str,
    archive_filter: "ArchiveFilter" = "active",
) -> list[CompletionItem]:
    try:
        app = _open_app(ctx)
        page = app.run(
            app.store.list_conversations(archive_filter=archive_filter, limit=MAX_CONVERSATIONS)
        )
    except CllmError:
        return []
    titles = ((summary.ref, one_line(summary.title or "")) for summary in page.items)
    return _completion_items(titles, incomplete)


def complete_models(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from cllm.repl.format import model_names

    try:
        app = _open_app(ctx)
    except CllmError:
        return []
    return _completion_items(((name, "") for name, _ in model_names(app)), incomplete)


ref_argument = click.argument("ref", metavar="ID", shell_complete=complete_conversations)
refs_argument = click.argument(
    "refs", metavar="ID...", nargs=-1, required=True, shell_complete=complete_conversations
)
archived_refs_argument = click.argument(
    "refs",
    metavar="ID...",
    nargs=-1,
    required=True,
    shell_complete=partial(complete_conversations, archive_filter="archived"),
)
optional_ref_argument = click.argument(
    "ref", metavar="[ID]", required=False, shell_complete=complete_conversations
)
model_option = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    shell_complete=complete_models,
    help="Model: provider/name; without one, cllm chooses and says which.",
)


def complete_configs(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from cllm.cli.inputs import current_environment
    from cllm.settings.layers import CommandLine, list_config_names

    names = list_config_names(current_environment(), CommandLine())
    return _completion_items(((name, "") for name in names), incomplete)


def complete_templates(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from cllm.cli.inputs import current_environment
    from cllm.settings.layers import CommandLine
    from cllm.settings.prompt_templates import list_templates

    templates = list_templates(current_environment(), CommandLine())
    return _completion_items(((one.name, "") for one in templates), incomplete)


def complete_commands(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from cllm.cli.main import ASK, COMMANDS

    return [
        CompletionItem(name, help=description)
        for name, (_, description) in COMMANDS.items()
        if name != ASK and incomplete and name.startswith(incomplete)
    ]


def _completion_items(items: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    """Return the items that start with `incomplete`, except names with hidden characters."""
    return [
        CompletionItem(name, help=description or None)
        for name, description in items
        if name.startswith(incomplete) and one_line(name) == name
    ]
