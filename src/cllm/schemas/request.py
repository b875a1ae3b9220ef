"""A schema in the words of a request: OpenAI's `response_format`, which codecs translate."""

import re
from typing import Any

DEFAULT_NAME = "reply"
NAME_LENGTH = 64
NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
# What OpenAI's strict mode has words for; with any other keyword it refuses the request.
STRICT_KEYWORDS = frozenset(
    {
        "$defs",
        "$ref",
        "$schema",
        "additionalProperties",
        "anyOf",
        "const",
        "definitions",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    }
)
MAPPINGS = ("properties", "$defs", "definitions")


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The parameter that asks for a reply of this schema."""
    asked: dict[str, Any] = {"name": _name(schema), "schema": schema}
    if _is_type(schema, "object") and fits_strict_mode(schema):
        asked["strict"] = True
    return {"type": "json_schema", "json_schema": asked}


def fits_strict_mode(schema: Any) -> bool:
    """Whether the model can be held to the schema exactly, as OpenAI does it.

    Each object must require all its properties and allow no others.
    """
    if not isinstance(schema, dict) or not schema.keys() <= STRICT_KEYWORDS:
        return False
    if "properties" in schema or _is_type(schema, "object"):
        required = schema.get("required", [])
        if schema.get("additionalProperties") is not False or not isinstance(required, list):
            return False
        if sorted(map(str, required)) != sorted(_mapping(schema, "properties")):
            return False
    inner = [item for key in MAPPINGS for item in _mapping(schema, key).values()]
    if isinstance(schema.get("anyOf"), list):
        inner += schema["anyOf"]
    if "items" in schema:
        inner.append(schema["items"])
    return all(map(fits_strict_mode, inner))


def _mapping(schema: dict[str, Any], key: str) -> dict[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _is_type(schema: dict[str, Any], name: str) -> bool:
    kind = schema.get("type")
    return kind == name or (isinstance(kind, list) and name in kind)


def _name(schema: dict[str, Any]) -> str:
    title = schema.get("title")
    words = NOT_IN_A_NAME.sub("_", title).strip("_") if isinstance(title, str) else ""
    return words[:NAME_LENGTH] or DEFAULT_NAME
