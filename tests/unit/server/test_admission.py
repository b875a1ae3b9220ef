"""Who may call what: keys, owners, names and origins, on every route there is."""

import hashlib
import itertools
import json

import pytest
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, open_server_app

from cllm.core.errors import SettingsError
from cllm.server.http.auth import load_api_keys
from cllm.server.http.middleware import read_host_rules
from cllm.server.http.routes import ROUTES
from cllm.settings.sections import KeySettings, ServerSettings

UNKNOWN = "11111111-2222-4333-8444-555555555555"
ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}
BOB = {"x-api-key": KEYS["bob"]}
OPEN = {"/health", "/ready", "/openapi.json", "/docs"}


def address(path: str, conversation: str = UNKNOWN, turn: str = UNKNOWN) -> str:
    return (
        path.replace("{conversation_id}", conversation)
        .replace("{message}", "1")
        .replace("{turn_id}", turn)
        .replace("{model:path}", "openai/gpt-test")
    )


BODIES = {
    "/v1/chat/completions": {"model": "openai/gpt-test", "messages": []},
    "/v1/conversations/{conversation_id}/branch": {"branch_at_sequence": 1},
    "/v1/conversations/{conversation_id}": {"title": "x"},
}


@pytest.fixture
async def keyed(tmp_path):
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        yield server


