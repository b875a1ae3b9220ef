"""`cllm init`: creates a Cllmfile."""

import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

import click

from cllm.cli import output
from cllm.cli.inputs import (
    PATH,
    HelpCommand,
    OptionError,
    current_environment,
    read_system_option,
)
from cllm.core.errors import UsageError
from cllm.settings.cllmfile import FILE_NAME, read_cllmfile
from cllm.settings.layers import Environment, is_config_name, user_folder
from cllm.settings.load import CONVERSATIONS, links_outside, local_folder
from cllm.settings.trust import TrustLedger
from cllm.stores.durable_files import CHECK_FOLDER, make_folder, write_file

HELP = """Create a Cllmfile.yml, optionally from a template.

By default the file is ./.cllm/Cllmfile.yml and applies to the current directory. With --global it
is ~/.cllm/Cllmfile.yml and applies everywhere. An existing file is replaced only with --force,
which renames the old one to Cllmfile.yml.old.

Existing conversations are not moved. With --history, new conversations of the current directory are
stored in ./.cllm/conversations."""
EXAMPLES = (
    "cllm init",
    "cllm init --global --model openai/gpt-4o",
    "cllm init --template code-review --as review",
    "cllm init --history",
)

TEMPLATES = "templates"
DEFAULT = "default"
SUFFIX = ".yml"
IGNORED = (".cllm/conversations/", ".cllm/cllm.db*", ".cllm/*.log")
CONTENT = (
    "template",
    "name",
    "model",
    "temperature",
    "max_tokens",
    "timeout",
    "system",
    "system_file",
)


