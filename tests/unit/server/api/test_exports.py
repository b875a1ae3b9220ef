"""Export and import: formats, headers, and files that are not conversations."""

import json

import pytest
from tests.server_app import open_server_app, openai_messages

LIST = "/v1/conversations"


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path) as server:
        yield server


@pytest.mark.parametrize(
    ("export_format", "media_type", "extension"),
    [
        ("json", "application/json", "json"),
        ("markdown", "text/markdown; charset=utf-8", "md"),
        ("html", "text/html; charset=utf-8", "html"),
    ],
)
async def test_an_export_is_an_attachment_of_its_format(
    server, export_format, media_type, extension
):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Hello.", "Hi.")
    path = f"{LIST}/{conversation}/export?format={export_format}"

    response = await server("GET", path)
    head = await server("HEAD", path)

    assert response.headers["content-type"] == media_type
    assert f'filename="{conversation}.{extension}"' in response.headers["content-disposition"]
    assert "Hello." in response.text
    assert (head.headers["content-length"], head.content) == (str(len(response.content)), b"")


async def test_an_export_of_a_dynamic_conversation_has_no_system_message(server):
    conversation = await server.create_conversation()
    messages = openai_messages(
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}
    )
    await server.save_turn(conversation, messages)

    exported = await server.get(f"{LIST}/{conversation}/export")

    assert [message["role"] for message in exported["messages"]] == ["user"]


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"id": "x"}',
        json.dumps({"messages": [{"role": "user", "content": 7}]}).encode(),
        json.dumps({"messages": [{"role": "user", "content": ["text"]}]}).encode(),
    ],
)
async def test_a_file_that_is_not_a_conversation_is_rejected(server, body):
    response = await server("POST", f"{LIST}/import", content=body)

    assert (response.status_code, response.json()["error"]["code"]) == (422, "validation_error")
    assert (await server.get(LIST))["total"] == 0


async def test_an_import_is_a_new_dynamic_conversation(server):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
    ]

    response = await server("POST", f"{LIST}/import", json={"id": "old", "messages": messages})

    imported = response.json()
    assert response.status_code == 201
    assert imported["id"] != "old"
    assert imported["system"]["policy"] == "dynamic"
    assert [message["content"] for message in imported["messages"]] == ["Hello.", "Hi."]
