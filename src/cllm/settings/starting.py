"""A first Cllmfile: a template's text, with what the person already said about it put in.

Works on text, not on values, so that a template keeps its comments. Writes no file.
"""

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from cllm.core.errors import UsageError

FOLDER = "templates"
DEFAULT = "default"
SUFFIX = ".yml"


def template_names() -> list[str]:
    """The templates that can be asked for."""
    files = resources.files("cllm").joinpath(FOLDER).iterdir()
    names = (file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))
    return sorted(name for name in names if name != DEFAULT)


def template_text(name: str) -> str:
    """A template as it ships with cllm."""
    if name != DEFAULT and name not in template_names():
        raise UsageError(f"There is no template '{name}'; there are {', '.join(template_names())}.")
    file = resources.files("cllm").joinpath(FOLDER, f"{name}{SUFFIX}")
    return file.read_text(encoding="utf-8")


def about(name: str) -> str:
    """What a template is for, in its own first line."""
    return template_text(name).partition("\n")[0].lstrip("# ")


def start_from(template: str, values: Mapping[str, Any]) -> str:
    """The template's text with these top-level keys set."""
    text = template_text(template)
    for key, value in values.items():
        if value is not None:
            text = _with_value(text, key, value)
    return text


def _with_value(text: str, key: str, value: Any) -> str:
    """The text with the key's entry replaced, or written at the end if it has none."""
    import yaml  # noqa: PLC0415 - as in every reading of a Cllmfile

    dumped = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=False, width=90)
    entry = re.compile(
        rf"^(?:# ?)?{re.escape(key)}:[^\n]*\n(?:[ ]+[^\n]*\n|\n(?=[ ]))*", re.MULTILINE
    )
    if entry.search(text):
        return entry.sub(lambda _: dumped, text, count=1)
    return f"{text.rstrip()}\n\n{dumped}"
