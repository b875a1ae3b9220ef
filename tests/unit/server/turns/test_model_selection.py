"""The model of a request: by provider, route, alias or settings."""

import pytest
from tests.server_app import open_server_app

from cllm.core.errors import ModelNotFoundError
from cllm.server.http.errors import ApiError
from cllm.server.turns.model_selection import MAX_MODEL_LENGTH, select_model
from cllm.wire.errors import FieldError

SETTINGS = (
    "providers: {mine: {type: openai, api_base: 'http://127.0.0.1:1/v1', models: [small]}}\n"
    "server: {default_provider: openai, routes: {fast: mine/small, tiny: little}}\n"
    "aliases: {fast: openai/hidden-by-the-route, little: mine/small, small: openai/other}\n"
)


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path, SETTINGS) as server:
        yield server


class TestSelectModel:
    @pytest.mark.parametrize(
        ("name", "provider", "expected"),
        [
            ("openai/gpt-test", None, "openai/gpt-test"),
            ("gpt-test", "openai", "openai/gpt-test"),
            ("openai/gpt-test", "openai", "openai/gpt-test"),
            ("fast", None, "mine/small"),
            ("little", None, "mine/small"),
            ("little", "openai", "openai/little"),
            ("tiny", None, "mine/small"),
            ("small", None, "openai/other"),
            ("unknown", None, "unknown"),
        ],
    )
    async def test_a_name_is_resolved_by_provider_route_alias_or_settings(
        self, server, name, provider, expected
    ):
        assert select_model(name, provider, server.state) == expected

    @pytest.mark.parametrize(
        ("name", "provider", "message"),
        [
            ("gpt-test", "nobody", "not configured; use one of"),
            ("openai/gpt-test", "mine", "remove one"),
        ],
    )
    async def test_a_wrong_provider_header_is_rejected(self, server, name, provider, message):
        with pytest.raises(ApiError, match=message) as raised:
            select_model(name, provider, server.state)

        assert (raised.value.code, raised.value.param) == ("invalid_header", "X-Provider")

    @pytest.mark.parametrize("name", ["x" * (MAX_MODEL_LENGTH + 1), "a\nb"])
    async def test_a_long_or_unprintable_name_is_rejected(self, server, name):
        with pytest.raises(FieldError, match="printable characters"):
            select_model(name, None, server.state)

    @pytest.mark.parametrize(
        "name", ["local//models/x.gguf", "./x.gguf", "/models/x.gguf", "~/x.gguf", "x.gguf"]
    )
    async def test_a_model_file_must_be_in_the_settings(self, server, name):
        with pytest.raises(ModelNotFoundError, match="model file"):
            select_model(name, None, server.state)
