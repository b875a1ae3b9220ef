"""The layers of settings: which files apply, and how later ones override earlier ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from cllm.core.errors import SettingsError, UsageError
from cllm.history.system_prompt import GivenPrompt
from cllm.settings.cllmfile import (
    FILE_NAME,
    Cllmfile,
    find_line,
    read_cllmfile,
    substitute_variables,
)

ENVIRONMENT_KEYS = {
    "CLLM_MODEL": "model",
    "CLLM_CONVERSATIONS_PATH": "conversations_path",
    "CLLM_DEBUG": "debug",
    "CLLM_JSON_LOGS": "json_logs",
    "CLLM_LOG_FILE": "log_file",
    "CLLM_VERBOSITY": "verbosity",
}
BOOLEAN_WORDS: dict[str, bool] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
COMMAND_LINE = "command line"
S = TypeVar("S", bound=msgspec.Struct)
SCHEMA_KEYS = ("json_schema", "json_schema_file")


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    home: Path
    directory: Path
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        """Omits the environment variables, which contain keys."""
        return f"Environment(home={self.home!r}, directory={self.directory!r})"


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    system: GivenPrompt | None = None
    cllm_path: Path | None = None
    config: str | None = None
    template: str | None = None
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    trust: bool = False


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One source of settings; `is_own` if the user wrote it. `raw` has no variables substituted."""

    source: str
    content: dict[str, Any]
    raw: dict[str, Any] = msgspec.field(default_factory=dict)
    is_own: bool = True


class LayeredSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The merged layers. `sources` has the source of each value, by its dotted name."""

    values: dict[str, Any]
    sources: dict[str, str]
    layers: tuple[Layer, ...]
    files: tuple[Cllmfile, ...]

    def decode(self, content: Any, kind: type[S], where: str, *, expected: str = "a mapping") -> S:
        """Decode the mapping at the dotted name `where`; null means the default of the field."""
        if not isinstance(content, dict):
            raise self.expectation_error(where, expected)
        prefix = f"{where}." if where else ""
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if kind.__struct_config__.forbid_unknown_fields:
            for name in content:
                if name not in fields:
                    raise self.error_at(
                        f"{prefix}{name}", f"is not a known key; use one of {', '.join(fields)}"
                    )
        values = {}
        for name, field in fields.items():
            value, form = content.get(name), field.type
            if isinstance(form, type) and issubclass(form, msgspec.Struct):
                values[name] = self.decode({} if value is None else value, form, f"{prefix}{name}")
            elif value is not None or field.required:
                try:
                    values[name] = msgspec.convert(value, form)
                except msgspec.ValidationError as error:
                    raise self.expectation_error(f"{prefix}{name}", _description(form)) from error
        return kind(**values)

    def expectation_error(self, key: str, expected: str) -> SettingsError:
        return self.error_at(key, f"must be {expected}")

    def error_at(self, key: str, problem: str) -> SettingsError:
        source = self.source_of(key)
        path = next((file.path for file in self.files if str(file.path) == source), None)
        line = None if path is None else find_line(path, key)
        return SettingsError(f"`{key}` {problem}.", path=source, line=line)

    def source_of(self, key: str) -> str | None:
        """Return the source of a value, else of a value in it, else of its nearest parent."""
        inside = f"{key}."
        if key not in self.sources:
            for name, source in self.sources.items():
                if name.startswith(inside):
                    return source
        while key not in self.sources and key:
            key = key.rpartition(".")[0]
        return self.sources.get(key)

    def raw_value(self, key: str) -> Any:
        contents = (layer.raw for layer in reversed(self.layers) if key in layer.raw)
        return next(contents, {}).get(key)


def _description(form: Any) -> str:
    if get_origin(form) is Annotated:
        return next(str(meta.description) for meta in form.__metadata__ if meta.description)
    return next(_description(inner) for inner in get_args(form) if get_origin(inner) is Annotated)


def expand_home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"the home folder in the path '{path}' does not exist.") from error


def user_folder(env: Environment) -> Path:
    return env.home / ".cllm"


def explicit_cllm_path(env: Environment, line: CommandLine) -> Path | None:
    """Raises UsageError unless it is an existing folder: a new one is usually a misspelled one."""
    name, path = "--cllm-path", line.cllm_path
    if path is None:
        value = env.environment.get("CLLM_PATH")
        name, path = "CLLM_PATH", expand_home(value) if value else None
    if path is None or (env.directory / path).is_dir():
        return path
    is_file = (env.directory / path).exists()
    advice = "is not a folder; name a folder" if is_file else f"does not exist; run: mkdir {path}"
    raise UsageError(f"{name}: {path} {advice}")


def settings_folders(env: Environment, line: CommandLine) -> list[tuple[Path, bool]]:
    """Return the folders of Cllmfiles, lowest priority first; True for the user's own folders."""
    explicit = explicit_cllm_path(env, line)
    if explicit is not None:
        return [(explicit, True)]
    home, local = user_folder(env), env.directory / ".cllm"
    folders = [(home, True)]
    if local.resolve() != home.resolve():
        folders.append((local, False))
    return [*folders, (env.directory, False)]


