"""GET /v1/models and GET /v1/models/{model}."""

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


async def test_the_error_for_an_unknown_model_lists_the_known_ones(tmp_path):
    async with open_server_app(tmp_path, SETTINGS) as server:
        response = await server("GET", "/v1/models/nobody/x")

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "mine/small" in response.json()["error"]["message"]


async def test_the_path_of_a_model_file_is_private(tmp_path):
    async with open_server_app(tmp_path, "model: local//home/somebody/model.gguf") as server:
        assert "somebody" not in (await server("GET", "/v1/models")).text
