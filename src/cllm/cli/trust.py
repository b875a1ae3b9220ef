"""`cllm trust`, and the settings of a command.

An untrusted Cllmfile is an error; on a terminal the person is shown its keys and can trust them.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cllm.cli import output
from cllm.cli.inputs import current_environment
from cllm.core.errors import UntrustedFileError, UsageError
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, read_cllmfile
from cllm.settings.layers import CommandLine, Environment, LayeredSettings, read_files, user_folder
from cllm.settings.load import Settings, build_settings, load_layers
from cllm.settings.trust import TrustLedger, mask_secrets, settings_to_trust
from cllm.terminal import fits_on_screen, make_visible

if TYPE_CHECKING:
    from cllm.app import App

HELP = """Trust what a Cllmfile in the current directory can run or redirect.

A Cllmfile can be somebody else's. Its keys that run commands, choose where your words and keys go
or where files are written take effect only once you have trusted them. Without FILE both files that
apply here are meant.

\b
Example:
  cllm trust ./Cllmfile.yml"""

NOTHING_TO_TRUST = "nothing in it needs trust."


@click.command(name="trust", help=HELP)
@click.argument("file", required=False, type=click.Path(path_type=Path))
def command(file: Path | None) -> None:
    env = current_environment()
    paths = [file] if file else [env.directory / ".cllm" / FILE_NAME, env.directory / FILE_NAME]
    read = (read_cllmfile(path, in_user_folder=False) for path in paths)
    found = [cllmfile for cllmfile in read if cllmfile is not None]
    if not found:
        raise UsageError(f"There is no {file or FILE_NAME} here to trust.")
    ledger = TrustLedger(user_folder(env))
    for cllmfile in found:
        ledger.trust(cllmfile)
        parts = _part_lines(cllmfile)
        result = "trusted, as long as these stay as they are:" if parts else NOTHING_TO_TRUST
        for text in (f"{cllmfile.path}: {result}", *parts):
            output.print_visibly(text)


def _part_lines(file: Cllmfile) -> list[str]:
    return [
        f"  {key}: {mask_secrets(key, value)}" for key, value in settings_to_trust(file).items()
    ]


def load_trusted_settings(env: Environment, line: CommandLine) -> Settings:
    return build_settings_with_warnings(load_trusted_layers(env, line), env, line)


def build_settings_with_warnings(
    layered: LayeredSettings, env: Environment, line: CommandLine
) -> Settings:
    """The settings of these layers; prints their notices."""
    settings = build_settings(layered, env, line)
    for notice in settings.notices:
        output.warn(notice)
    return settings


def open_app(line: CommandLine) -> "App":
    from cllm.app import App

    return App(load_trusted_settings(current_environment(), line))


def load_trusted_layers(env: Environment, line: CommandLine) -> LayeredSettings:
    asked: set[str | None] = set()
    while True:
        try:
            return load_layers(env, line)
        except UntrustedFileError as error:
            if error.path in asked or not _confirm_trust(env, line, error):
                raise
            asked.add(error.path)


def _confirm_trust(env: Environment, line: CommandLine, error: UntrustedFileError) -> bool:
    """Show the keys in question, and trust exactly those if the person agrees."""
    if not sys.stderr.isatty():
        return False
    from cllm.cli.confirmation import ask_on_terminal

    file = next((one for one in read_files(env, line) if str(one.path) == error.path), None)
    if file is None:
        return False
    shown = [f"{file.path} could be somebody else's, and wants to:", *_part_lines(file)]
    question = "\n".join([*map(make_visible, shown), "Trust this? [y/N] "])
    # Nobody can judge what has scrolled away; the error says how to read and trust the file.
    if not fits_on_screen(question) or not ask_on_terminal(question):
        return False
    TrustLedger(user_folder(env)).trust(file)
    return True
