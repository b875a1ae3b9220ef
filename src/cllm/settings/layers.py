"""The layers of settings: which files apply, what each source says, and the later over the earlier.

Knows where every value came from. What a value means, and whether it may be so, is not known here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from cllm.assembly.system import GivenPrompt
from cllm.core.errors import SettingsError, UsageError
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, fill_in, line_of, read_cllmfile

ENVIRONMENT_KEYS = {
    "CLLM_MODEL": "model",
    "CLLM_CONVERSATIONS_PATH": "conversations_path",
    "CLLM_DEBUG": "debug",
    "CLLM_JSON_LOGS": "json_logs",
    "CLLM_LOG_FILE": "log_file",
    "CLLM_VERBOSITY": "verbosity",
}
WORDS: dict[str, bool] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
COMMAND_LINE = "command line"
S = TypeVar("S", bound=msgspec.Struct)
SCHEMA_KEYS = ("json_schema", "json_schema_file")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where cllm runs: everything of the machine that settings depend on."""

    home: Path
    directory: Path
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        """Without the environment, which holds keys."""
        return f"Place(home={self.home!r}, directory={self.directory!r})"


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the person said on the command line, which goes over every file."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    system: GivenPrompt | None = None
    cllm_path: Path | None = None
    config: str | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    trust: bool = False


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One source of settings, and whether it is the person's own.

    `written` is the content before the environment's variables were filled in.
    """

    source: str
    content: dict[str, Any]
    written: dict[str, Any] = msgspec.field(default_factory=dict)
    own: bool = True


class Layered(msgspec.Struct, frozen=True, kw_only=True):
    """All layers together. `sources` says for each value, by its dotted name, who set it."""

    values: dict[str, Any]
    sources: dict[str, str]
    layers: tuple[Layer, ...]
    files: tuple[Cllmfile, ...]

    def decode(self, content: Any, kind: type[S], where: str, *, expected: str = "a mapping") -> S:
        """Decode the mapping at the dotted name `where`; a null keeps the field's default.

        A wrong field is a SettingsError with the file, the line, and the description in its type.
        """
        if not isinstance(content, dict):
            raise self.wrong(where, expected)
        prefix = f"{where}." if where else ""
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if kind.__struct_config__.forbid_unknown_fields:
            for name in content:
                if name not in fields:
                    raise self.wrong(f"{prefix}{name}", f"one of {', '.join(fields)}")
        values = {}
        for name, field in fields.items():
            value, form = content.get(name), field.type
            if isinstance(form, type) and issubclass(form, msgspec.Struct):
                values[name] = self.decode({} if value is None else value, form, f"{prefix}{name}")
            elif value is not None or field.required:
                try:
                    values[name] = msgspec.convert(value, form)
                except msgspec.ValidationError as error:
                    raise self.wrong(f"{prefix}{name}", _description(form)) from error
        return kind(**values)

    def wrong(self, key: str, expected: str) -> SettingsError:
        """The error of a value that is not what its key takes, with the place to mend."""
        return self.mistake(key, f"must be {expected}")

    def mistake(self, key: str, what: str) -> SettingsError:
        """The error of a key that cannot stand as it does, with the place to mend."""
        source = self.source_of(key)
        path = next((file.path for file in self.files if str(file.path) == source), None)
        line = None if path is None else line_of(path, key)
        return SettingsError(f"`{key}` {what}.", path=source, line=line)

    def source_of(self, key: str) -> str | None:
        """Who set a value: it itself, something in it, or the nearest above it that is known."""
        inside = f"{key}."
        if key not in self.sources:
            for name, source in self.sources.items():
                if name.startswith(inside):
                    return source
        while key not in self.sources and key:
            key = key.rpartition(".")[0]
        return self.sources.get(key)

    def written(self, key: str) -> Any:
        """A value that no merging changes, as it stands in the file that set it."""
        holders = (layer.written for layer in reversed(self.layers) if key in layer.written)
        return next(holders, {}).get(key)


def _description(form: Any) -> str:
    """The description of the first annotation in a type, or in a union of types."""
    if get_origin(form) is Annotated:
        return next(str(meta.description) for meta in form.__metadata__ if meta.description)
    return next(_description(inner) for inner in get_args(form) if get_origin(inner) is Annotated)


def expanded(path: str) -> Path:
    """A path with `~` filled in."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"the path '{path}' names a home that does not exist.") from error


