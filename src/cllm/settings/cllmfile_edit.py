"""Sets one key of a Cllmfile or of a mapping in it; other lines and comments stay as they are."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cllm.core.errors import SettingsError, StoreUnavailableError
from cllm.settings.cllmfile import read_cllmfile
from cllm.stores.durable_files import lock_folder, make_folder, write_file

if TYPE_CHECKING:
    from yaml import MappingNode, Node

    Entry = tuple[Node, Node]


def set_key(path: Path, key: str, value: str) -> None:
    """Write `key: value`; creates the file. Raises SettingsError if the file cannot be edited."""
    _edit(
        path,
        lambda text, root: _set(text, root, key, _dump(value)),
        lambda content: {**content, key: value},
        advice=f"write `{key}: {value}` into it yourself",
    )


def set_entry(path: Path, key: str, name: str, value: str) -> None:
    """Write `name: value` into the mapping at `key`; as `set_key`."""

    def change(text: str, root: "MappingNode | None") -> str:
        _, section = _find_section(root, key)
        if section is None:
            return _set(text, root, key, f"\n  {_dump(name)}: {_dump(value)}")
        if section.flow_style or not section.value:
            return _set(text, root, key, _dump({**_read(text, section), name: value}))
        return _set(text, section, name, _dump(value))

    _edit(
        path,
        change,
        lambda content: {**content, key: {**(content.get(key) or {}), name: value}},
        advice=f"write `{name}: {value}` under `{key}` yourself",
    )


def remove_entry(path: Path, key: str, name: str) -> None:
    """Delete `name` from the mapping at `key`, which has it; as `set_key`."""

    def change(text: str, root: "MappingNode | None") -> str:
        at, section = _find_section(root, key)
        if section is None:
            return text
        if section.flow_style:
            names = _read(text, section)
            return _set(text, root, key, _dump({one: names[one] for one in names if one != name}))
        entry = next(entry for entry in section.value if entry[0].value == name)
        edited = _cut_lines(text, entry)
        colon = text.index(":", at) + 1
        is_last = len(section.value) == 1
        return f"{edited[:colon]} {{}}{edited[colon:]}" if is_last else edited

    def remove(content: dict[str, Any]) -> dict[str, Any]:
        section = content.get(key) or {}
        return {**content, key: {one: section[one] for one in section if one != name}}

    _edit(path, change, remove, advice=f"delete `{name}` under `{key}` yourself")


def _edit(
    path: Path,
    change: "Callable[[str, MappingNode | None], str]",
    expect: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    advice: str,
) -> None:
    """Replace the text if only the expected values change."""
    path = path.resolve()
    try:
        make_folder(path.parent)
        with lock_folder(path.parent):
            before = read_cllmfile(path, in_user_folder=True)
            text = "" if before is None else path.read_bytes().decode("utf-8-sig")
            edited = _change(text, change, expect)
            if edited is None:
                raise SettingsError(f"cllm cannot edit its format; {advice}.", path=str(path))
            mode = None if before is None else path.stat().st_mode & 0o777
            write_file(path.parent, path.name, edited.encode())
            if mode is not None:
                os.chmod(path, mode)  # noqa: PTH101 - the file was just replaced
    except StoreUnavailableError as error:
        reason = os.strerror(getattr(error.__cause__, "errno", None) or 0).lower()
        raise SettingsError(
            f"it cannot be written ({reason}); check its folder.", path=str(path)
        ) from error


def _change(
    text: str,
    change: "Callable[[str, MappingNode | None], str]",
    expect: Callable[[dict[str, Any]], dict[str, Any]],
) -> str | None:
    """Return the changed text; None if its values are not the expected ones."""
    import yaml  # noqa: PLC0415 - slow

    try:
        root = yaml.compose(text, yaml.SafeLoader)
        edited = change(text, root if isinstance(root, yaml.MappingNode) else None)
        is_expected = yaml.safe_load(edited) == expect(yaml.safe_load(text) or {})
    except (yaml.YAMLError, StopIteration, TypeError, ValueError):
        return None
    return edited if is_expected else None


def _find_section(root: "MappingNode | None", key: str) -> "tuple[int, MappingNode | None]":
    """Return the end of a key, and its mapping; None if it is missing or another value."""
    import yaml  # noqa: PLC0415 - slow

    for name, node in [] if root is None else root.value:
        if name.value == key and isinstance(node, yaml.MappingNode):
            return name.end_mark.index, node
    return 0, None


def _set(text: str, mapping: "MappingNode | None", key: str, value: str) -> str:
    """Replace the value of a key, which is dumped, or add the key after the last one."""
    entries: list[Entry] = [] if mapping is None else mapping.value
    for name, node in entries:
        if name.value == key:
            start, end = node.start_mark.index, node.end_mark.index
            return f"{text[:start]}{_space(text[:start], value)}{value}{text[end:]}"
    indent = "" if mapping is None else " " * mapping.start_mark.column
    at = len(text) if not indent else _find_line_end(text, entries[-1][1])
    newline = "" if not text[:at] or text[:at].endswith("\n") else "\n"
    return f"{text[:at]}{newline}{indent}{_dump(key)}:{_space(':', value)}{value}\n{text[at:]}"


def _space(before: str, value: str) -> str:
    return "" if before[-1:].isspace() or value.startswith("\n") else " "


def _cut_lines(text: str, entry: "Entry") -> str:
    start = text.rfind("\n", 0, entry[0].start_mark.index) + 1
    return text[:start] + text[_find_line_end(text, entry[1]) :]


def _find_line_end(text: str, node: "Node") -> int:
    """Return the index after the last line of a node."""
    if node.end_mark.column == 0 and node.end_mark.index:
        return int(node.end_mark.index)
    index = text.find("\n", node.end_mark.index)
    return len(text) if index < 0 else index + 1


def _read(text: str, node: "Node") -> dict[str, Any]:
    """Return the value of a mapping on one line; a longer one could contain comments."""
    import yaml  # noqa: PLC0415 - slow

    if node.start_mark.line != node.end_mark.line:
        raise ValueError("a mapping of several lines")
    value: dict[str, Any] = yaml.safe_load(text[node.start_mark.index : node.end_mark.index])
    return value


def _dump(value: str | dict[str, Any]) -> str:
    import yaml  # noqa: PLC0415 - slow

    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")
