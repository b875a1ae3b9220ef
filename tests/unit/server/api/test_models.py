"""GET /v1/models and GET /v1/models/{model}."""

import sys

import pytest
from tests.server_app import open_server_app

SETTINGS = (
    "model: openai/gpt-test\n"
    "providers: {mine: {type: openai, api_base: 'http://127.0.0.1:1/v1', models: [small]}}\n"
)


async def test_configured_and_local_models_are_listed(tmp_path):
    async with open_server_app(tmp_path, SETTINGS) as server:
        models = await server.get("/v1/models")
        names = [one["id"] for one in models["data"]]
        model = await server.get("/v1/models/mine/small")

    assert models["object"] == "list"
    assert names[0] == "openai/gpt-test"
    assert {"mine/small", "local/smollm2-135m"} <= set(names)
    assert len(set(names)) == len(names)
    assert model == {"id": "mine/small", "object": "model", "created": 0, "owned_by": "mine"}


async def test_local_models_are_not_listed_without_the_extra_that_runs_them(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    settings = SETTINGS.replace("openai/gpt-test", "local/smollm2-135m")
    aliases = "aliases: {fast: local/smollm2-135m, small: mine/small}\n"
    async with open_server_app(tmp_path, settings + aliases) as server:
        models = await server.get("/v1/models")
        missing = await server("GET", "/v1/models/local/smollm2-135m")

    assert [one["id"] for one in models["data"]] == ["small", "mine/small"]
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_the_error_for_an_unknown_model_lists_the_known_ones(tmp_path):
    async with open_server_app(tmp_path, SETTINGS) as server:
        response = await server("GET", "/v1/models/nobody/x")

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "mine/small" in response.json()["error"]["message"]


async def test_aliases_are_listed_with_the_owner_of_their_model(tmp_path):
    aliases = "aliases: {fast: mine/small, file: local//home/somebody/x.gguf, short: gpt-x}\n"
    async with open_server_app(tmp_path, SETTINGS + aliases) as server:
        owners = {one["id"]: one["owned_by"] for one in (await server.get("/v1/models"))["data"]}
        model = await server.get("/v1/models/fast")

    assert (owners["fast"], owners["file"], owners["short"]) == ("mine", "local", "cllm")
    assert model == {"id": "fast", "object": "model", "created": 0, "owned_by": "mine"}


async def test_the_path_of_a_model_file_is_private(tmp_path):
    async with open_server_app(tmp_path, "model: local//home/somebody/model.gguf") as server:
        assert "somebody" not in (await server("GET", "/v1/models")).text


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("gpt-4o-mini", "openai"),
        ("openai/gpt-unlisted", "openai"),
        ("claude-haiku-4-5", "anthropic"),
        ("text-embedding-3-small", "openai"),
        ("small", "mine"),
        ("smollm2-135m", "local"),
    ],
)
async def test_every_model_that_a_turn_accepts_can_be_retrieved(tmp_path, name, owner):
    async with open_server_app(tmp_path, SETTINGS) as server:
        model = await server.get(f"/v1/models/{name}")

    assert model == {"id": name, "object": "model", "created": 0, "owned_by": owner}


@pytest.mark.parametrize(
    "name",
    ["nobody", "nobody/x", "local/nobody", "local//etc/passwd", "openai/", "%00", "x" * 3000],
)
async def test_a_model_that_no_turn_accepts_is_not_found(tmp_path, name):
    async with open_server_app(tmp_path, SETTINGS) as server:
        response = await server("GET", f"/v1/models/{name}")

    assert response.status_code == 404


async def test_a_client_of_anthropic_gets_its_format(tmp_path):
    version = {"anthropic-version": "2023-06-01"}
    async with open_server_app(tmp_path, SETTINGS, headers=version) as server:
        models = await server.get("/v1/models")
        model = await server.get("/v1/models/mine/small")
        error = (await server("GET", "/v1/models/nobody/x")).json()

    assert models["data"][0]["id"] == models["first_id"] == "openai/gpt-test"
    assert (models["last_id"], models["has_more"]) == (models["data"][-1]["id"], False)
    assert (model["type"], model["id"]) == ("model", "mine/small")
    assert (error["type"], error["error"]["type"]) == ("error", "not_found_error")


async def test_openai_routes_exist_without_v1(tmp_path):
    async with open_server_app(tmp_path, SETTINGS) as server:
        models = await server.get("/models")
        model = await server.get("/models/mine/small")
        empty = await server("POST", "/chat/completions", json={"model": "mine/small"})
        embedding = await server("POST", "/embeddings", json={"model": "mine/small"})

    assert models["object"] == "list"
    assert model["id"] == "mine/small"
    assert (empty.status_code, embedding.status_code) == (422, 422)
