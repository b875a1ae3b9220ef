"""Templates: files with the keys of a Cllmfile and a `prompt`, in the folder `templates`.

A template of the current directory replaces one of the user with the same name, and this one a
template of the package.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

import cllm
from cllm.core.errors import UsageError
from cllm.settings.cllmfile import Cllmfile, read_cllmfile
from cllm.settings.layers import CommandLine, Environment, is_config_name, settings_folders

FOLDER = "templates"
SUFFIX = ".yml"
PACKAGE_FOLDER = Path(cllm.__file__).parent / FOLDER
DEFAULT_CLLMFILE = "default"
"""The file of `cllm init` without a template."""


class TemplateFile(msgspec.Struct, frozen=True, kw_only=True):
    """`is_own`: the file is in the user's folder or in the package."""

    name: str
    path: Path
    is_own: bool

    def read(self) -> Cllmfile | None:
        return read_cllmfile(self.path, in_user_folder=self.is_own)


def list_templates(env: Environment, line: CommandLine) -> list[TemplateFile]:
    """Return the templates that `-T` finds, by name."""
    templates: dict[str, TemplateFile] = {}
    for folder, is_own in template_folders(env, line):
        for path in folder.glob(f"*{SUFFIX}"):
            name = path.name.removesuffix(SUFFIX)
            if name and not (folder == PACKAGE_FOLDER and name == DEFAULT_CLLMFILE):
                templates[name] = TemplateFile(name=name, path=path, is_own=is_own)
    return [templates[name] for name in sorted(templates)]


def template_folders(env: Environment, line: CommandLine) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of templates, lowest priority first, and whether each is the user's own."""
    yield PACKAGE_FOLDER, True
    for folder, is_own in settings_folders(env, line):
        # The current directory itself has no folder of templates.
        if folder != env.directory or is_own:
            yield folder / FOLDER, is_own


def find_template(name: str, env: Environment, line: CommandLine) -> TemplateFile:
    found = None
    if is_config_name(name) and name != DEFAULT_CLLMFILE:
        for folder, is_own in template_folders(env, line):
            path = folder / f"{name}{SUFFIX}"
            if path.exists():
                found = TemplateFile(name=name, path=path, is_own=is_own)
    if found is None:
        raise UsageError(f"There is no template '{name}'; list them with: cllm templates list")
    return found


def read_template(name: str, env: Environment, line: CommandLine) -> Cllmfile:
    file = find_template(name, env, line).read()
    if file is None:
        raise UsageError(f"There is no template '{name}'; list them with: cllm templates list")
    return file
