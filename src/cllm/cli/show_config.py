"""`cllm --show-config`: prints the effective settings and the source of each, without secrets."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cllm.app import DEFAULT_MODEL
from cllm.cli import output
from cllm.cli.trust import trusted_layers
from cllm.core.secret import redact_secrets
from cllm.settings.layers import CommandLine, Environment, LayeredSettings, folders
from cllm.settings.load import Settings, type_settings
from cllm.settings.trust import looks_secret, masked, without_credentials
from cllm.stores.registry import redact_password

WIDTH = 100


def show_config(place: Environment, line: CommandLine) -> None:
    layered = trusted_layers(place, line)
    settings = type_settings(layered, place, line)
    secrets = settings.secrets()
    store = redact_password(settings.store)
    for heading, lines in (
        ("Files, lowest first", _files(layered, place, line)),
        ("Paths", (f"history folder: {settings.history_folder}", f"store: {store}")),
        ("Settings", _settings(layered)),
        ("Variables", _variables(settings)),
        ("System prompt", _prompt(settings)),
    ):
        output.print_line(f"{heading}:")
        for text in lines:
            output.print_visibly(f"  {redact_secrets(text, secrets)}")


def _files(layered: LayeredSettings, place: Environment, line: CommandLine) -> Iterator[str]:
    if layered.files:
        yield from (str(file.path) for file in layered.files)
        return
    looked = ", ".join(str(folder) for folder, _ in folders(place, line))
    yield f"none (looked in {looked})"


def _settings(layered: LayeredSettings) -> Iterator[str]:
    yield f"model: {layered.values.get('model') or DEFAULT_MODEL}{_from(layered, 'model')}"
    for key, value in sorted(layered.values.items()):
        if key not in ("model", "variables", "default_system_message"):
            yield from _setting(key, value, layered)


def _setting(name: str, value: Any, layered: LayeredSettings) -> Iterator[str]:
    """A line for a value; one per entry for a mapping whose entries have different sources."""
    if isinstance(value, dict) and name not in layered.sources and value:
        for key, inner in value.items():
            yield from _setting(f"{name}.{key}", inner, layered)
        return
    parts = name.split(".")
    shown = "***" if "extra_headers" in parts[:-1] else masked(parts[-1], value)
    yield f"{name}: {_brief(shown)}{_from(layered, name)}"


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    line = without_credentials(" ".join(text.split()))
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _from(layered: LayeredSettings, name: str) -> str:
    source = layered.source_of(name)
    return " (default)" if source is None else f" ({source})"


def _variables(settings: Settings) -> Iterator[str]:
    if not settings.variables.by_name:
        yield "none"
    for name, known in sorted(settings.variables.by_name.items()):
        if known.value is None:
            value = "required, not given"
        else:
            value = "***" if looks_secret(name) else without_credentials(repr(known.value))
        yield f"{name}: {value} ({known.source})"


def _prompt(settings: Settings) -> Iterator[str]:
    prompt = settings.system
    has_prompt = prompt.message is not None and prompt.text is not None
    yield f"{_brief(prompt.text)} ({prompt.source})" if has_prompt else "none"
