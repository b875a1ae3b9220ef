"""POST /v1/embeddings: validation, and providers without embeddings."""

import pytest
from tests.server_app import open_server_app

EMBEDDINGS = "/v1/embeddings"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'{"model": 7, "input": "x"}', None),
        (b'{"input": "x"}', "model"),
        (b'{"model": " ", "input": "x"}', "model"),
        (b'{"model": "openai/embed"}', "input"),
    ],
)
async def test_an_invalid_body_names_the_field(tmp_path, body, param):
    async with open_server_app(tmp_path) as server:
        response = await server("POST", EMBEDDINGS, content=body)

    assert (response.status_code, response.json()["error"]["param"]) == (422, param)


async def test_a_provider_without_embeddings_is_not_supported(tmp_path):
    settings = "providers: {anthropic: {api_key: x}}"
    body = {"model": "anthropic/claude-sonnet-4-5", "input": "x"}
    async with open_server_app(tmp_path, settings) as server:
        response = await server("POST", EMBEDDINGS, json=body)

    assert response.status_code == 501
    assert "OpenAI-compatible provider" in response.json()["error"]["message"]
