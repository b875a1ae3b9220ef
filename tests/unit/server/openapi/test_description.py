"""The OpenAPI description is complete, and responses match it."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from tests.server_app import open_server_app

from cllm.server.http.errors import STATUS_BY_CODE
from cllm.server.http.routes import ROUTES
from cllm.server.openapi.description import build_description
from cllm.server.openapi.operations import OPERATIONS
from cllm.server.turns.model_selection import MAX_MODEL_LENGTH

DESCRIPTION = build_description()
LIST = "/v1/conversations"


def find_references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from find_references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from find_references(inner)


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_route_is_described(row):
    operation = OPERATIONS[row.method, row.path]
    path = re.sub(r":\w+\}", "}", row.path)
    entry = DESCRIPTION["paths"][path][row.method.lower()]

    assert entry["operationId"] == operation.name
    assert all(code in STATUS_BY_CODE for code in operation.codes)
    if row.method in ("POST", "PATCH"):
        assert "requestBody" in entry


def test_every_reference_exists():
    schemas = DESCRIPTION["components"]["schemas"]

    for reference in find_references(DESCRIPTION):
        assert reference.rpartition("/")[2] in schemas


def test_every_schema_is_valid():
    for schema in DESCRIPTION["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_descriptions_are_one_line_each():
    for name, schema in DESCRIPTION["components"]["schemas"].items():
        assert "\n" not in schema.get("description", ""), name


def test_operation_ids_are_unique():
    names = [operation.name for operation in OPERATIONS.values()]

    assert len(set(names)) == len(names)


def test_both_completion_routes_have_complete_schemas():
    schemas = DESCRIPTION["components"]["schemas"]

    assert schemas["ChatRequest"]["required"] == ["model", "messages"]
    assert {"tools", "response_format", "stream"} <= schemas["ChatRequest"]["properties"].keys()
    assert {"system", "tools", "thinking"} <= schemas["MessagesRequest"]["properties"].keys()


def test_the_length_limit_of_model_names_is_described():
    schemas = DESCRIPTION["components"]["schemas"]

    for name in ("ChatRequest", "MessagesRequest", "EmbeddingRequest"):
        assert schemas[name]["properties"]["model"]["maxLength"] == MAX_MODEL_LENGTH


def build_validator(path: str, method: str, status: int) -> jsonschema.Draft202012Validator:
    response = DESCRIPTION["paths"][path][method]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": DESCRIPTION["components"]})


async def test_responses_match_their_schemas(tmp_path):
    async with open_server_app(tmp_path) as server:
        created = (await server("POST", LIST, json={"title": "x"})).json()
        await server.add_turn(created["id"], "Hello", "Hi")
        one = f"{LIST}/{{conversation_id}}"
        turn = (await server.get(f"{LIST}/{created['id']}"))["messages"][0]["turn_id"]
        checked = [
            (LIST, "get", 200, await server.get(LIST)),
            (LIST, "post", 201, created),
            (one, "get", 200, await server.get(f"{LIST}/{created['id']}?variants=true")),
            (f"{LIST}/search", "get", 200, await server.get(f"{LIST}/search?q=hello")),
            (
                f"{one}/turns/{{turn_id}}",
                "get",
                200,
                await server.get(f"{LIST}/{created['id']}/turns/{turn}"),
            ),
            (
                f"{one}/turns/{{turn_id}}/prompt",
                "get",
                200,
                await server.get(f"{LIST}/{created['id']}/turns/{turn}/prompt"),
            ),
            (f"{one}/export", "get", 200, await server.get(f"{LIST}/{created['id']}/export")),
            ("/v1/usage", "get", 200, await server.get("/v1/usage?by=model")),
            ("/v1/models", "get", 200, await server.get("/v1/models")),
            ("/health", "get", 200, await server.get("/health")),
            ("/ready", "get", 200, await server.get("/ready")),
            (one, "get", 404, (await server("GET", f"{LIST}/{server.state.new_id()}")).json()),
            (LIST, "get", 422, (await server("GET", f"{LIST}?limit=0")).json()),
        ]

    for path, method, status, body in checked:
        build_validator(path, method, status).validate(body)


async def test_the_description_is_served(tmp_path):
    async with open_server_app(tmp_path) as server:
        assert (await server.get("/openapi.json"))["openapi"] == "3.1.0"
