"""`cllm trust`: vouch for a Cllmfile."""

from pathlib import Path

import click

from cllm.cli import printing
from cllm.cli.place import here
from cllm.core.errors import UsageError
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, read_cllmfile
from cllm.settings.load import user_folder
from cllm.settings.trust import TrustLedger, masked, parts_to_trust

HELP = """Trust what a Cllmfile in the current directory can run or redirect.

A Cllmfile can be somebody else's. Its keys that run commands, choose where your words and keys go
or where files are written take effect only once you have trusted them. Without FILE both files that
apply here are meant.

\b
Example:
  cllm trust ./Cllmfile.yml"""


@click.command(name="trust", help=HELP)
@click.argument("file", required=False, type=click.Path(path_type=Path))
def command(file: Path | None) -> None:
    """Remember the files' dangerous keys, and show them."""
    place = here()
    paths = [file] if file else [place.directory / ".cllm" / FILE_NAME, place.directory / FILE_NAME]
    read = (read_cllmfile(path, trusted_place=False) for path in paths)
    found = [cllmfile for cllmfile in read if cllmfile is not None]
    if not found:
        raise UsageError(f"There is no {file or FILE_NAME} here to trust.")
    ledger = TrustLedger(user_folder(place))
    for cllmfile in found:
        ledger.trust(cllmfile)
        _show(cllmfile)


def _show(cllmfile: Cllmfile) -> None:
    parts = parts_to_trust(cllmfile)
    if not parts:
        printing.print_visibly(f"{cllmfile.path}: nothing in it needs trust.")
        return
    printing.print_visibly(f"{cllmfile.path}: trusted, as long as these stay as they are:")
    for key, value in parts.items():
        printing.print_visibly(f"  {key}: {masked(key, value)}")