def read_files(env: Environment, line: CommandLine) -> list[Cllmfile]:
    """Return the Cllmfiles that apply, lowest priority first; those of `-C` and `-T` last."""
    files = [*_read_cllmfiles(FILE_NAME, env, line), *_read_config(env, line)]
    if line.template is not None:
        from cllm.settings.prompt_templates import read_template  # noqa: PLC0415 - for `-T` only

        files.append(read_template(line.template, env, line))
    return files


def _read_config(env: Environment, line: CommandLine) -> list[Cllmfile]:
    config = line.config
    if config is None:
        return []
    is_name = is_config_name(config)
    chosen = _read_cllmfiles(f"{config}.{FILE_NAME}", env, line) if is_name else []
    if not chosen:
        names = list_config_names(env, line)
        advice = f"; choose one of {', '.join(names)}." if names else "; create it or omit -C."
        folders = explicit_cllm_path(env, line) or "~/.cllm, ./.cllm or the current directory"
        raise UsageError(f"-C {config}: {config}.{FILE_NAME} does not exist in {folders}{advice}")
    return chosen


def is_config_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _read_cllmfiles(name: str, env: Environment, line: CommandLine) -> list[Cllmfile]:
    files = (
        read_cllmfile(folder / name, in_user_folder=trusted)
        for folder, trusted in settings_folders(env, line)
    )
    return [file for file in files if file is not None]


def list_config_names(env: Environment, line: CommandLine) -> list[str]:
    suffix = f".{FILE_NAME}"
    return sorted(
        {
            path.name.removesuffix(suffix)
            for folder, _ in settings_folders(env, line)
            for path in folder.glob(f"*{suffix}")
            if path.name != suffix
        }
    )


def merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = merge(below, value)  # noqa: PLW2901 - the merged value
        merged[key] = value
    return merged


def merge_layers(files: list[Cllmfile], env: Environment, line: CommandLine) -> LayeredSettings:
    layers = [
        Layer(
            source=str(file.path),
            content=substitute_variables(file.content, env.environment),
            raw=file.content,
            is_own=file.in_user_folder,
        )
        for file in files
    ]
    for variable, key in ENVIRONMENT_KEYS.items():
        value = env.environment.get(variable)
        if value:
            layers.append(
                Layer(source=variable, content={key: _parse_environment_value(key, value)})
            )
    layers.append(Layer(source=COMMAND_LINE, content=line.values))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in layers:
        if any(key in layer.content for key in SCHEMA_KEYS):
            # A schema replaces a lower one completely, whichever of the two keys set it.
            values = {key: value for key, value in values.items() if key not in SCHEMA_KEYS}
            for key in SCHEMA_KEYS:
                _drop_sources(sources, key)
                sources.pop(key, None)
        for name in _dotted_names(layer.content):
            _drop_sources(sources, name)
            sources[name] = layer.source
        values = merge(values, layer.content)
    return LayeredSettings(values=values, sources=sources, layers=tuple(layers), files=tuple(files))


def _parse_environment_value(key: str, text: str) -> Any:
    if key in ("debug", "json_logs"):
        return BOOLEAN_WORDS.get(text.strip().lower(), text)
    if key == "verbosity" and text.strip().isdigit():
        return int(text)
    return text


def _dotted_names(content: dict[str, Any], above: str = "") -> list[str]:
    names: list[str] = []
    for key, value in content.items():
        name = f"{above}.{key}" if above else key
        names += _dotted_names(value, name) if isinstance(value, dict) and value else [name]
    return names


def _drop_sources(sources: dict[str, str], name: str) -> None:
    """Drop the sources of values that a new one replaces."""
    for other in list(sources):
        if other.startswith(f"{name}.") or name.startswith(f"{other}."):
            del sources[other]