@click.command(cls=HelpCommand, name="init", help=HELP, examples=EXAMPLES)
@click.option(
    "--global", "is_global", is_flag=True, help="Create the file in ~/.cllm, for all folders."
)
@click.option(
    "--local",
    "is_local",
    is_flag=True,
    help="Create the file in ./.cllm, for the current directory (default).",
)
@click.option("-t", "--template", metavar="NAME", help="Start from a template.")
@click.option("--as", "name", metavar="NAME", help="Write NAME.Cllmfile.yml, for -C NAME.")
@click.option("--list-templates", is_flag=True, help="List the templates.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing file.")
@click.option("--history", is_flag=True, help="Store new conversations in ./.cllm/conversations.")
@click.option("--cllm-path", type=PATH, help="Folder of the new file.")
@click.option("--model", metavar="MODEL", help="Model: provider/name.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="Maximum number of tokens in the reply."
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Timeout in seconds.")
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--system-file", type=PATH, help="Read the system prompt from a file.")
def command(**options: Any) -> None:
    if options["list_templates"]:
        for name in template_names():
            about = _template_text(name).partition("\n")[0].lstrip("# ")
            output.print_line(f"{name:14} {about}")
        return
    env = current_environment()
    text = _build_text(options)
    folders = _list_folders(options, env)
    local = local_folder(env)
    if local in folders and local.is_symlink():
        raise UsageError(f"{local} is a symbolic link; pass its target with --cllm-path.")
    for folder in [folder for folder in folders if _needs_file(folder, options)]:
        path = folder / _choose_file_name(options)
        make_folder(folder, advice=CHECK_FOLDER)
        if path.exists():
            path.replace(_backup_path(path))
        write_file(folder, path.name, text.encode(), advice=CHECK_FOLDER)
        written = read_cllmfile(path, in_user_folder=False)
        if written is not None:
            TrustLedger(user_folder(env)).trust(written)
        output.print_line(f"Wrote {path}.")
    if local in folders:
        _add_to_gitignore(env.directory / ".gitignore")
    if options["history"]:
        _start_history(env)


def _build_text(options: dict[str, Any]) -> str:
    prompt = read_system_option(options["system"], options["system_file"])
    values = {name: options[name] for name in ("model", "temperature", "max_tokens", "timeout")}
    values["default_system_message"] = None if prompt is None else prompt.text
    text = _template_text(options["template"] or DEFAULT)
    for key, value in values.items():
        if value is not None:
            text = _set_value(text, key, value)
    return text


def _choose_file_name(options: dict[str, Any]) -> str:
    name = options["name"]
    if name is None:
        return FILE_NAME
    if not is_config_name(name):
        raise OptionError("--as needs a name without slashes, such as --as review.")
    return f"{name}.{FILE_NAME}"


def _list_folders(options: dict[str, Any], env: Environment) -> list[Path]:
    if options["cllm_path"] is not None:
        if options["is_global"] or options["is_local"]:
            raise OptionError("Use --cllm-path without --global and --local.")
        if options["history"]:
            raise OptionError("--history applies to the current directory; omit --cllm-path.")
        return [options["cllm_path"]]
    folders = [user_folder(env)] if options["is_global"] else []
    if options["is_local"] or not folders:
        folders.append(local_folder(env))
    elif options["history"]:
        raise OptionError(
            "--history applies to the current directory; omit --global, or add --local."
        )
    return folders


def _needs_file(folder: Path, options: dict[str, Any]) -> bool:
    """An existing file is not replaced if --history is the only option."""
    path = folder / _choose_file_name(options)
    if options["force"] or not (path.exists() or path.is_symlink()):
        return True
    if options["history"] and all(options[name] is None for name in CONTENT):
        return False
    raise UsageError(f"{path} already exists; replace it with: cllm init --force")


def _start_history(env: Environment) -> None:
    """Create the folder, which makes it the store."""
    conversations = local_folder(env) / CONVERSATIONS
    if links_outside(conversations, env):
        raise UsageError(f"{conversations} is a symbolic link out of this folder; remove it first.")
    make_folder(conversations, advice=CHECK_FOLDER)
    output.print_line(f"New conversations of the current directory are stored in {conversations}.")
    before = user_folder(env) / CONVERSATIONS
    if before.is_dir() and before.resolve() != conversations.resolve():
        output.print_line(f"The conversations in {before} are not moved.")


def _backup_path(path: Path) -> Path:
    backup, number = path.with_name(f"{path.name}.old"), 1
    while os.path.lexists(backup):
        number += 1
        backup = path.with_name(f"{path.name}.old.{number}")
    return backup


def _add_to_gitignore(path: Path) -> None:
    """Add cllm's files. A symbolic link is not changed: it can lead anywhere."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        output.note(f"{path} is not a regular file; add these lines to it: {', '.join(IGNORED)}")
        return
    data = path.read_bytes() if path.exists() else b""
    missing = [line for line in IGNORED if line.encode() not in data.splitlines()]
    if missing:
        ended = data if not data or data.endswith(b"\n") else data + b"\n"
        path.write_bytes(ended + "".join(f"{line}\n" for line in missing).encode())


def template_names() -> list[str]:
    files = resources.files("cllm").joinpath(TEMPLATES).iterdir()
    names = (file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))
    return sorted(name for name in names if name != DEFAULT)


def _template_text(name: str) -> str:
    if name != DEFAULT and name not in template_names():
        raise OptionError(
            f"There is no template '{name}'; choose one of {', '.join(template_names())}."
        )
    file = resources.files("cllm").joinpath(TEMPLATES, f"{name}{SUFFIX}")
    return file.read_text(encoding="utf-8")


def _set_value(text: str, key: str, value: Any) -> str:
    """Replace or append an entry of YAML text; comments are preserved."""
    import yaml

    dumped = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=False, width=90)
    entry = re.compile(
        rf"^(?:# ?)?{re.escape(key)}:[^\n]*\n(?:[ ]+[^\n]*\n|\n(?=[ ]))*", re.MULTILINE
    )
    if entry.search(text):
        return entry.sub(lambda _: dumped, text, count=1)
    return f"{text.rstrip()}\n\n{dumped}"
