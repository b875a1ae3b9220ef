"""`cllm --show-config`: the settings that hold here, and where each comes from. No secrets."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cllm.app import DEFAULT_MODEL
from cllm.cli import printing
from cllm.cli.trust import trusted_layers
from cllm.core.secret import without_secrets
from cllm.settings.layers import CommandLine, Layered, Place, folders
from cllm.settings.load import Settings, type_settings
from cllm.settings.trust import looks_secret, masked, without_credentials
from cllm.stores.registry import without_password

WIDTH = 100


def show_config(place: Place, line: CommandLine) -> None:
    """Print files, paths, settings, variables and the system prompt, each with its source."""
    layered = trusted_layers(place, line)
    settings = type_settings(layered, place, line)
    secrets = settings.secrets()
    for heading, lines in (
        ("Files, lowest first", _files(layered, place, line)),
        ("Paths", _paths(settings)),
        ("Settings", _settings(layered)),
        ("Variables", _variables(settings)),
        ("System prompt", _prompt(settings)),
    ):
        printing.print_line(f"{heading}:")
        for text in lines:
            printing.print_visibly(f"  {without_secrets(text, secrets)}")


def _files(layered: Layered, place: Place, line: CommandLine) -> Iterator[str]:
    if layered.files:
        yield from (str(file.path) for file in layered.files)
        return
    looked = ", ".join(str(folder) for folder, _ in folders(place, line))
    yield f"none (looked in {looked})"


def _paths(settings: Settings) -> Iterator[str]:
    yield f"history folder: {settings.history_folder}"
    yield f"store: {without_password(settings.store)}"


def _settings(layered: Layered) -> Iterator[str]:
    yield f"model: {layered.values.get('model') or DEFAULT_MODEL}{_from(layered, 'model')}"
    for key, value in sorted(layered.values.items()):
        if key not in ("model", "variables", "default_system_message"):
            yield from _setting(key, value, layered)


def _setting(name: str, value: Any, layered: Layered) -> Iterator[str]:
    """A value on a line; a mapping whose entries have different sources, entry by entry."""
    if isinstance(value, dict) and name not in layered.sources and value:
        for key, inner in value.items():
            yield from _setting(f"{name}.{key}", inner, layered)
        return
    parts = name.split(".")
    told = "***" if "extra_headers" in parts[:-1] else masked(parts[-1], value)
    yield f"{name}: {_brief(told)}{_from(layered, name)}"


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    line = without_credentials(" ".join(text.split()))
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _from(layered: Layered, name: str) -> str:
    source = layered.source_of(name)
    return " (default)" if source is None else f" ({source})"


def _variables(settings: Settings) -> Iterator[str]:
    if not settings.variables.by_name:
        yield "none"
    for name, known in sorted(settings.variables.by_name.items()):
        value = "required, not given"
        if known.value is not None:
            value = without_credentials(repr(known.value))
        told = "***" if looks_secret(name) and known.value is not None else value
        yield f"{name}: {told} ({known.source})"


def _prompt(settings: Settings) -> Iterator[str]:
    text = settings.system.text
    if settings.system.message is None or text is None:
        yield "none"
    else:
        yield f"{_brief(text)} ({settings.system.source})"