def user_folder(place: Place) -> Path:
    return place.home / ".cllm"


def chosen_folder(place: Place, line: CommandLine) -> Path | None:
    """The cllm folder that the person named, if they named one."""
    if line.cllm_path is not None:
        return line.cllm_path
    named = place.environment.get("CLLM_PATH")
    return expanded(named) if named else None


def folders(place: Place, line: CommandLine) -> list[tuple[Path, bool]]:
    """The folders that may hold Cllmfiles, lowest first, and whether they are the person's own.

    A named folder stands for both usual ones.
    """
    named = chosen_folder(place, line)
    home, local = user_folder(place), place.directory / ".cllm"
    if named is not None:
        found = [(named, True)]
    else:
        found = [(home, True)]
        if local.resolve() != home.resolve():
            found.append((local, False))
    return [*found, (place.directory, False)]


def read_files(place: Place, line: CommandLine) -> list[Cllmfile]:
    """The Cllmfiles that apply, lowest first: those of every folder, then the one asked for."""
    found = _read_named(FILE_NAME, place, line)
    if line.config is None:
        return found
    named = _read_named(f"{line.config}.{FILE_NAME}", place, line) if _is_name(line.config) else []
    if not named:
        raise _no_such_file(line.config, place, line)
    return [*found, *named]


def _read_named(name: str, place: Place, line: CommandLine) -> list[Cllmfile]:
    read = (
        read_cllmfile(folder / name, trusted_place=trusted)
        for folder, trusted in folders(place, line)
    )
    return [file for file in read if file is not None]


def _is_name(config: str) -> bool:
    return bool(config) and "/" not in config and "\0" not in config and config not in (".", "..")


def named_files(place: Place, line: CommandLine) -> list[str]:
    """The names that -c can be given here."""
    suffix = f".{FILE_NAME}"
    return sorted(
        {
            path.name.removesuffix(suffix)
            for folder, _ in folders(place, line)
            for path in folder.glob(f"*{suffix}")
            if path.name != suffix
        }
    )


def _no_such_file(config: str, place: Place, line: CommandLine) -> UsageError:
    names = named_files(place, line)
    there = f"there are {', '.join(names)}." if names else "there is no named file at all."
    return UsageError(f"There is no {config}.{FILE_NAME} for -c {config}; {there}")


def merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    """The upper mapping over the lower one, mappings inside them merged the same way."""
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def layer_up(files: list[Cllmfile], place: Place, line: CommandLine) -> Layered:
    """All sources, the later over the earlier: files, environment, command line."""
    layers = [
        Layer(
            source=str(file.path),
            content=fill_in(file.content, place.environment),
            written=file.content,
            own=file.trusted_place,
        )
        for file in files
    ]
    for variable, key in ENVIRONMENT_KEYS.items():
        given = place.environment.get(variable)
        if given:
            layers.append(Layer(source=variable, content={key: _from_environment(key, given)}))
    layers.append(Layer(source=COMMAND_LINE, content=line.values))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in layers:
        if any(key in layer.content for key in SCHEMA_KEYS):
            # A schema is one whole: it replaces a lower one, whichever key named that.
            values = {key: value for key, value in values.items() if key not in SCHEMA_KEYS}
            for key in SCHEMA_KEYS:
                _forget(sources, key)
                sources.pop(key, None)
        for name in _leaves(layer.content):
            _forget(sources, name)
            sources[name] = layer.source
        values = merge(values, layer.content)
    return Layered(values=values, sources=sources, layers=tuple(layers), files=tuple(files))


def _from_environment(key: str, given: str) -> Any:
    """What a variable says, as the type that its key has."""
    if key in ("debug", "json_logs"):
        return WORDS.get(given.strip().lower(), given)
    if key == "verbosity" and given.strip().isdigit():
        return int(given)
    return given


def _leaves(content: dict[str, Any], above: str = "") -> list[str]:
    """The dotted names of all values that are no mappings themselves."""
    names: list[str] = []
    for key, value in content.items():
        name = f"{above}.{key}" if above else key
        names += _leaves(value, name) if isinstance(value, dict) and value else [name]
    return names


def _forget(sources: dict[str, str], name: str) -> None:
    """Drop what a new value replaces: a mapping under its name, or a value that it goes into."""
    for known in list(sources):
        if known.startswith(f"{name}.") or name.startswith(f"{known}."):
            del sources[known]
