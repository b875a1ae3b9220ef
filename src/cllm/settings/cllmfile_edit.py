"""Sets one top-level key of a Cllmfile; every other line and comment stays as it is."""

import os
from pathlib import Path
from typing import Any

from cllm.core.errors import SettingsError
from cllm.settings.cllmfile import Cllmfile, read_cllmfile
from cllm.stores.durable_files import make_folder, write_file


def set_key(path: Path, key: str, value: str) -> None:
    """Write `key: value`; creates the file. Raises SettingsError if the file cannot be edited."""
    path = path.resolve()
    before = read_cllmfile(path, in_user_folder=True)
    text = "" if before is None else path.read_bytes().decode("utf-8-sig")
    edited = _replace(text, key, value)
    _check(edited, before, key, value, path)
    mode = None if before is None else path.stat().st_mode & 0o777
    make_folder(path.parent)
    write_file(path.parent, path.name, edited.encode())
    if mode is not None:
        os.chmod(path, mode)  # noqa: PTH101 - the file was just replaced


def _replace(text: str, key: str, value: str) -> str:
    import yaml  # noqa: PLC0415 - slow

    root = yaml.compose(text, yaml.SafeLoader)
    entries = root.value if isinstance(root, yaml.MappingNode) else []
    scalar = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    scalar = scalar.removesuffix("\n").removesuffix("\n...")
    for name, node in entries:
        if name.value == key:
            end = node.end_mark.index
            start = node.start_mark.index
            space = "" if text[start - 1 : start].isspace() else " "
            return f"{text[:start]}{space}{scalar}{text[end:]}"
    newline = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{newline}{key}: {scalar}\n"


def _check(edited: str, before: Cllmfile | None, key: str, value: str, path: Path) -> None:
    """Raise SettingsError unless exactly one value differs."""
    import yaml  # noqa: PLC0415 - slow

    content: dict[str, Any] = {} if before is None else before.content
    try:
        after = yaml.safe_load(edited)
        expected = (yaml.safe_load(path.read_bytes()) if content else None) or {}
    except yaml.YAMLError:
        after, expected = None, {}
    if after != {**expected, key: value}:
        raise SettingsError(
            f"cllm cannot edit its format; write `{key}: {value}` into it yourself.",
            path=str(path),
        )
