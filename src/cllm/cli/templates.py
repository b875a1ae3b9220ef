"""`cllm templates`: lists, prints and edits templates."""

import os
import sys
from pathlib import Path

import click
import msgspec

from cllm.cli import completion, output
from cllm.cli.inputs import HelpGroup, OptionError, current_environment, piped_input
from cllm.core.errors import CllmError, UsageError
from cllm.files import FileTooLargeError, NotRegularFileError, read_regular_file
from cllm.settings.cllmfile import MAX_BYTES, Cllmfile, read_cllmfile
from cllm.settings.layers import CommandLine, is_config_name, user_folder
from cllm.settings.prompt_templates import (
    FOLDER,
    PACKAGE_FOLDER,
    SUFFIX,
    TemplateFile,
    find_template,
    list_templates,
)
from cllm.settings.trust import TrustLedger
from cllm.stores.durable_files import CHECK_FOLDER, make_folder, write_file
from cllm.terminal import align_columns

HELP = """List, print and edit prompt templates.

A template is a file with a `prompt` and, if needed, other keys of a Cllmfile.yml, such as `model`,
`default_system_message` and `variables`. `cllm -T NAME` uses it. In the prompt, {{ input }} is the
text of the command line and of standard input; without it, this text follows the prompt."""
LIST_HELP = "List the templates and their files."
SHOW_HELP = "Print the file of a template."
EDIT_HELP = """Edit a template in $VISUAL or $EDITOR, or create it.

The file is ~/.cllm/templates/NAME.yml, or with --local ./.cllm/templates/NAME.yml, which applies
only in the current directory. Without a terminal, standard input is the new content."""

NEW_TEMPLATE = """\
# A template. Use it with:  cllm -T NAME "text"   or   cllm -T NAME < FILE
# Other keys of a Cllmfile.yml are possible: model, temperature, default_system_message, …

prompt: |
  Translate this text to {{ language }}:

  {{ input }}

variables:
  language: English
"""
LOCAL_FOLDER = ".cllm"


@click.group(
    cls=HelpGroup,
    name="templates",
    help=HELP,
    examples=("cllm templates list", "cllm -T summarize < report.txt"),
)
def command() -> None:
    pass


@command.command(name="list", help=LIST_HELP, examples=("cllm templates list",))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_command(*, as_json: bool) -> None:
    rows = [
        {"name": one.name, "path": str(one.path), "description": _describe(one)}
        for one in list_templates(current_environment(), CommandLine())
    ]
    if as_json:
        output.print_exactly(msgspec.json.encode(rows).decode())
        return
    lines = [(row["name"], f"{row['description']}{_format_place(row['path'])}") for row in rows]
    output.print_lines(align_columns(lines, output.terminal_columns()))


def _format_place(path: str) -> str:
    """The file of the user's own template."""
    return "" if Path(path).parent == PACKAGE_FOLDER else f"  ({path})"


@command.command(name="show", help=SHOW_HELP, examples=("cllm templates show summarize",))
@click.argument("name", shell_complete=completion.complete_templates)
def show(name: str) -> None:
    path = find_template(name, current_environment(), CommandLine()).path
    try:
        text = _read_text(path)
    except NotRegularFileError as error:
        raise UsageError(f"Cannot read {path}: it is not a regular file.") from error
    except FileTooLargeError as error:
        raise UsageError(f"Cannot read {path}: it is larger than {MAX_BYTES} bytes.") from error
    except OSError as error:
        raise UsageError(f"Cannot read {path} ({error.strerror}).") from error
    output.print_exactly(text.removesuffix("\n"))


@command.command(
    name="edit",
    help=EDIT_HELP,
    examples=("cllm templates edit translate < translate.yml",),
)
@click.argument("name", shell_complete=completion.complete_templates)
@click.option("--local", is_flag=True, help="Edit the template of the current directory.")
def edit(name: str, *, local: bool) -> None:
    if not is_config_name(name):
        raise OptionError(f"'{name}' is not the name of a template; use a name without '/'.")
    env = current_environment()
    folder = (env.directory / LOCAL_FOLDER if local else user_folder(env)) / FOLDER
    path = folder / f"{name}{SUFFIX}"
    pipe = piped_input()
    if pipe is not None:
        _replace(path, pipe.read(MAX_BYTES + 1), is_own=not local)
    else:
        _open_editor(path, _build_first_content(name, path), is_own=not local)
    output.note(f"Saved {path}. Use it with: cllm -T {name}")


def _read_text(path: Path) -> str:
    """Read a file of bounded size; a pipe in a folder of somebody else would block the command."""
    return read_regular_file(path, limit=MAX_BYTES).decode("utf-8", "replace")


def _describe(template: TemplateFile) -> str:
    """Return the first comment of the file, else the first line of its prompt."""
    try:
        content = template.read()
        text = _read_text(template.path)
    except (OSError, CllmError) as error:
        return f"cannot be read: {error}"
    first = text.partition("\n")[0]
    if first.startswith("#"):
        return first.lstrip("# ")
    prompt = "" if content is None else content.content.get("prompt")
    return str(prompt or "").strip().partition("\n")[0]


def _build_first_content(name: str, path: Path) -> bytes:
    """Return the initial content of a template: its file, one of another folder, or an example."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(f"Cannot read {path} ({error.strerror}).") from error
    try:
        return find_template(name, current_environment(), CommandLine()).path.read_bytes()
    except (UsageError, OSError):
        return NEW_TEMPLATE.replace("NAME", name).encode()


def _open_editor(path: Path, content: bytes, *, is_own: bool) -> None:
    """Edit the content; invalid content is saved as a draft, with which the next edit starts."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("No terminal; pass the content: cllm templates edit NAME < FILE")
    draft = path.with_name(f".{path.name}.draft{SUFFIX}")
    if draft.exists():
        content = draft.read_bytes()
    old = content.decode("utf-8", "replace")
    try:
        edited = click.edit(old, extension=SUFFIX, require_save=False)
    except click.ClickException as error:
        raise UsageError(f"{error.message}; set EDITOR.") from error
    try:
        _replace(path, (edited or "").encode(), is_own=is_own)
    except CllmError as error:
        write_file(draft.parent, draft.name, (edited or "").encode(), advice=CHECK_FOLDER)
        raise UsageError(f"{error} Nothing is saved; your changes are in {draft}.") from error
    draft.unlink(missing_ok=True)


def _replace(path: Path, content: bytes, *, is_own: bool) -> None:
    """Write a valid template; trust it, because the user wrote it."""
    make_folder(path.parent, advice=CHECK_FOLDER)
    checked = path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")
    write_file(checked.parent, checked.name, content, advice=CHECK_FOLDER)
    try:
        file = read_cllmfile(checked, in_user_folder=is_own)
        if file is None or not file.content:
            raise UsageError("The template is empty; write a `prompt` into it.")
        prompt = file.content.get("prompt")
        if prompt is not None and not isinstance(prompt, str):
            raise UsageError("`prompt` must be a text.")
        checked.replace(path)
    except CllmError as error:
        checked.unlink(missing_ok=True)
        raise UsageError(str(error).replace(checked.name, path.name)) from error
    if not is_own:
        file = Cllmfile(path=path, content=file.content, in_user_folder=False)
        TrustLedger(user_folder(current_environment())).trust(file)
