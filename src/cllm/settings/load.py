"""The effective settings, typed: what holds here and now."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cllm.assembly.system import GivenPrompt
from cllm.commands.tool import CommandSettings
from cllm.core.context import ContextCommand
from cllm.core.errors import SettingsError
from cllm.core.notice import Notice
from cllm.schemas.source import SchemaSource
from cllm.settings import keys
from cllm.settings.cllmfile import line_of
from cllm.settings.commands import read_command_settings
from cllm.settings.context import read_context_commands
from cllm.settings.layers import (
    CommandLine,
    Layer,
    Layered,
    Place,
    expanded,
    layer_up,
    merge,
    read_files,
    user_folder,
)
from cllm.settings.places import (
    CONVERSATIONS,
    file_store,
    history_folder,
    leads_away,
    local_folder,
)
from cllm.settings.providers import TOP_KEYS, ProviderSettings, TopProvider, read_provider
from cllm.settings.schema import read_schema_source
from cllm.settings.server import ServerSettings, read_server
from cllm.settings.trust import TrustLedger
from cllm.settings.variables import Variables, read_variables
from cllm.settings.window import WindowSettings, read_window

__all__ = [
    "CommandLine",
    "Place",
    "ProviderSettings",
    "Settings",
    "TopProvider",
    "load_settings",
    "merge",
    "read_files",
    "user_folder",
]

DEFAULT_RETRIES = 2
MOST_VERBOSE = 3
MOST_RETRIES = 20
TEXT_KEYS = (
    "model",
    "default_system_message",
    "api_base",
    "api_key",
    "conversations_path",
    "store",
    "log_file",
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings, typed.

    `history_folder` has the conversations unless `store` says otherwise. `top_providers` is what
    stands at the top level of the files, lowest first.
    """

    place: Place
    history_folder: Path
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
    context: tuple[ContextCommand, ...]
    variables: Variables
    window: WindowSettings
    allow_commands: bool
    commands: CommandSettings
    verbosity: int
    json_logs: bool
    log_file: Path | None
    schema: SchemaSource | None
    server: ServerSettings
    store: str
    notices: tuple[Notice, ...]


def load_settings(place: Place, line: CommandLine) -> Settings:
    """The settings that hold here and now."""
    return type_settings(load_layers(place, line), place, line)


def load_layers(place: Place, line: CommandLine) -> Layered:
    """Every source of settings, those that need the person's trust only if they have it."""
    files = read_files(place, line)
    if not line.trust and place.environment.get("CLLM_TRUST") != "always":
        ledger = TrustLedger(user_folder(place))
        for file in files:
            ledger.check(file)
    return layer_up(files, place, line)


def _top_providers(layered: Layered) -> tuple[TopProvider, ...]:
    tops = []
    for place, layer in enumerate(layered.layers):
        chosen = {key: layer.content[key] for key in TOP_KEYS if key in layer.content}
        if chosen:
            settings = read_provider(chosen, where="", layered=layered)
            tops.append(TopProvider(model=_model_for(layered.layers, place), settings=settings))
    return tuple(tops)


def _model_for(layers: tuple[Layer, ...], place: int) -> str | None:
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
    _Check(
        ("verbosity",),
        lambda value: type(value) is int and 0 <= value <= MOST_VERBOSE,
        f"a whole number from 0 to {MOST_VERBOSE}",
    ),
    _Check(("on_interrupt",), lambda value: value in ("keep", "discard"), "`keep` or `discard`"),
    _Check(
        ("stream", "raw_response", "strict", "debug", "json_logs", "allow_dynamic_commands"),
        lambda value: isinstance(value, bool),
        "true or false",
    ),
    _Check(
        ("fallbacks",),
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of models, such as [openai/gpt-4o]",
    ),
)


def _check_types(layered: Layered) -> None:
    for check in CHECKS:
        for key in check.keys:
            value = layered.values.get(key)
            if value is not None and not check.holds(value):
                raise layered.wrong(key, check.expected)
    for file in layered.files:
        if not isinstance(file.content.get("model"), str | None):
            line = line_of(file.path, "model")
            raise SettingsError("`model` must be a text.", path=str(file.path), line=line)


def _retries(values: dict[str, Any]) -> int:
    named = (values.get(key) for key in ("num_retries", "max_retries"))
    return next((value for value in named if value is not None), DEFAULT_RETRIES)


def type_settings(layered: Layered, place: Place, line: CommandLine) -> Settings:
    """The layers as typed settings; the first value that is wrong is an error."""
    _check_types(layered)
    values = layered.values
    folder = history_folder(place, line)
    return Settings(
        place=place,
        history_folder=folder,
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
        top_providers=_top_providers(layered),
        providers={
            name: read_provider(row, where=f"providers.{name}", layered=layered)
            for name, row in (values.get("providers") or {}).items()
        },
        context=read_context_commands(layered),
        window=read_window(layered),
        variables=read_variables(layered, line.variables, place.environment),
        allow_commands=bool(values.get("allow_dynamic_commands")),
        commands=read_command_settings(layered),
        verbosity=MOST_VERBOSE if values.get("debug") else values.get("verbosity") or 0,
        json_logs=bool(values.get("json_logs")),
        log_file=_log_file(values, place),
        schema=read_schema_source(layered, place),
        server=read_server(layered, place.environment),
        store=_store_url(values, place, folder),
        notices=(*_misspelled(values), *_without_effect(values)),
    )


def _configured_prompt(layered: Layered) -> GivenPrompt:
    text = layered.values.get("default_system_message")
    if text is None or not text.strip():
        return GivenPrompt()
    source = Path(layered.sources["default_system_message"])
    return GivenPrompt(text=text, source=f"{source.name}: default_system_message")


def _parameters(values: dict[str, Any]) -> dict[str, Any]:
    """What goes into the request's body: everything that is neither cllm's nor the provider's."""
    own = keys.CLLM_KEYS | keys.PROVIDER_KEYS
    return {key: value for key, value in values.items() if key not in own and value is not None}


def _log_file(values: dict[str, Any], place: Place) -> Path | None:
    named = values.get("log_file")
    return place.directory / expanded(named) if named else None


def _store_url(values: dict[str, Any], place: Place, folder: Path) -> str:
    if values.get("store"):
        return str(values["store"])
    named = values.get("conversations_path")
    if named:
        return f"json:{place.directory / expanded(named)}"
    if folder == local_folder(place) and leads_away(folder / CONVERSATIONS, place):
        raise SettingsError(
            "a link leads out of this project; name the folder with --conversations-path.",
            path=str(folder / CONVERSATIONS),
        )
    return file_store(folder)


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


def _without_effect(values: dict[str, Any]) -> tuple[Notice, ...]:
    """A warning for each key that nobody reads where it stands."""
    return tuple(
        Notice(
            code="key_without_effect",
            path=key,
            message=f"`{key}` has no effect at the top level; write it under providers.litellm.",
        )
        for key in keys.LITELLM_KEYS
        if values.get(key) is not None
    )
