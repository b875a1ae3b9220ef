"""The description of the interface says what is there, and what is there keeps to it."""

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
from cllm.server.turns.prepare import MAX_MODEL_LENGTH

DESCRIBED = build_description()
LIST = "/v1/conversations"


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_route_is_described(row):
    operation = OPERATIONS[row.method, row.path]
    path = re.sub(r":\w+\}", "}", row.path)
    described = DESCRIBED["paths"][path][row.method.lower()]

    assert described["operationId"] == operation.name
    assert all(code in STATUS_BY_CODE for code in operation.codes)
    if row.method in ("POST", "PATCH"):
        assert "requestBody" in described


def test_every_reference_leads_somewhere():
    schemas = DESCRIBED["components"]["schemas"]

    for reference in references(DESCRIBED):
        assert reference.rpartition("/")[2] in schemas


def test_every_schema_is_one():
    for schema in DESCRIBED["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_names_of_operations_are_given_once():
    names = [operation.name for operation in OPERATIONS.values()]

    assert len(set(names)) == len(names)


def test_both_completion_routes_have_whole_schemas():
    schemas = DESCRIBED["components"]["schemas"]

    assert schemas["ChatRequest"]["required"] == ["model", "messages"]
    assert {"tools", "response_format", "stream"} <= schemas["ChatRequest"]["properties"].keys()
    assert {"system", "tools", "thinking"} <= schemas["MessagesRequest"]["properties"].keys()


def test_a_model_can_have_the_longest_name():
    schemas = DESCRIBED["components"]["schemas"]

    for name in ("ChatRequest", "MessagesRequest", "EmbeddingRequest"):
        assert schemas[name]["properties"]["model"]["maxLength"] == MAX_MODEL_LENGTH


def validator(path: str, method: str, status: int) -> jsonschema.Draft202012Validator:
    response = DESCRIBED["paths"][path][method]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": DESCRIBED["components"]})


async def test_answers_are_as_they_are_described(tmp_path):
    async with open_server_app(tmp_path) as server:
        made = (await server("POST", LIST, json={"title": "x"})).json()
        await server.add_turn(made["id"], "Hello", "Hi")
        one = f"{LIST}/{{conversation_id}}"
        turn = (await server.get(f"{LIST}/{made['id']}"))["messages"][0]["turn_id"]
        checked = [
            (LIST, "get", 200, await server.get(LIST)),
            (LIST, "post", 201, made),
            (one, "get", 200, await server.get(f"{LIST}/{made['id']}?variants=true")),
            (f"{LIST}/search", "get", 200, await server.get(f"{LIST}/search?q=hello")),
            (
                f"{one}/turns/{{turn_id}}",
                "get",
                200,
                await server.get(f"{LIST}/{made['id']}/turns/{turn}"),
            ),
            (
                f"{one}/turns/{{turn_id}}/prompt",
                "get",
                200,
                await server.get(f"{LIST}/{made['id']}/turns/{turn}/prompt"),
            ),
            (f"{one}/export", "get", 200, await server.get(f"{LIST}/{made['id']}/export")),
            ("/v1/usage", "get", 200, await server.get("/v1/usage?by=model")),
            ("/v1/models", "get", 200, await server.get("/v1/models")),
            ("/health", "get", 200, await server.get("/health")),
            ("/ready", "get", 200, await server.get("/ready")),
            (one, "get", 404, (await server("GET", f"{LIST}/{server.state.new_id()}")).json()),
            (LIST, "get", 422, (await server("GET", f"{LIST}?limit=0")).json()),
        ]

    for path, method, status, body in checked:
        validator(path, method, status).validate(body)


async def test_the_description_is_served(tmp_path):
    async with open_server_app(tmp_path) as server:
        assert (await server.get("/openapi.json"))["openapi"] == "3.1.0"


async def test_the_page_names_every_route_and_loads_nothing(tmp_path):
    async with open_server_app(tmp_path) as server:
        answer = await server("GET", "/docs")

    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in DESCRIBED["paths"]:
        assert path in answer.text
    assert not re.search(r"<(script|link|img|iframe)|https?://", answer.text)
    for target in re.findall(r'href="#([^"]+)"', answer.text):
        assert f'id="{target}"' in answer.text
