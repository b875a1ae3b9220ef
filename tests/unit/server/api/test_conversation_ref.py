"""The conversation ID in a path: UUIDs, conversation files and other existing IDs."""

import pytest
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, open_server_app

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.ports import NewConversation

LIST = "/v1/conversations"
UNKNOWN = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path) as server:
        yield server


async def test_a_uuid_matches_in_any_case(server):
    conversation = await server.create_conversation()

    assert (await server.get(f"{LIST}/{conversation.upper()}"))["id"] == conversation


async def test_an_existing_id_of_another_form_is_valid(server):
    await server.create_conversation("demo")

    assert (await server.get(f"{LIST}/demo"))["id"] == "demo"


@pytest.mark.parametrize(
    ("conversation", "status", "code"),
    [
        (UNKNOWN, 404, "conversation_not_found"),
        ("unknown", 400, "invalid_conversation_id"),
        ("files:unknown", 404, "conversation_not_found"),
        ("files:a.b", 400, "invalid_conversation_id"),
    ],
)
async def test_an_unknown_id_is_an_error(server, conversation, status, code):
    response = await server("GET", f"{LIST}/{conversation}")

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_the_error_for_an_unknown_name_says_that_names_are_valid(server):
    response = await server("GET", f"{LIST}/unknown")

    message = response.json()["error"]["message"]
    assert message.startswith("No conversation has this ID or name; send the UUID")
    assert "or the name of a conversation" in message


async def test_a_conversation_file_has_a_prefix(server):
    new = NewConversation(id="demo")
    await server.state.files.create(new, owner=LOCAL_OWNER)

    assert (await server.get(f"{LIST}/files:demo"))["id"] == "files:demo"
    listed = await server.get(f"{LIST}?store=files")
    assert [one["id"] for one in listed["conversations"]] == ["files:demo"]


async def test_a_file_that_cannot_be_read_is_a_notice_without_its_path(server, tmp_path):
    await server.state.files.create(NewConversation(id="bad"), owner=LOCAL_OWNER)
    (file,) = tmp_path.rglob("bad.json")
    file.write_text("{", encoding="utf-8")

    response = await server("GET", f"{LIST}?store=files")

    notice = response.headers["x-cllm-notice"]
    assert "'files:bad' is not listed" in notice
    assert str(file.parent) not in notice


async def test_a_server_with_keys_has_no_conversation_files(tmp_path):
    headers = {"x-api-key": KEYS["alice"]}
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS, headers=headers) as server:
        listed = await server("GET", f"{LIST}?store=files")
        one = await server("GET", f"{LIST}/files:demo")

    assert (listed.status_code, listed.json()["error"]["param"]) == (422, "store")
    assert one.status_code == 404
