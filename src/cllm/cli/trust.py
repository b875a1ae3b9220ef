"""`cllm trust` and its prompt. `settings/trust.py` has the check.

An untrusted Cllmfile is an error. On a terminal, cllm shows its settings and asks for trust.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cllm.cli import output
from cllm.cli.inputs import PATH, HelpCommand, current_environment
from cllm.core.errors import UntrustedFileError, UsageError
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, read_cllmfile
from cllm.settings.layers import CommandLine, Environment, LayeredSettings, read_files, user_folder
from cllm.settings.load import Settings, build_settings, load_layers, other_store
from cllm.settings.trust import TrustLedger, mask_secrets, settings_to_trust
from cllm.terminal import fits_on_screen, make_visible

if TYPE_CHECKING:
    from cllm.app import App

HELP = """Allow a Cllmfile.yml to run commands or redirect requests.

A Cllmfile.yml in the current directory may come from somebody else. If it sets keys that run
commands, or choose where prompts, API keys or files go, cllm asks you to trust it, and fails if it
cannot ask. Without FILE, the command trusts ./.cllm/Cllmfile.yml and ./Cllmfile.yml."""

FindStore = Callable[[Settings], str | None]
NOTHING_TO_TRUST = "it has no settings that need trust."


@click.command(cls=HelpCommand, name="trust", help=HELP, examples=("cllm trust ./Cllmfile.yml",))
@click.argument("file", required=False, type=PATH)
def command(file: Path | None) -> None:
    env = current_environment()
    paths = [file] if file else [env.directory / ".cllm" / FILE_NAME, env.directory / FILE_NAME]
    cllmfiles = (read_cllmfile(path, in_user_folder=False) for path in paths)
    existing = [cllmfile for cllmfile in cllmfiles if cllmfile is not None]
    if not existing:
        problem = f"There is no {FILE_NAME} in the current directory"
        if file:
            problem = f"{file} does not exist"
        raise UsageError(f"{problem}; pass the path of the file to trust.")
    ledger = TrustLedger(user_folder(env))
    for cllmfile in existing:
        ledger.trust(cllmfile)
        parts = _format_part(cllmfile)
        result = "trusted until one of these values changes:" if parts else NOTHING_TO_TRUST
        for text in (f"{cllmfile.path}: {result}", *parts):
            output.print_visibly(text)


def _format_part(file: Cllmfile) -> list[str]:
    return [
        f"  {key}: {mask_secrets(key, value)}" for key, value in settings_to_trust(file).items()
    ]


def load_trusted_settings(env: Environment, line: CommandLine) -> Settings:
    return build_settings_with_warnings(load_trusted_layers(env, line), env, line)


def build_settings_with_warnings(
    layered: LayeredSettings, env: Environment, line: CommandLine
) -> Settings:
    """Build the settings of these layers and print their notices."""
    settings = build_settings(layered, env, line)
    for notice in settings.notices:
        output.warn(notice)
    return settings


def open_app(line: CommandLine, *, find_other: FindStore = other_store) -> "App":
    from cllm.app import App
    from cllm.stores import progress

    progress.show_progress.set(_show_progress)
    settings = load_trusted_settings(current_environment(), line)
    return App(settings, find_other=find_other, warn=output.warn)


def _show_progress(items: Iterable[str], name: str, total: int) -> Iterable[str]:
    from cllm.cli.progress import show_progress

    return show_progress(items, name, total=total)


def load_trusted_layers(env: Environment, line: CommandLine) -> LayeredSettings:
    confirmed_paths: set[str | None] = set()
    while True:
        try:
            return load_layers(env, line)
        except UntrustedFileError as error:
            if error.path in confirmed_paths or not _confirm_trust(env, line, error):
                raise
            confirmed_paths.add(error.path)


def _confirm_trust(env: Environment, line: CommandLine, error: UntrustedFileError) -> bool:
    """Show the settings to trust; trust exactly these if the user agrees."""
    if not sys.stderr.isatty():
        return False
    from cllm.cli.confirmation import ask_on_terminal

    file = next((one for one in read_files(env, line) if str(one.path) == error.path), None)
    if file is None:
        return False
    shown = [f"{file.path} may come from somebody else and sets:", *_format_part(file)]
    question = "\n".join([*map(make_visible, shown), "Trust these settings? [y/N] "])
    # The user cannot check settings that scrolled away. The error says how to trust the file.
    if not fits_on_screen(question) or not ask_on_terminal(question):
        return False
    TrustLedger(user_folder(env)).trust(file)
    return True
