"""The middleware: allowed hosts, CORS and origins, and errors for paths without a route."""

import json

import pytest
from tests.server_app import open_server_app

from cllm.server.http.middleware import read_host_rules
from cllm.settings.sections import KeySettings, ServerSettings


class TestHosts:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1:3000", "localhost", "LOCALHOST:80", "[::1]:3000", "localhost."]
    )
    async def test_loopback_names_are_allowed(self, tmp_path, host):
        async with open_server_app(tmp_path) as server:
            assert (await server("GET", "/health", headers={"Host": host})).status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::2]"])
    async def test_another_name_is_rejected_on_every_path(self, tmp_path, host):
        async with open_server_app(tmp_path) as server:
            for path in ("/health", "/v1/conversations", "/nowhere"):
                response = await server("GET", path, headers={"Host": host})
                assert response.status_code == 403
                assert response.json()["error"]["code"] == "host_not_allowed"

    @pytest.mark.parametrize(
        "host",
        ["", "[", "a b", ":80", "localhost/", "localhost:x", "a,b", "evil.example\\@localhost"],
    )
    async def test_a_malformed_host_is_a_bad_request(self, tmp_path, host):
        async with open_server_app(tmp_path) as server:
            for path in ("/health", "/v1/conversations", "/nowhere"):
                response = await server("GET", path, headers={"Host": host})
                assert response.status_code == 400
                assert response.json()["error"]["code"] == "invalid_request"

    async def test_the_settings_can_allow_more_names(self, tmp_path):
        async with open_server_app(tmp_path, "server: {allowed_hosts: [cllm.example]}") as server:
            for host, status in (("cllm.example:443", 200), ("localhost", 200), ("other", 403)):
                response = await server("GET", "/health", headers={"Host": host})
                assert response.status_code == status

    async def test_with_keys_any_name_is_allowed_unless_some_are_listed(self):
        keys = (KeySettings(name="n", owner="o", key="k" * 20),)

        assert read_host_rules(ServerSettings(keys=keys)).names is None
        listed = read_host_rules(ServerSettings(keys=keys, allowed_hosts=("a.example",)))
        assert listed.names is not None
        assert "a.example" in listed.names

    async def test_an_error_on_an_anthropic_path_has_the_anthropic_format(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            response = await server("POST", "/v1/messages", headers={"Host": "evil.example"})

        assert response.json()["error"]["type"] == "permission_error"


class TestCors:
    @pytest.mark.parametrize(
        "origin",
        ["https://evil.example", "null", "http://127.0.0.1:9999", "file://", "http://[", "x"],
    )
    async def test_a_page_of_another_origin_is_rejected(self, tmp_path, origin):
        async with open_server_app(tmp_path) as server:
            for method, path in (("GET", "/health"), ("POST", "/v1/conversations")):
                response = await server(method, path, headers={"Origin": origin})
                assert response.status_code == 403
                assert response.json()["error"]["code"] == "origin_not_allowed"
                assert "access-control-allow-origin" not in response.headers
            assert (await server.get("/v1/conversations"))["total"] == 0

    async def test_a_page_of_the_server_is_allowed(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            headers = {"Origin": "http://127.0.0.1:3000"}
            assert (await server("GET", "/health", headers=headers)).status_code == 200

    async def test_a_listed_origin_can_call_and_read(self, tmp_path):
        page = "https://app.example"
        async with open_server_app(tmp_path, f"server: {{allowed_origins: ['{page}/']}}") as server:
            response = await server("GET", "/v1/conversations", headers={"Origin": page})
            preflight = await server(
                "OPTIONS",
                "/v1/chat/completions",
                headers={
                    "Origin": page,
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "x-conversation-id, content-type",
                },
            )

        assert response.headers["access-control-allow-origin"] == page
        assert "X-Conversation-ID" in response.headers["access-control-expose-headers"]
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == page
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "x-conversation-id" in preflight.headers["access-control-allow-headers"]
        assert len(preflight.headers.get_list("access-control-allow-origin")) == 1

    async def test_a_preflight_from_another_origin_is_rejected(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            response = await server(
                "OPTIONS",
                "/v1/conversations",
                headers={
                    "Origin": "https://evil.example",
                    "Access-Control-Request-Method": "DELETE",
                },
            )

        assert response.status_code == 403


class TestRoutingErrors:
    @pytest.mark.parametrize(
        ("method", "path", "status", "code"),
        [
            ("GET", "/nothing", 404, "not_found"),
            ("GET", "/v1/nothing", 404, "not_found"),
            ("GET", "/v1/conversations/", 404, "not_found"),
            ("PUT", "/v1/conversations", 405, "method_not_allowed"),
            ("DELETE", "/health", 405, "method_not_allowed"),
        ],
    )
    async def test_an_unknown_path_or_method_is_an_error_response(
        self, tmp_path, method, path, status, code
    ):
        async with open_server_app(tmp_path) as server:
            response = await server(method, path)

        assert (response.status_code, json.loads(response.content)["error"]["code"]) == (
            status,
            code,
        )
        assert response.headers["x-request-id"]

    @pytest.mark.parametrize(
        ("path", "methods"),
        [
            ("/v1/conversations", "GET, HEAD, POST"),
            ("/v1/conversations/import", "POST"),
            ("/v1/conversations/x", "DELETE, GET, HEAD, PATCH"),
            ("/v1/conversations/x/messages/1", "DELETE, GET, HEAD"),
        ],
    )
    async def test_the_allowed_methods_are_listed(self, tmp_path, path, methods):
        async with open_server_app(tmp_path) as server:
            assert (await server("PUT", path)).headers["allow"] == methods
