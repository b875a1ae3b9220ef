"""The endpoints of the page: whole documents and parts."""

import pytest
from tests.server_app import KEYS

ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}
ADDRESSES = ["/", "/search", "/search?q=needle", "/usage"]


@pytest.mark.parametrize("path", ADDRESSES)
async def test_every_address_is_a_whole_document(server, path):
    response = await server("GET", path)

    assert response.status_code == 200
    assert response.text.startswith("<!doctype html>")
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("part", ["list", "rows", "main", "inspector"])
async def test_a_part_is_a_fragment(server, part):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "A needle", "Found")
    path = "/" if part in ("list", "rows") else f"/c/{conversation}"

    response = await server("GET", path, params={"part": part})

    assert response.status_code == 200
    assert "<html" not in response.text
    if part == "main":
        assert response.headers["x-page-title"] == "A%20needle"


@pytest.mark.parametrize("path", [*ADDRESSES, "/c/11111111-2222-4333-8444-555555555555"])
async def test_with_keys_every_address_requires_one(keyed, path):
    without = await keyed("GET", path)
    wrong = await keyed("GET", path, headers={"x-api-key": "wrong-key-0123456789"})

    assert without.status_code == wrong.status_code == 401
    assert '<form id="key"' in without.text
    assert (await keyed("GET", "/", headers=ALICE)).status_code == 200


async def test_a_key_in_the_url_is_not_accepted(keyed):
    response = await keyed("GET", "/", params={"key": KEYS["alice"]})

    assert response.status_code == 401


async def test_an_unknown_conversation_is_an_html_error(server):
    response = await server("GET", "/c/11111111-2222-4333-8444-555555555555")

    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")
    assert '<a href="/">' in response.text


@pytest.mark.parametrize("path", [*ADDRESSES, "/static/page.js"])
async def test_a_foreign_host_or_origin_is_refused(server, path):
    host = await server("GET", path, headers={"Host": "other.example"})
    origin = await server("GET", path, headers={"Origin": "https://other.example"})
    own = await server("GET", path, headers={"Origin": "http://127.0.0.1:3000"})

    assert (host.status_code, origin.status_code, own.status_code) == (403, 403, 200)
    assert host.json()["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize("path", ["/nothing", "/c", "/static/"])
async def test_an_unknown_address_is_html_for_browsers_and_json_for_clients(server, path):
    browser = await server("GET", path, headers={"Accept": "text/html,*/*;q=0.8"})
    client = await server("GET", path)
    api = await server("GET", f"/v1{path}", headers={"Accept": "text/html"})

    assert {browser.status_code, client.status_code, api.status_code} == {404}
    assert '<a href="/">' in browser.text
    assert client.json()["error"]["code"] == api.json()["error"]["code"] == "not_found"


async def test_a_foreign_host_is_an_html_error_for_browsers(server):
    response = await server("GET", "/", headers={"Host": "other.example", "Accept": "text/html"})

    assert response.status_code == 403
    assert "server.allowed_hosts" in response.text
