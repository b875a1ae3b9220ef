"""`cllm completion`: the completion script of a shell, and what it offers.

A mistake in the settings offers nothing, silently.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from cllm.cli import printing
from cllm.core.errors import CllmError
from cllm.terminal import one_line

if TYPE_CHECKING:
    from cllm.app import App

HELP = """Print the completion script of a shell.

\b
Examples:
  cllm completion bash >> ~/.bashrc
  cllm completion zsh >> ~/.zshrc
  cllm completion fish > ~/.config/fish/completions/cllm.fish"""
MOST = 500


@click.command(name="completion", help=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script; it calls `cllm` itself when Tab is pressed."""
    from cllm.cli.main import root  # noqa: PLC0415

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"No completion for {shell}.")
    printing.print_exactly(kind(root, {}, "cllm", "_CLLM_COMPLETE").source())


def _quiet_app() -> "App":
    """What completion looks into; it warns of nothing and asks for nobody's trust."""
    from cllm.app import App  # noqa: PLC0415
    from cllm.cli.inputs import here  # noqa: PLC0415
    from cllm.settings.load import CommandLine, load_settings  # noqa: PLC0415

    return App(load_settings(here(), CommandLine()))


def conversations(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Ids of conversations, newest first."""
    try:
        app = _quiet_app()
        page = app.run(app.store.list_conversations(limit=MOST))
    except CllmError:
        return []
    return _offered(
        ((summary.ref, one_line(summary.title or "")) for summary in page.items), incomplete
    )


def models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models that are named somewhere, and the beginnings of those that are not."""
    from cllm.repl.status import model_names  # noqa: PLC0415

    try:
        app = _quiet_app()
    except CllmError:
        return []
    return _offered(((name, "") for name, _ in model_names(app)), incomplete)


def configs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the Cllmfiles that can be asked for."""
    from cllm.cli.inputs import here  # noqa: PLC0415
    from cllm.settings.layers import CommandLine, named_files  # noqa: PLC0415

    names = named_files(here(), CommandLine())
    return _offered(((name, "") for name in names), incomplete)


def commands(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The commands, where the first word stands."""
    from cllm.cli.main import ASK, COMMANDS  # noqa: PLC0415

    return [
        CompletionItem(name, help=about)
        for name, (_, about) in COMMANDS.items()
        if name != ASK and incomplete and name.startswith(incomplete)
    ]


def _offered(named: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    """The names that begin so; a shell prints them as they are, so none with hidden characters."""
    return [
        CompletionItem(name, help=about or None)
        for name, about in named
        if name.startswith(incomplete) and one_line(name) == name
    ]
