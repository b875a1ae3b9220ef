"""The application: errors of an endpoint in the protocol of its route, and the shutdown."""

import pytest
from tests.server_app import open_server_app

from cllm.server.http.app import build_app
from cllm.server.http.errors import ApiError

MALFORMED = b"{"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"message", "type", "code", "param"}),
        ("/v1/messages", {"type", "message"}),
    ],
)
async def test_an_error_has_the_format_of_the_routes_protocol(tmp_path, path, fields):
    async with open_server_app(tmp_path) as server:
        response = await server("POST", path, content=MALFORMED)

    assert response.json()["error"].keys() == fields
    assert response.headers["content-type"] == "application/json"


async def test_a_trailing_slash_is_not_redirected(tmp_path):
    async with open_server_app(tmp_path) as server:
        assert (await server("GET", "/v1/models/")).status_code == 404


async def test_the_shutdown_rejects_new_turns(tmp_path):
    async with open_server_app(tmp_path) as server:
        app = build_app(server.state)
        async with app.router.lifespan_context(app):
            pass

        async def turn() -> None:
            """Never runs."""

        with pytest.raises(ApiError) as raised:
            server.state.turns.start(turn())
    assert raised.value.code == "shutting_down"