class TestKeys:
    @pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
    async def test_every_route_wants_a_key_unless_it_is_open_to_anyone(self, keyed, row):
        answer = await keyed(row.method, address(row.path), json=BODIES.get(row.path))

        assert (row.path in OPEN) == (row.access == "anyone")
        if row.path in OPEN:
            assert answer.status_code == 200
        else:
            assert answer.status_code == 401
            assert "missing_token" in answer.text or "authentication_error" in answer.text

    @pytest.mark.parametrize(
        "headers",
        [
            {"Authorization": "Bearer wrong-key-0123456789"},
            {"Authorization": "Bearer "},
            {"Authorization": "Bearer short"},
            {"Authorization": f"Basic {KEYS['alice']}"},
            {"Authorization": f"Bearer {KEYS['alice']}x"},
            {"Authorization": f"Bearer {KEYS['alice'].upper()}"},
            {"x-api-key": "é" * 20},
            {"x-api-key": "x" * 100_000},
        ],
    )
    async def test_a_wrong_key_is_refused(self, keyed, headers):
        encoded = {name: value.encode() for name, value in headers.items()}
        answer = await keyed("GET", "/v1/conversations", headers=encoded)

        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_token"
        assert answer.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize(
        "headers",
        [
            ALICE,
            {"authorization": f"bearer {KEYS['alice']}"},
            {"x-api-key": KEYS["alice"]},
            {"Authorization": "Bearer of-somebody-else-entirely", "x-api-key": KEYS["alice"]},
        ],
    )
    async def test_a_key_is_taken_in_both_headers(self, keyed, headers):
        assert (await keyed("GET", "/v1/conversations", headers=headers)).status_code == 200

    async def test_without_keys_any_key_or_none_will_do(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            for headers in ({}, ALICE, {"x-api-key": "x"}):
                answer = await server("GET", "/v1/conversations", headers=headers)
                assert answer.status_code == 200

    async def test_a_key_can_come_from_a_variable(self, tmp_path):
        settings = "server: {keys: [{name: a, owner: alice, key: '${KEY_OF_ALICE}'}]}"
        async with open_server_app(tmp_path, settings) as server:
            assert (await server("GET", "/v1/conversations", headers=ALICE)).status_code == 200
            assert (await server("GET", "/v1/conversations", headers=BOB)).status_code == 401

    async def test_a_variable_that_is_not_set_is_an_error_and_not_an_open_door(self, tmp_path):
        settings = "server: {keys: [{name: a, owner: alice, key: '${KEY_OF_NOBODY}'}]}"
        with pytest.raises(SettingsError, match=r"KEY_OF_NOBODY.* is not set"):
            async with open_server_app(tmp_path, settings):
                pass

    def test_a_hash_stands_for_its_key(self):
        digest = hashlib.sha256(KEYS["bob"].encode()).hexdigest()
        keyring = load_api_keys([KeySettings(name="b", owner="bob", hash=digest.upper())])

        caller = keyring.find(KEYS["bob"])
        assert caller is not None
        assert (caller.owner, caller.key) == ("bob", "b")
        assert keyring.find(digest) is None

    @pytest.mark.parametrize(
        "settings",
        [
            KeySettings(name="n", owner="o"),
            KeySettings(name="n", owner="o", key=""),
            KeySettings(name="n", owner="o", key="short"),
            KeySettings(name="n", owner="o", key="with a space 0123456789"),
            KeySettings(name="n", owner="o", hash="abc"),
        ],
    )
    def test_a_key_that_nobody_could_use_is_an_error_of_the_settings(self, settings):
        with pytest.raises(SettingsError, match=r"server\.keys: key 'n'"):
            load_api_keys([settings])


class TestHosts:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1:3000", "localhost", "LOCALHOST:80", "[::1]:3000", "localhost."]
    )
    async def test_a_server_without_keys_goes_by_the_names_of_loopback(self, tmp_path, host):
        async with open_server_app(tmp_path) as server:
            assert (await server("GET", "/health", headers={"Host": host})).status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::2]"])
    async def test_another_name_is_refused_before_anything_else(self, tmp_path, host):
        async with open_server_app(tmp_path) as server:
            for path in ("/health", "/v1/conversations", "/nowhere"):
                answer = await server("GET", path, headers={"Host": host})
                assert answer.status_code == 403
                assert answer.json()["error"]["code"] == "host_not_allowed"

    @pytest.mark.parametrize("host", ["", "[", "a b", ":80", "localhost/", "localhost:x", "a,b"])
    async def test_a_host_that_is_no_name_is_a_bad_request(self, tmp_path, host):
        async with open_server_app(tmp_path) as server:
            for path in ("/health", "/v1/conversations", "/nowhere"):
                answer = await server("GET", path, headers={"Host": host})
                assert answer.status_code == 400
                assert answer.json()["error"]["code"] == "invalid_request"

    async def test_the_settings_can_name_more(self, tmp_path):
        async with open_server_app(tmp_path, "server: {allowed_hosts: [cllm.example]}") as server:
            for host, status in (("cllm.example:443", 200), ("localhost", 200), ("other", 403)):
                answer = await server("GET", "/health", headers={"Host": host})
                assert answer.status_code == status

    async def test_with_keys_any_name_will_do_unless_some_are_listed(self):
        keys = (KeySettings(name="n", owner="o", key="k" * 20),)

        assert read_host_rules(ServerSettings(keys=keys)).names is None
        listed = read_host_rules(ServerSettings(keys=keys, allowed_hosts=("a.example",)))
        assert listed.names is not None
        assert "a.example" in listed.names

    async def test_a_refusal_on_anthropics_door_is_in_its_words(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            answer = await server("POST", "/v1/messages", headers={"Host": "evil.example"})

        assert answer.json()["error"]["type"] == "permission_error"


class TestOrigins:
    @pytest.mark.parametrize(
        "origin",
        ["https://evil.example", "null", "http://127.0.0.1:9999", "file://", "http://[", "x"],
    )
    async def test_a_foreign_page_is_refused(self, tmp_path, origin):
        async with open_server_app(tmp_path) as server:
            for method, path in (("GET", "/health"), ("POST", "/v1/conversations")):
                answer = await server(method, path, headers={"Origin": origin})
                assert answer.status_code == 403
                assert answer.json()["error"]["code"] == "origin_not_allowed"
                assert "access-control-allow-origin" not in answer.headers
            assert (await server.get("/v1/conversations"))["total"] == 0

    async def test_the_servers_own_page_may_call(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            headers = {"Origin": "http://127.0.0.1:3000"}
            assert (await server("GET", "/health", headers=headers)).status_code == 200

    async def test_a_listed_page_may_call_and_read(self, tmp_path):
        page = "https://app.example"
        async with open_server_app(tmp_path, f"server: {{allowed_origins: ['{page}/']}}") as server:
            answer = await server("GET", "/v1/conversations", headers={"Origin": page})
            preflight = await server(
                "OPTIONS",
                "/v1/chat/completions",
                headers={
                    "Origin": page,
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "x-conversation-id, content-type",
                },
            )

        assert answer.headers["access-control-allow-origin"] == page
        assert "X-Conversation-ID" in answer.headers["access-control-expose-headers"]
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == page
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "x-conversation-id" in preflight.headers["access-control-allow-headers"]
        assert len(preflight.headers.get_list("access-control-allow-origin")) == 1

    async def test_a_preflight_from_a_foreign_page_is_refused(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            answer = await server(
                "OPTIONS",
                "/v1/conversations",
                headers={
                    "Origin": "https://evil.example",
                    "Access-Control-Request-Method": "DELETE",
                },
            )

        assert answer.status_code == 403


class TestUnrouted:
    @pytest.mark.parametrize(
        ("method", "path", "status", "code"),
        [
            ("GET", "/", 404, "not_found"),
            ("GET", "/v1/nothing", 404, "not_found"),
            ("GET", "/v1/conversations/", 404, "not_found"),
            ("PUT", "/v1/conversations", 405, "method_not_allowed"),
            ("DELETE", "/health", 405, "method_not_allowed"),
        ],
    )
    async def test_what_is_not_there_is_told_in_the_envelope(
        self, tmp_path, method, path, status, code
    ):
        async with open_server_app(tmp_path) as server:
            answer = await server(method, path)

        assert (answer.status_code, json.loads(answer.content)["error"]["code"]) == (status, code)
        assert answer.headers["x-request-id"]

    @pytest.mark.parametrize(
        ("path", "methods"),
        [
            ("/v1/conversations", "GET, HEAD, POST"),
            ("/v1/conversations/import", "POST"),
            ("/v1/conversations/x", "DELETE, GET, HEAD, PATCH"),
            ("/v1/conversations/x/messages/1", "DELETE, GET, HEAD"),
        ],
    )
    async def test_how_an_address_may_be_called_is_said(self, tmp_path, path, methods):
        async with open_server_app(tmp_path) as server:
            assert (await server("PUT", path)).headers["allow"] == methods


def test_no_two_rows_are_the_same_call():
    calls = [(row.method, row.path) for row in ROUTES]

    assert all(one != other for one, other in itertools.combinations(calls, 2))
