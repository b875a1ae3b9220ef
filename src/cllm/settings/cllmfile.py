"""Reads one Cllmfile.yml and substitutes its variables."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.errors import SettingsError
from cllm.files import FileTooLargeError, NotRegularFileError, read_regular_file

FILE_NAME = "Cllmfile.yml"
MAX_BYTES = 1024 * 1024
MAX_VALUES = 100_000
# Every value has a start event; a list or mapping also has an end event.
MAX_EVENTS = 2 * MAX_VALUES
MAX_DEPTH = 50
MAX_TAGGED_NUMBER = 300
MAX_ALIASES = 16
LONG_NUMBER = re.compile(r"[-+]?[0-9][0-9a-fA-FxXoO:_.]{300,}")
INVALID_CHARACTERS = re.compile(r"[\0\ud800-\udfff]")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Cllmfile(msgspec.Struct, frozen=True, kw_only=True):
    """`link` is the real path, if the file is a symbolic link out of its folder."""

    path: Path
    content: dict[str, Any]
    in_user_folder: bool
    link: str | None = None


def read_cllmfile(path: Path, *, in_user_folder: bool) -> Cllmfile | None:
    """Read a file; None if it does not exist."""
    try:
        data = read_regular_file(path, limit=MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (NotRegularFileError, IsADirectoryError) as error:
        raise SettingsError("it is not a regular file.", path=str(path)) from error
    except FileTooLargeError as error:
        raise SettingsError(f"it is larger than {MAX_BYTES} bytes.", path=str(path)) from error
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise SettingsError(
            f"it cannot be read ({reason}); check its permissions.", path=str(path)
        ) from error
    content = _parse(data, path)
    return Cllmfile(
        path=path, content=content, in_user_folder=in_user_folder, link=_external_target(path)
    )


def _external_target(path: Path) -> str | None:
    """Return the real path, if it is outside the folder of the file or of its `.cllm`."""
    folder = path.parent.parent if path.parent.name == ".cllm" else path.parent
    real = path.resolve()
    return None if real.is_relative_to(folder.resolve()) else str(real)


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - slow; needed only with a Cllmfile

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _check_shape(_parse_events(data, loader, path), path)
    with _report_yaml_errors(path):
        content = yaml.load(data, Loader=loader)  # noqa: S506 - both are safe loaders
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError("the file must contain `key: value` lines.", path=str(path), line=1)
    invalid_keys = [key for key in content if not isinstance(key, str)]
    if invalid_keys:
        raise SettingsError(f"the key {invalid_keys[0]!r} must be a string.", path=str(path))
    plain: dict[str, Any] = _to_plain_json(content, path)
    return plain


def _parse_events(data: bytes, loader: Any, path: Path) -> Iterator[Any]:
    import yaml  # noqa: PLC0415 - as above

    with _report_yaml_errors(path):
        yield from yaml.parse(data, Loader=loader)


@contextmanager
def _report_yaml_errors(path: Path) -> Iterator[None]:
    """Raise SettingsError for any exception of PyYAML. No other code may run in it."""
    import yaml  # noqa: PLC0415 - as above

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = None if mark is None else mark.line + 1
        reason = "" if error.problem is None else f" ({error.problem})"
        text = f"invalid YAML{reason}; correct the line."
        raise SettingsError(text, path=str(path), line=line) from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise SettingsError("it is not valid YAML.", path=str(path)) from error


def _check_shape(events: Iterable[Any], path: Path) -> None:
    """Reject content that would exhaust memory or time. An alias has the size of its anchor."""
    aliases = 0
    sizes: dict[str, int] = {}
    open_values: list[tuple[str | None, int]] = []
    size = 0
    for event in events:
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            open_values.append((event.anchor, size))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, before = open_values.pop()
            sizes[anchor or ""] = size - before
        elif kind == "AliasEvent":
            aliases += 1
            size += sizes.get(event.anchor, 0)
        elif kind == "ScalarEvent" and _is_long_number(event):
            raise SettingsError("it contains a number that is too long.", path=str(path))
        size += 1
        if len(open_values) > MAX_DEPTH:
            raise SettingsError("it is nested too deeply.", path=str(path))
        if aliases > MAX_ALIASES:
            raise SettingsError(f"it uses more than {MAX_ALIASES} aliases.", path=str(path))
        if size > MAX_EVENTS:
            raise SettingsError(f"it expands to more than {MAX_VALUES} values.", path=str(path))


def _is_long_number(event: Any) -> bool:
    if not event.style and LONG_NUMBER.fullmatch(event.value):
        return True
    tagged = str(event.tag or "").endswith((":int", ":float"))
    return tagged and len(event.value) > MAX_TAGGED_NUMBER


def _to_plain_json(
    value: Any, path: Path, depth: int = 0, *, budget: list[int] | None = None
) -> Any:
    """Return the value as plain JSON. `budget` bounds the values, which aliases can multiply."""
    budget = [MAX_VALUES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        raise SettingsError(f"it expands to more than {MAX_VALUES} values.", path=str(path))
    if isinstance(value, dict):
        return {
            _to_plain_key(key, path): _to_plain_json(item, path, depth + 1, budget=budget)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_to_plain_json(item, path, depth + 1, budget=budget) for item in value]
    if isinstance(value, str) and INVALID_CHARACTERS.search(value):
        problem = "it contains a string with invalid characters."
        raise SettingsError(problem, path=str(path))
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, date):
        return value.isoformat()
    raise SettingsError(
        "it contains a value that is not a string, number, list or mapping.", path=str(path)
    )


def _to_plain_key(key: Any, path: Path) -> str:
    if isinstance(key, str):
        return str(_to_plain_json(key, path))
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise SettingsError(f"the key {key!r} must be a string; put it in quotes.", path=str(path))


def find_line(path: Path, key: str) -> int | None:
    """Return the line number of a key, by its dotted name."""
    import yaml  # noqa: PLC0415 - as above

    try:
        node = yaml.compose(path.read_text(encoding="utf-8", errors="replace"), yaml.SafeLoader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return None
    return _find_line_in(node, key)


def _find_line_in(node: Any, key: str) -> int | None:
    """Return the line number of an entry, or of its nearest parent."""
    whole = _child(node, key)
    if whole is not None:
        return whole[0]
    first, _, rest = key.partition(".")
    child = _child(node, first) if rest else None
    if child is None:
        return None
    return _find_line_in(child[1], rest) or child[0]


def _child(node: Any, name: str) -> tuple[int, Any] | None:
    if type(node).__name__ == "MappingNode":
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line + 1, value
    elif type(node).__name__ == "SequenceNode" and name.isdigit() and int(name) < len(node.value):
        item = node.value[int(name)]
        return item.start_mark.line + 1, item
    return None


def substitute_variables(content: Any, environment: Mapping[str, str]) -> Any:
    """Replace `${VAR}` in every text; unset variables are left unchanged."""
    if isinstance(content, str):
        return VARIABLE.sub(lambda match: environment.get(match[1], match[0]), content)
    if isinstance(content, list):
        return [substitute_variables(item, environment) for item in content]
    if isinstance(content, dict):
        return {key: substitute_variables(item, environment) for key, item in content.items()}
    return content


def find_variables(value: Any) -> frozenset[str]:
    return frozenset(VARIABLE.findall(str(value)))
