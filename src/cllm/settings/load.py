"""All layers together: files, environment, command line, the later over the earlier."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cllm.assembly.system import GivenPrompt
from cllm.core.errors import SettingsError
from cllm.core.notice import Notice
from cllm.core.secret import Secret
from cllm.settings import keys
from cllm.settings.cllmfile import FILE_NAME, Cllmfile, fill_in, line_of, read_cllmfile
from cllm.settings.trust import TrustLedger

ENVIRONMENT_KEYS = {
    "CLLM_MODEL": "model",
    "CLLM_CONVERSATIONS_PATH": "conversations_path",
}
TOP_KEYS = ("api_base", "base_url", "api_key", "extra_headers", "timeout")
LONGEST_TIMEOUT = 1_000_000
TIMEOUT_PARTS = ("connect", "first_byte", "idle")
DEFAULT_RETRIES = 2
MOST_RETRIES = 20
TEXT_KEYS = (
    "model",
    "default_system_message",
    "api_base",
    "api_key",
    "conversations_path",
    "store",
)


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
    trust: bool = False


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one provider. What is None is for the provider's own row to say."""

    kind: str | None = None
    api_base: str | None = None
    api_key: Secret | None = None
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    timeout: float | dict[str, float] | None = None
    models: tuple[str, ...] = ()
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class TopProvider(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the provider of a model, as a file says at its top level.

    It is for the model in force where it stands, never for one that a file above it names: that
    file can be somebody else's, and would choose where a key goes.
    """

    model: str | None
    settings: ProviderSettings


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings, typed.

    `top_providers` is what stands at the top level of the files, lowest first.
    """

    place: Place
    cllm_path: Path
    model: str | None
    model_is_explicit: bool
    system: GivenPrompt
    stream: bool
    raw: bool
    on_interrupt: str
    retries: int
    fallbacks: tuple[str, ...]
    strict: bool
    parameters: dict[str, Any]
    top_providers: tuple[TopProvider, ...]
    providers: dict[str, ProviderSettings]
    store: str
    notices: tuple[Notice, ...]


class _Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One source of settings, and whether it is the person's own."""

    source: str
    content: dict[str, Any]
    own: bool = True


class _Layered(msgspec.Struct, frozen=True, kw_only=True):
    values: dict[str, Any]
    sources: dict[str, str]
    layers: tuple[_Layer, ...]


def load_settings(place: Place, line: CommandLine) -> Settings:
    """The settings that hold here and now."""
    files = read_files(place, line)
    if not line.trust and place.environment.get("CLLM_TRUST") != "always":
        ledger = TrustLedger(user_folder(place))
        for file in files:
            ledger.check(file)
    layered = _layer(files, place, line)
    _check_types(layered, files)
    return _typed(layered, place, line)


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


def read_files(place: Place, line: CommandLine) -> list[Cllmfile]:
    """The Cllmfiles that apply, lowest first. A named folder stands for both usual ones."""
    named = chosen_folder(place, line)
    home_folder = user_folder(place)
    local_folder = place.directory / ".cllm"
    candidates: list[tuple[Path, bool]]
    if named is not None:
        candidates = [(named / FILE_NAME, True)]
    else:
        candidates = [(home_folder / FILE_NAME, True)]
        if not _same_folder(local_folder, home_folder):
            candidates.append((local_folder / FILE_NAME, False))
    candidates.append((place.directory / FILE_NAME, False))
    found = (read_cllmfile(path, trusted_place=trusted) for path, trusted in candidates)
    return [file for file in found if file is not None]


def _same_folder(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


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


def _layer(files: list[Cllmfile], place: Place, line: CommandLine) -> _Layered:
    layers = [
        _Layer(
            source=str(file.path),
            content=fill_in(file.content, place.environment),
            own=file.trusted_place,
        )
        for file in files
    ]
    for variable, key in ENVIRONMENT_KEYS.items():
        if place.environment.get(variable):
            layers.append(_Layer(source=variable, content={key: place.environment[variable]}))
    layers.append(_Layer(source="command line", content=line.values))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in layers:
        values = merge(values, layer.content)
        sources |= dict.fromkeys(layer.content, layer.source)
    return _Layered(values=values, sources=sources, layers=tuple(layers))


def _top_providers(layers: tuple[_Layer, ...]) -> tuple[TopProvider, ...]:
    tops = []
    for place, layer in enumerate(layers):
        chosen = {key: layer.content[key] for key in TOP_KEYS if key in layer.content}
        if chosen:
            settings = _provider(chosen, where=layer.source)
            tops.append(TopProvider(model=_model_for(layers, place), settings=settings))
    return tuple(tops)


def _model_for(layers: tuple[_Layer, ...], place: int) -> str | None:
    """The model in force at a layer, else the first that the person's own layers above name."""
    below = [layer.content.get("model") for layer in layers[: place + 1]]
    above = [layer.content.get("model") for layer in layers[place + 1 :] if layer.own]
    return next((model for model in [*reversed(below), *above] if model), None)


class _Check(msgspec.Struct, frozen=True):
    """What some keys must be; a key that is absent or null is not checked."""

    keys: tuple[str, ...]
    holds: Callable[[Any], bool]
    expected: str


CHECKS = (
    _Check(TEXT_KEYS, lambda value: isinstance(value, str), "a text"),
    _Check(("providers", "extra_headers"), lambda value: isinstance(value, dict), "a mapping"),
    _Check(
        ("num_retries", "max_retries"),
        lambda value: isinstance(value, int) and 0 <= value <= MOST_RETRIES,
        f"a whole number from 0 to {MOST_RETRIES}",
    ),
    _Check(("on_interrupt",), lambda value: value in ("keep", "discard"), "`keep` or `discard`"),
    _Check(
        ("stream", "raw_response", "strict"), lambda value: isinstance(value, bool), "true or false"
    ),
    _Check(
        ("fallbacks",),
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of models, such as [openai/gpt-4o]",
    ),
)


def _check_types(layered: _Layered, files: list[Cllmfile]) -> None:
    for check in CHECKS:
        for key in check.keys:
            value = layered.values.get(key)
            if value is not None and not check.holds(value):
                raise _wrong(layered, files, key, check.expected)
    for file in files:
        if not isinstance(file.content.get("model"), str | None):
            line = line_of(file.path, "model")
            raise SettingsError("`model` must be a text.", path=str(file.path), line=line)


def _wrong(layered: _Layered, files: list[Cllmfile], key: str, expected: str) -> SettingsError:
    source = layered.sources[key]
    path = next((file.path for file in files if str(file.path) == source), None)
    line = None if path is None else line_of(path, key)
    return SettingsError(f"`{key}` must be {expected}.", path=source, line=line)


def _retries(values: dict[str, Any]) -> int:
    named = (values.get(key) for key in ("num_retries", "max_retries"))
    return next((value for value in named if value is not None), DEFAULT_RETRIES)


def _typed(layered: _Layered, place: Place, line: CommandLine) -> Settings:
    values = layered.values
    folder = chosen_folder(place, line)
    local = place.directory / ".cllm"
    cllm_path = folder or (local if local.is_dir() else user_folder(place))
    return Settings(
        place=place,
        cllm_path=cllm_path,
        model=values.get("model") or None,
        model_is_explicit="model" in line.values,
        system=line.system or _configured_prompt(layered),
        stream=values.get("stream") is not False,
        raw=bool(values.get("raw_response")),
        on_interrupt=values.get("on_interrupt") or "keep",
        retries=_retries(values),
        fallbacks=tuple(values.get("fallbacks") or ()),
        strict=bool(values.get("strict")),
        parameters=_parameters(values),
        top_providers=_top_providers(layered.layers),
        providers={
            name: _provider(row, where=f"providers.{name}")
            for name, row in (values.get("providers") or {}).items()
        },
        store=_store_url(values, place, cllm_path),
        notices=_misspelled(values),
    )


def _configured_prompt(layered: _Layered) -> GivenPrompt:
    text = layered.values.get("default_system_message")
    if text is None or not text.strip():
        return GivenPrompt()
    source = Path(layered.sources["default_system_message"])
    return GivenPrompt(text=text, source=f"{source.name}: default_system_message")


def _parameters(values: dict[str, Any]) -> dict[str, Any]:
    """What goes into the request's body: everything that is neither cllm's nor the provider's."""
    own = keys.CLLM_KEYS | keys.PROVIDER_KEYS
    return {key: value for key, value in values.items() if key not in own and value is not None}


def _provider(row: Any, *, where: str) -> ProviderSettings:
    if not isinstance(row, dict):
        raise SettingsError(f"`{where}` must be a mapping such as {{api_base: …, api_key: …}}.")
    key = row.get("api_key")
    headers = row.get("extra_headers") or {}
    if not isinstance(headers, dict):
        raise SettingsError(f"`extra_headers` of {where} must be a mapping.")
    if not all(f"{name}{value}".isprintable() for name, value in headers.items()):
        raise SettingsError(f"`extra_headers` of {where} must be of one line each.")
    base = row.get("api_base") or row.get("base_url")
    if base is not None and not isinstance(base, str):
        raise SettingsError(f"`api_base` of {where} must be a text.")
    models = row.get("models") or []
    if not isinstance(models, list) or not all(isinstance(name, str) for name in models):
        raise SettingsError(f"`models` of {where} must be a list of names.")
    used = {"type", "models", *TOP_KEYS}
    return ProviderSettings(
        kind=row.get("type"),
        api_base=base,
        api_key=Secret(str(key)) if key else None,
        headers={name: Secret(str(value)) for name, value in headers.items()},
        timeout=_timeout(row.get("timeout"), where),
        models=tuple(models),
        options={name: value for name, value in row.items() if name not in used},
    )


def _timeout(value: Any, where: str) -> float | dict[str, float] | None:
    try:
        timeout = msgspec.convert(value, type=float | dict[str, float] | None)
    except msgspec.ValidationError:
        timeout = {"?": 0.0}
    parts = timeout if isinstance(timeout, dict) else {"idle": 1.0 if timeout is None else timeout}
    if not all(
        name in TIMEOUT_PARTS and 0 < seconds <= LONGEST_TIMEOUT for name, seconds in parts.items()
    ):
        raise SettingsError(
            f"`timeout` of {where} must be seconds (above 0, at most a million), or some of "
            "{connect: …, first_byte: …, idle: …}."
        )
    return timeout


def _store_url(values: dict[str, Any], place: Place, cllm_path: Path) -> str:
    if values.get("store"):
        return str(values["store"])
    named = values.get("conversations_path")
    if named:
        return f"json:{place.directory / expanded(named)}"
    return f"json:{cllm_path / 'conversations'}"


def _misspelled(values: dict[str, Any]) -> tuple[Notice, ...]:
    """A warning for each unknown key that is close to a known one; it is sent on all the same."""
    unknown = [key for key in values if key not in keys.KNOWN_KEYS]
    if not unknown:
        return ()
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    near = {key: get_close_matches(key, keys.KNOWN_KEYS, n=1, cutoff=0.8) for key in unknown}
    return tuple(
        Notice(
            code="unknown_key",
            path=key,
            message=f"Unknown setting `{key}` is passed to the model; did you mean `{match[0]}`?",
        )
        for key, match in near.items()
        if match
    )
