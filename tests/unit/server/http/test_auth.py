"""Authentication: which requests need an API key, and which keys are valid."""

import hashlib

import pytest
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, open_server_app

from cllm.core.errors import SettingsError
from cllm.server.http.auth import load_api_keys
from cllm.server.http.routes import ROUTES
from cllm.settings.sections import KeySettings

UNKNOWN = "11111111-2222-4333-8444-555555555555"
ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}
BOB = {"x-api-key": KEYS["bob"]}
PUBLIC = {"/health", "/ready", "/openapi.json", "/docs"}


def build_url(path: str, conversation: str = UNKNOWN, turn: str = UNKNOWN) -> str:
    return (
        path.replace("{conversation_id}", conversation)
        .replace("{conversation_id:openai}", f"conv_{conversation}".replace("-", ""))
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


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
async def test_every_route_except_the_public_ones_needs_a_key(keyed, row):
    response = await keyed(row.method, build_url(row.path), json=BODIES.get(row.path))

    assert (row.path in PUBLIC) == (row.access == "anyone")
    if row.path in PUBLIC:
        assert response.status_code == 200
    else:
        assert response.status_code == 401
        assert "missing_token" in response.text or "authentication_error" in response.text


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
async def test_an_invalid_key_is_rejected_with_401(keyed, headers):
    encoded = {name: value.encode() for name, value in headers.items()}
    response = await keyed("GET", "/v1/conversations", headers=encoded)

    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_token"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "headers",
    [
        ALICE,
        {"authorization": f"bearer {KEYS['alice']}"},
        {"x-api-key": KEYS["alice"]},
        {"Authorization": "Bearer of-somebody-else-entirely", "x-api-key": KEYS["alice"]},
    ],
)
async def test_a_key_is_accepted_in_either_header(keyed, headers):
    assert (await keyed("GET", "/v1/conversations", headers=headers)).status_code == 200


async def test_a_server_without_keys_accepts_any_key_or_none(tmp_path):
    async with open_server_app(tmp_path) as server:
        for headers in ({}, ALICE, {"x-api-key": "x"}):
            response = await server("GET", "/v1/conversations", headers=headers)
            assert response.status_code == 200


async def test_a_key_can_come_from_an_environment_variable(tmp_path):
    settings = "server: {keys: [{name: a, owner: alice, key: '${KEY_OF_ALICE}'}]}"
    async with open_server_app(tmp_path, settings) as server:
        assert (await server("GET", "/v1/conversations", headers=ALICE)).status_code == 200
        assert (await server("GET", "/v1/conversations", headers=BOB)).status_code == 401


async def test_an_unset_variable_is_an_error_and_does_not_open_the_server(tmp_path):
    settings = "server: {keys: [{name: a, owner: alice, key: '${KEY_OF_NOBODY}'}]}"
    with pytest.raises(SettingsError, match=r"KEY_OF_NOBODY.* is not set"):
        async with open_server_app(tmp_path, settings):
            pass


def test_a_key_can_be_configured_by_its_hash():
    digest = hashlib.sha256(KEYS["bob"].encode()).hexdigest()
    api_keys = load_api_keys([KeySettings(name="b", owner="bob", hash=digest.upper())])

    caller = api_keys.find(KEYS["bob"])
    assert caller is not None
    assert (caller.owner, caller.key) == ("bob", "b")
    assert api_keys.find(digest) is None


@pytest.mark.parametrize(
    "settings",
    [
        KeySettings(name="n", owner="o"),
        KeySettings(name="n", owner="o", key=""),
        KeySettings(name="n", owner="o", key="short"),
        KeySettings(name="n", owner="o", key="with a space 0123456789"),
        KeySettings(name="n", owner="o", hash="abc"),
        KeySettings(name="n", owner="o", hash="0" * 64, key=KEYS["bob"]),
        KeySettings(name="n", owner="", key=KEYS["bob"]),
    ],
)
def test_an_unusable_key_is_a_settings_error(settings):
    with pytest.raises(SettingsError, match=r"server\.keys: key 'n'"):
        load_api_keys([settings])


def test_a_key_of_two_owners_is_a_settings_error():
    digest = hashlib.sha256(KEYS["bob"].encode()).hexdigest()
    keys = [
        KeySettings(name="b", owner="bob", key=KEYS["bob"]),
        KeySettings(name="c", owner="carol", hash=digest),
    ]
    with pytest.raises(SettingsError, match="the keys 'b' and 'c' are equal"):
        load_api_keys(keys)
