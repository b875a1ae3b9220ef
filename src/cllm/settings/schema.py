"""The schema that replies are to fit, as the layers name it. Reads no schema."""

from pathlib import Path, PurePosixPath
from typing import Any

from cllm.core.errors import SettingsError
from cllm.schemas.source import SchemaSource, is_address
from cllm.settings.cllmfile import variables_in
from cllm.settings.layers import COMMAND_LINE, SCHEMA_KEYS, Layer, Layered, Place, expanded

INLINE, FILE = SCHEMA_KEYS
FLAGS = {INLINE: "--json-schema", FILE: "--json-schema-file"}


def read_schema_source(layered: Layered, place: Place) -> SchemaSource | None:
    """Where the schema is, by the highest layer that says anything about it."""
    given = [key for key in SCHEMA_KEYS if layered.values.get(key) is not None]
    if not given:
        return None
    layer = next(layer for layer in reversed(layered.layers) if given[0] in layer.content)
    if len(given) > 1:
        raise SettingsError(
            "give `json_schema` or `json_schema_file`, not both.", path=layer.source
        )
    key, value = given[0], layered.values[given[0]]
    if key == INLINE:
        if not isinstance(value, dict | str):
            raise layered.wrong(key, "a JSON schema, as a mapping or as JSON text")
        return SchemaSource(name=_name(layer, key), inline=value)
    if not isinstance(value, str) or not value.strip():
        raise layered.wrong(key, "the path or the https address of a JSON schema")
    return SchemaSource(
        name=_name(layer, key),
        file=value if is_address(value) else str(expanded(value)),
        folder=_folder(layer, place),
        confined=not layer.own and not leads_out(value),
    )


def leads_out(file: Any) -> bool:
    """Whether a `json_schema_file` is more than a file in the Cllmfile's own folder or below it."""
    path = PurePosixPath(str(file))
    return (
        is_address(str(file))
        or path.is_absolute()
        or ".." in path.parts
        or str(file).startswith("~")
        or bool(variables_in(file))
    )


def _name(layer: Layer, key: str) -> str:
    if layer.source == COMMAND_LINE:
        return FLAGS[key]
    return f"{Path(layer.source).name}: {key}"


def _folder(layer: Layer, place: Place) -> Path:
    if layer.source == COMMAND_LINE:
        return place.directory
    return place.directory / Path(layer.source).parent
