"""Describes the routes from `/openapi.json`."""

import json
from collections.abc import Iterator
from typing import Any

from tests.surface_generator.text import document, section

Schema = dict[str, Any]
SIMPLE = (
    "const",
    "contentMediaType",
    "default",
    "exclusiveMinimum",
    "format",
    "maximum",
    "maxItems",
    "maxLength",
    "minimum",
    "minItems",
    "minLength",
    "pattern",
)


def surface(openapi: dict[str, Any]) -> dict[str, str]:
    operations = [
        section(f"{method.upper()} {path}", _operation(operation))
        for path, methods in sorted(openapi["paths"].items())
        for method, operation in sorted(methods.items())
    ]
    schemas = [
        section(name, _schema(schema))
        for name, schema in sorted(openapi["components"].get("schemas", {}).items())
    ]
    security = openapi["components"].get("securitySchemes", {})
    about = "Routes, parameters, bodies and responses by /openapi.json; then the schemas."
    return {
        "routes.txt": document(
            about,
            section(
                "security schemes",
                [f"  {name}: {_json(security[name])}" for name in sorted(security)],
            ),
            *operations,
            *schemas,
        )
    }


def templates(openapi: dict[str, Any]) -> list[str]:
    """Return the path templates; paths without parameters first, as in routing."""
    return sorted(openapi["paths"], key=lambda path: (path.count("{"), path))


def _operation(operation: dict[str, Any]) -> Iterator[str]:
    yield f"  operation: {operation['operationId']}"
    yield f"  summary: {operation.get('summary', '')}"
    yield f"  tags: {', '.join(operation.get('tags', []))}"
    yield f"  key: {'wanted' if operation.get('security') else 'not wanted'}"
    for one in sorted(operation.get("parameters", []), key=lambda one: (one["in"], one["name"])):
        needed = ", required" if one.get("required") else ""
        yield f"  {one['in']} {one['name']}: {_type(one['schema'])}{needed}"
    body = operation.get("requestBody")
    if body is not None:
        needed = "" if body.get("required") else ", optional"
        for media, content in sorted(body["content"].items()):
            yield f"  body {media}: {_type(content['schema'])}{needed}"
    for status, response in sorted(operation["responses"].items()):
        media = [
            f"{m}: {_type(c['schema'])}" for m, c in sorted(response.get("content", {}).items())
        ]
        yield f"  {status}: {'; '.join(media) or 'no body'} ({response['description']})"
        for name in sorted(response.get("links", {})):
            yield f"    link {name}"


def _schema(schema: Schema) -> Iterator[str]:
    if "properties" not in schema:
        choices = schema.get("anyOf") or schema.get("oneOf") or [schema]
        yield from sorted(f"  {_type(one)}" for one in choices)
        return
    required = schema.get("required", [])
    for name, field in sorted(schema["properties"].items()):
        yield f"  {name}: {_type(field)}{', required' if name in required else ''}"
    if schema.get("additionalProperties") is False:
        yield "  (no other fields)"


def _type(schema: Any) -> str:
    """Format a schema on one line."""
    if schema in ({}, True):
        return "anything"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " | ".join(sorted(map(_type, choices)))
    facts = [f"{name} {_json(schema[name])}" for name in SIMPLE if name in schema]
    if "contentSchema" in schema:
        facts.append(f"of {_type(schema['contentSchema'])}")
    return ", ".join([_kind(schema), *facts])


def _kind(schema: Schema) -> str:
    match schema:
        case {"enum": values}:
            return " | ".join(map(_json, values))
        case {"items": items}:
            return f"[{_type(items)}]"
        case {"properties": fields}:
            return (
                f"{{{', '.join(f'{name}: {_type(one)}' for name, one in sorted(fields.items()))}}}"
            )
        case {"additionalProperties": dict(others)}:
            return f"{{*: {_type(others)}}}"
        case {"type": list(kinds)}:
            return " | ".join(sorted(kinds))
    return str(schema.get("type", "anything"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
