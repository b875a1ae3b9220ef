"""The OpenAPI description, built from routes, operations and `schemas.json`."""

import re
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm import __version__
from cllm.server.http.errors import JSON, STATUS_BY_CODE
from cllm.server.http.routes import ROUTES, HttpRoute
from cllm.server.openapi.operations import EVENT_STREAM, OPERATIONS, OpenAIVariant, Operation

Schema = dict[str, Any]

PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
REF_TEMPLATE = "#/components/schemas/{name}"
TEXT: Schema = {"type": "string"}
PATTERNS = {
    "conversation_id": "^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|conv_[0-9a-f]{32}|"
    "files:[A-Za-z0-9_-]{1,128})$",
    "import_id": "^[A-Za-z0-9_-]{1,128}$",
    "turn_id": "^[A-Za-z0-9_-]{1,128}$",
}
# Links from a new conversation, for tools that explore the API.
LINKED_OPERATIONS = (
    "getConversation",
    "changeConversation",
    "deleteConversation",
    "exportConversation",
)


async def get_description(_request: Request) -> Response:
    """GET /openapi.json."""
    return Response(encode_description(), media_type=JSON)


@cache
def encode_description() -> bytes:
    return msgspec.json.encode(build_description())


@cache
def _load_schemas() -> dict[str, dict[str, Schema]]:
    data = files("cllm.server.openapi").joinpath("schemas.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[str, Schema]])


def build_description() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for row in ROUTES:
        path = PARAMETER.sub(r"{\1}", row.path)
        operation = OPERATIONS[row.method, row.path]
        paths.setdefault(path, {})[row.method.lower()] = _describe_operation(row, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cllm",
            "version": __version__,
            "description": "Stored conversations for OpenAI's and Anthropic's chat protocols.",
        },
        "paths": paths,
        "components": {
            "schemas": _component_schemas(),
            "securitySchemes": _load_schemas()["securitySchemes"],
        },
    }


@cache
def _type_schemas() -> dict[str, Schema]:
    types = [
        kind
        for operation in OPERATIONS.values()
        for kind in (operation.query, operation.body, operation.response)
        if isinstance(kind, type)
    ]
    schemas = msgspec.json.schema_components(types, ref_template=REF_TEMPLATE)[1]
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
    return schemas


def _component_schemas() -> dict[str, Schema]:
    queries = {kind.query.__name__ for kind in OPERATIONS.values() if kind.query is not None}
    types = {name: schema for name, schema in _type_schemas().items() if name not in queries}
    return {**_load_schemas()["schemas"], **types}


def _describe_operation(row: HttpRoute, operation: Operation) -> dict[str, Any]:
    description: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": list(_describe_parameters(row, operation)),
        "responses": _describe_responses(row, operation),
    }
    if operation.body is not None:
        description["requestBody"] = {
            "required": operation.body_required,
            "content": {
                operation.body_media: {"schema": _describe_body(operation.body, operation.openai)}
            },
        }
    description["security"] = [] if row.access == "anyone" else [{}, {"bearer": []}, {"apiKey": []}]
    return description


def _describe_body(kind: type[msgspec.Struct] | str, openai: OpenAIVariant | None) -> Schema:
    schema = _schema_for(kind)
    if openai is None or openai.body is None:
        return schema
    return {"anyOf": [schema, _ref(openai.body)]}


def _schema_for(kind: type[msgspec.Struct] | str) -> Schema:
    if not kind:
        return TEXT
    return _ref(kind if isinstance(kind, str) else kind.__name__)


def _ref(name: str) -> Schema:
    return {"$ref": REF_TEMPLATE.format(name=name)}


def _event_schema(kind: type[msgspec.Struct] | str) -> Schema:
    """Return the schema of an event. OpenAI's last one, `[DONE]`, is not JSON."""
    content = {**TEXT, "contentMediaType": JSON, "contentSchema": _schema_for(kind)}
    data = {"anyOf": [{**TEXT, "const": "[DONE]"}, content]} if kind else TEXT
    return {"type": "object", "properties": {"data": data, "event": TEXT, "id": TEXT}}


def _describe_parameters(row: HttpRoute, operation: Operation) -> Iterator[dict[str, Any]]:
    for name in PARAMETER.findall(row.path):
        pattern = {**PATTERNS, **operation.path}.get(name, "^.+$")
        schema = {**TEXT, "pattern": pattern}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if operation.query is not None:
        schema = _type_schemas()[operation.query.__name__]
        for name, field in schema["properties"].items():
            required = name in schema.get("required", ())
            field_schema = _remove_null(field)
            yield {"name": name, "in": "query", "required": required, "schema": field_schema}
    for name in operation.headers:
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "schema": _load_schemas()["headers"][name],
        }


def _remove_null(schema: Schema) -> Schema:
    """Remove null, which a query string cannot express."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else schema


def _describe_responses(row: HttpRoute, operation: Operation) -> dict[str, Any]:
    envelope = _ref("AnthropicError" if row.protocol == "anthropic" else "Error")
    content = {JSON: {"schema": envelope}}
    responses: dict[str, Any] = {str(operation.status): _describe_success(operation)}
    _add_openai_response(responses, operation.openai)
    for status, codes in sorted(_codes_by_status(row, operation).items()):
        responses[str(status)] = {"description": ", ".join(codes), "content": content}
    responses["default"] = {"description": "Another error.", "content": content}
    return responses


def _add_openai_response(responses: dict[str, Any], openai: OpenAIVariant | None) -> None:
    if openai is None:
        return
    schema = _ref(openai.response)
    own = responses.get(str(openai.status))
    if own is None:
        phrase = HTTPStatus(openai.status).phrase
        responses[str(openai.status)] = {
            "description": phrase,
            "content": {JSON: {"schema": schema}},
        }
    else:
        own["content"][JSON] = {"schema": {"anyOf": [own["content"][JSON]["schema"], schema]}}


def _codes_by_status(row: HttpRoute, operation: Operation) -> dict[int, list[str]]:
    codes = [] if row.access == "anyone" else ["missing_token", "invalid_token"]
    codes += ["admin_key_required"] if row.access == "admin" else []
    if "{conversation_id}" in row.path:
        codes += ("invalid_conversation_id", "conversation_not_found")
    codes += operation.codes
    if operation.query is not None or isinstance(operation.body, type):
        codes.append("validation_error")
    codes_by_status: dict[int, list[str]] = {}
    for code in codes:
        status = STATUS_BY_CODE[code]
        reports_400 = row.protocol in ("anthropic", "responses")
        if reports_400 and status == STATUS_BY_CODE["validation_error"]:
            status = 400
        codes_by_status.setdefault(status, []).append(code)
    return codes_by_status


def _describe_success(operation: Operation) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if operation.response is not None:
        media_types = {operation.media_type: operation.response, **operation.other_media}
        response["content"] = {
            media: {"schema": _event_schema(kind) if media == EVENT_STREAM else _schema_for(kind)}
            for media, kind in media_types.items()
        }
    if operation.name == "createConversation":
        parameters = {"conversation_id": "$response.body#/id"}
        response["links"] = {
            name: {"operationId": name, "parameters": parameters} for name in LINKED_OPERATIONS
        }
    return response
