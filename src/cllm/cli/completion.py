"""`cllm completion`: the script by which a shell completes cllm's words."""

import click
from click.shell_completion import get_completion_class

from cllm.cli import printing

HELP = """Print the completion script of a shell.

\b
Examples:
  cllm completion bash >> ~/.bashrc
  cllm completion zsh >> ~/.zshrc
  cllm completion fish > ~/.config/fish/completions/cllm.fish"""


@click.command(name="completion", help=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script; it calls `cllm` itself when Tab is pressed."""
    from cllm.cli.main import root  # noqa: PLC0415

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"No completion for {shell}.")
    printing.print_exactly(kind(root, {}, "cllm", "_CLLM_COMPLETE").source())
