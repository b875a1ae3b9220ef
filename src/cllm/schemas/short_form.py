"""The short form of a JSON schema: `name, age int, tags str[]: keywords`."""

import re
from typing import Any

from cllm.core.errors import UsageError

TYPES = {
    "str": "string",
    "string": "string",
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
}
FIELD = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(\s+(?P<type>[A-Za-z]+)(?P<many>\[\])?)?"
    r"\s*(:\s*(?P<description>.*))?",
    re.DOTALL,
)
ADVICE = "write names with optional types and descriptions, such as 'name, age int, tags str[]'"


def parse_short_schema(text: str) -> dict[str, Any]:
    """Return the JSON schema of an object in which every field is required.

    Fields are separated by commas, or by line breaks if the text has any; then a description can
    contain commas.
    """
    separator = "\n" if "\n" in text.strip() else ","
    fields = [field.strip().rstrip(",") for field in text.split(separator)]
    properties: dict[str, Any] = {}
    for field in filter(None, fields):
        match = FIELD.fullmatch(field)
        if match is None:
            raise UsageError(f"--schema: '{field}' is not a field; {ADVICE}.")
        if match["name"] in properties:
            raise UsageError(f"--schema: the field '{match['name']}' occurs twice.")
        properties[match["name"]] = _build_property(match)
    if not properties:
        raise UsageError(f"--schema is empty; {ADVICE}.")
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _build_property(match: re.Match[str]) -> dict[str, Any]:
    kind = TYPES.get((match["type"] or "str").lower())
    if kind is None:
        names = ", ".join(dict.fromkeys(name for name in TYPES if len(name) <= len("float")))
        raise UsageError(f"--schema: '{match['type']}' is not a type; use {names}.")
    row: dict[str, Any] = {"type": kind}
    if match["many"]:
        row = {"type": "array", "items": row}
    if match["description"]:
        row["description"] = match["description"].strip()
    return row
