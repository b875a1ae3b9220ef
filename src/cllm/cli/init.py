"""`cllm init`: writes a first Cllmfile."""

import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

import click

from cllm.cli import output
from cllm.cli.inputs import PATH, current_environment, read_system_option
from cllm.core.errors import UsageError
from cllm.settings.cllmfile import FILE_NAME, read_cllmfile
from cllm.settings.layers import Environment, user_folder
from cllm.settings.load import CONVERSATIONS, links_outside, local_folder
from cllm.settings.trust import TrustLedger
from cllm.stores.durable_files import make_folder, write_file

HELP = """Write a first Cllmfile.yml.

Without options it is made in ./.cllm, for this folder alone; with --global in ~/.cllm, for
everywhere. A file that is there is not touched without --force, which keeps the old one beside it.

Settings do not move conversations. With --history this folder keeps its own, in
./.cllm/conversations, from then on.

\b
Examples:
  cllm init
  cllm init --global --model openai/gpt-4o
  cllm init --template code-review
  cllm init --history"""

TEMPLATES = "templates"
DEFAULT = "default"
SUFFIX = ".yml"
IGNORED = (".cllm/conversations/", ".cllm/cllm.db*", ".cllm/*.log")
CONTENT = ("template", "model", "temperature", "max_tokens", "timeout", "system", "system_file")


@click.command(name="init", help=HELP)
@click.option("--global", "everywhere", is_flag=True, help="For everywhere: ~/.cllm.")
@click.option("--local", "locally", is_flag=True, help="For this folder: ./.cllm (the default).")
@click.option("-t", "--template", metavar="NAME", help="Begin with a template.")
@click.option("--list-templates", is_flag=True, help="List the templates.")
@click.option("-f", "--force", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--history", is_flag=True, help="Keep the conversations of this folder in it, from now on."
)
@click.option("--cllm-path", type=PATH, help="The folder to write it in.")
@click.option("--model", metavar="MODEL", help="The model, as provider/name.")
@click.option("--temperature", type=click.FloatRange(min=0), help="How freely to answer.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="At most so many tokens of answer.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait.")
@click.option("--system", metavar="TEXT", help="The system prompt.")
@click.option("--system-file", type=PATH, help="It, from a file.")
def command(**options: Any) -> None:
    if options["list_templates"]:
        for name in template_names():
            about = _template_text(name).partition("\n")[0].lstrip("# ")
            output.print_line(f"{name:14} {about}")
        return
    env = current_environment()
    text = _build_text(options)
    folders = _folders(options, env)
    local = local_folder(env)
    if local in folders and local.is_symlink():
        raise UsageError(f"{local} is a link; name the folder it leads to with --cllm-path.")
    for folder in [folder for folder in folders if _needs_file(folder, options)]:
        path = folder / FILE_NAME
        make_folder(folder)
        if path.exists():
            path.replace(_backup_path(path))
        write_file(folder, FILE_NAME, text.encode())
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


def _folders(options: dict[str, Any], env: Environment) -> list[Path]:
    if options["cllm_path"] is not None:
        if options["everywhere"] or options["locally"]:
            raise UsageError("Give either --cllm-path, or --global and --local.")
        if options["history"]:
            raise UsageError("--history is for this folder; leave out --cllm-path.")
        return [options["cllm_path"]]
    folders = [user_folder(env)] if options["everywhere"] else []
    if options["locally"] or not folders:
        folders.append(local_folder(env))
    elif options["history"]:
        raise UsageError("--history is for this folder; use it with --local, or alone.")
    return folders


def _needs_file(folder: Path, options: dict[str, Any]) -> bool:
    """An existing file stays if only --history is given."""
    path = folder / FILE_NAME
    if options["force"] or not (path.exists() or path.is_symlink()):
        return True
    if options["history"] and all(options[name] is None for name in CONTENT):
        return False
    raise UsageError(f"{path} is there already; replace it with: cllm init --force")


def _start_history(env: Environment) -> None:
    """The existence of the folder makes it the store."""
    conversations = local_folder(env) / CONVERSATIONS
    if links_outside(conversations, env):
        raise UsageError(f"{conversations} is a link out of this folder; remove it first.")
    make_folder(conversations)
    output.print_line(f"Conversations that you start in this folder are kept in {conversations}.")
    before = user_folder(env) / CONVERSATIONS
    if before.is_dir() and before.resolve() != conversations.resolve():
        output.print_line(f"Those in {before} stay there.")


def _backup_path(path: Path) -> Path:
    backup, number = path.with_name(f"{path.name}.old"), 1
    while os.path.lexists(backup):
        number += 1
        backup = path.with_name(f"{path.name}.old.{number}")
    return backup


def _add_to_gitignore(path: Path) -> None:
    """A link can lead anywhere, so it is not changed."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        output.note(f"{path} is no ordinary file; write these into it: {', '.join(IGNORED)}")
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
        raise UsageError(f"There is no template '{name}'; there are {', '.join(template_names())}.")
    file = resources.files("cllm").joinpath(TEMPLATES, f"{name}{SUFFIX}")
    return file.read_text(encoding="utf-8")


def _set_value(text: str, key: str, value: Any) -> str:
    """Replace or append an entry of YAML text; comments stay."""
    import yaml

    dumped = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=False, width=90)
    entry = re.compile(
        rf"^(?:# ?)?{re.escape(key)}:[^\n]*\n(?:[ ]+[^\n]*\n|\n(?=[ ]))*", re.MULTILINE
    )
    if entry.search(text):
        return entry.sub(lambda _: dumped, text, count=1)
    return f"{text.rstrip()}\n\n{dumped}"
