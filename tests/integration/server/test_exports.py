"""Export and import of conversations on each store."""

import json
from typing import Any

import pytest
from tests.server_app import ServerApp, openai_messages

from cllm.core.conversation import SystemRecord
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, Opening

LIST = "/v1/conversations"


async def create_example(server: ServerApp) -> str:
    """A conversation with a variant, a call, a failed turn and hostile text."""
    conversation = await server.create_conversation()
    first = await server.add_turn(conversation, "Hello <script>alert(1)</script>", "Hi")
    await server.save_turn(
        conversation,
        (
            plain_message("user", "Hello <script>alert(1)</script>"),
            plain_message("assistant", "Ho"),
        ),
        place=first.place,
    )
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a":"```"}'}}
    raws = (
        {"role": "user", "content": "Run it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "````\ndone"},
        {"role": "assistant", "content": "Done."},
    )
    await server.save_turn(conversation, openai_messages(*raws))
    await server.add_turn(conversation, "And then?", state="failed", usage=None, cost=None)
    await server("PATCH", f"{LIST}/{conversation}", json={"metadata": {"tag": "x"}})
    return conversation


def comparable(detail: dict[str, Any]) -> dict[str, Any]:
    """Return the detail without the fields that an import changes."""
    return {
        key: value
        for key, value in detail.items()
        if key not in ("id", "created_at", "updated_at", "parent")
    }


async def test_an_exported_conversation_can_be_imported_completely(server):
    conversation = await create_example(server)
    before = await server.get(f"{LIST}/{conversation}?variants=true")
    exported = await server("GET", f"{LIST}/{conversation}/export")
    assert exported.headers["content-type"] == "application/json"
    assert f'filename="{conversation}.json"' in exported.headers["content-disposition"]

    imported = await server("POST", f"{LIST}/import", content=exported.content)

    assert imported.status_code == 201
    assert imported.json()["id"] != conversation
    after = await server.get(f"{LIST}/{imported.json()['id']}?variants=true")
    assert comparable(after) == comparable(before)


async def test_an_export_as_markdown(server):
    conversation = await create_example(server)

    response = await server("GET", f"{LIST}/{conversation}/export?format=markdown")

    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    text = response.text
    assert text.startswith("# Hello <script>")
    assert "## User 3\n\nRun it" in text
    assert "*tool call: run*\n\n````\n" in text
    assert "`````\n````\ndone\n`````" in text
    assert "## User 7 (failed)" in text


async def test_an_html_export_escapes_messages_and_runs_nothing(server):
    conversation = await create_example(server)

    response = await server("GET", f"{LIST}/{conversation}/export?format=html")

    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "<script" not in response.text
    assert "&lt;script&gt;alert(1)" in response.text
    assert "http://" not in response.text
    assert "https://" not in response.text


async def test_an_unknown_format_is_rejected(server):
    conversation = await server.create_conversation()

    assert (await server("GET", f"{LIST}/{conversation}/export?format=pdf")).status_code == 422


async def test_a_captured_conversation_keeps_its_system_prompt(server):
    new = NewConversation(id=server.state.new_id())
    record = SystemRecord(policy="captured", source="settings")
    opening = Opening(system=plain_message("system", "Be brief."), system_record=record)
    await server.state.store.create(new, opening=opening)
    await server.add_turn(new.id, "Hello", "Hi")

    for export_format in ("json", "markdown", "html"):
        exported = await server("GET", f"{LIST}/{new.id}/export?format={export_format}")
        assert "Be brief." in exported.text
    exported = await server("GET", f"{LIST}/{new.id}/export")
    imported = (await server("POST", f"{LIST}/import", content=exported.content)).json()

    assert imported["system"] == {"policy": "captured", "source": "settings", "prompt": "Be brief."}
    assert [message["role"] for message in imported["messages"]] == ["user", "assistant"]


async def test_imported_messages_become_a_dynamic_conversation_without_system_prompt(server):
    body = {
        "messages": [
            {"role": "system", "content": "a secret instruction"},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
        ]
    }

    imported = (await server("POST", f"{LIST}/import", json=body)).json()

    assert imported["system"]["policy"] == "dynamic"
    assert [message["content"] for message in imported["messages"]] == ["Hello", "Hi"]
    exported = await server("GET", f"{LIST}/{imported['id']}/export")
    assert "secret instruction" not in exported.text
    stored = await server.load(imported["id"])
    assert stored.system is None


async def test_turn_ids_that_are_not_valid_in_a_url_are_replaced(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Hello", "Hi")
    document = (await server("GET", f"{LIST}/{conversation}/export")).json()
    document["metadata"]["cllm"]["turns"][0]["id"] = "a/b\n"
    document["metadata"]["cllm"]["turns"][0].pop("place", None)

    imported = (await server("POST", f"{LIST}/import", json=document)).json()

    turn = imported["messages"][0]["turn_id"]
    assert "/" not in turn
    assert await server.get(f"{LIST}/{imported['id']}/turns/{turn}")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"nonsense",
        b'{"messages": 3}',
        b'{"messages": [{"role": "wizard", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": true}]}',
        b'{"messages": [{"role": "user", "content": [3]}]}',
        b'{"messages": [], "metadata": {"cllm": {"version": 99}}}',
        json.dumps({"messages": [], "model": 3}).encode(),
    ],
)
async def test_an_invalid_file_is_rejected_and_nothing_is_stored(server, body):
    response = await server("POST", f"{LIST}/import", content=body)

    assert response.status_code == 422
    assert response.json()["error"]["code"] == "validation_error"
    assert (await server.get(f"{LIST}?archive_filter=all"))["total"] == 0
