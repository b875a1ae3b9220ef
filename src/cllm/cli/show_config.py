"""`cllm --show-config`: prints the effective settings and the source of each, without secrets."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from cllm.cli import output
from cllm.cli.trust import load_trusted_layers
from cllm.core.errors import MissingKeyError, ModelNotFoundError
from cllm.core.secret import redact_secrets
from cllm.default_model import choose_model
from cllm.provider_factory import SETTINGS_KEY, ProviderFactory
from cllm.providers.registry import LOCAL
from cllm.settings.layers import (
    CommandLine,
    Environment,
    LayeredSettings,
    settings_folders,
    user_folder,
)
from cllm.settings.load import Settings, build_settings, other_store
from cllm.settings.saved_keys import SavedKeys
from cllm.settings.trust import is_secret_name, mask_credentials, mask_secrets
from cllm.stores.registry import redact_password

WIDTH = 100


def show_config(env: Environment, line: CommandLine) -> None:
    layered = load_trusted_layers(env, line)
    settings = build_settings(layered, env, line)
    secrets = settings.secrets()
    model, described_model = _describe_model(layered, settings)
    for heading, lines in (
        ("Files, lowest priority first", _format_files(layered, env, line)),
        ("Paths", _format_paths(settings)),
        ("Settings", _format_settings(layered, described_model)),
        ("Variables", _format_variables(settings)),
        ("API keys", _format_keys(layered, settings, model)),
        ("System prompt", _format_prompt(settings)),
    ):
        output.print_line(f"{heading}:")
        for text in lines:
            output.print_visibly(f"  {redact_secrets(text, secrets)}")


def _format_files(layered: LayeredSettings, env: Environment, line: CommandLine) -> Iterator[str]:
    if layered.files:
        yield from (str(file.path) for file in layered.files)
        return
    searched = ", ".join(str(folder) for folder, _ in settings_folders(env, line))
    yield f"none (searched {searched})"


def _format_paths(settings: Settings) -> Iterator[str]:
    yield f"cllm folder: {settings.files_folder}"
    yield f"store: {redact_password(settings.store)}"
    other = other_store(settings)
    if other is not None:
        yield f"also listed: {redact_password(other)}, the database of the server"


def _describe_model(layered: LayeredSettings, settings: Settings) -> tuple[str, str]:
    """Return the model, and the model with its source or the reason of the choice."""
    if settings.model is not None:
        return settings.model, f"{settings.model}{_format_source(layered, 'model')}"
    choice = choose_model(settings)
    return choice.model, f"{choice.model} (default, because {choice.reason})"


def _format_settings(layered: LayeredSettings, model: str) -> Iterator[str]:
    yield f"model: {model}"
    for key, value in sorted(layered.values.items()):
        if key not in ("model", "variables", "default_system_message"):
            yield from _format_value(key, value, layered)


def _format_value(name: str, value: Any, layered: LayeredSettings) -> Iterator[str]:
    """Yield one line, or one per entry of a mapping whose entries have different sources."""
    if isinstance(value, dict) and name not in layered.sources and value:
        for key, inner in value.items():
            yield from _format_value(f"{name}.{key}", inner, layered)
        return
    parts = name.split(".")
    visible_value = "***" if "extra_headers" in parts[:-1] else mask_secrets(parts[-1], value)
    yield f"{name}: {_shorten(visible_value)}{_format_source(layered, name)}"


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    line = mask_credentials(" ".join(text.split()))
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _format_source(layered: LayeredSettings, name: str) -> str:
    source = layered.source_of(name)
    return " (default)" if source is None else f" ({source})"


def _format_variables(settings: Settings) -> Iterator[str]:
    if not settings.variables.by_name:
        yield "none"
    for name, variable in sorted(settings.variables.by_name.items()):
        if variable.value is None:
            value = "required, not set"
        else:
            value = "***" if is_secret_name(name) else mask_credentials(repr(variable.value))
        yield f"{name}: {value} ({variable.source})"


def _format_prompt(settings: Settings) -> Iterator[str]:
    prompt = settings.system
    has_prompt = prompt.message is not None and prompt.text is not None
    yield f"{_shorten(prompt.text)} ({prompt.source})" if has_prompt else "none"


def _format_keys(layered: LayeredSettings, settings: Settings, model: str) -> Iterator[str]:
    """Yield the source of the key of each provider that is configured, used or has a saved key."""
    factory = ProviderFactory(settings, model=lambda: model, report=None, single_turn=True)
    names = {*settings.providers}
    names.update(saved.provider for saved in SavedKeys(user_folder(settings.env)).list_keys())
    with suppress(ModelNotFoundError):
        names.add(factory.resolve(model).provider)
    names.discard(LOCAL)
    if not names:
        yield "none"
    for name in sorted(names):
        yield f"{name}: {_describe_key(layered, factory, name)}"


def _describe_key(layered: LayeredSettings, factory: ProviderFactory, name: str) -> str:
    try:
        source = factory.find_key_source(name)
    except MissingKeyError as error:
        return f"not set (`api_key` needs the variable {error.variable})"
    if source is None:
        return "not set"
    if source == SETTINGS_KEY:
        key = f"providers.{name}.{SETTINGS_KEY}"
        return f"set{_format_source(layered, key if layered.source_of(key) else SETTINGS_KEY)}"
    return f"set ({source})"
