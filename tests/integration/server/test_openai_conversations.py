"""OpenAI's Conversations API on each store, and the routes that it shares with seed 001's API."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from openai.types.conversations import (
    Conversation,
    ConversationDeletedResource,
    ConversationItem,
)
from pydantic import TypeAdapter
from tests.fake_provider import FakeProvider, ToolCall
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, ServerApp, open_server_app

from cllm.wire.responses.ids import read_conversation_id

LIST = "/v1/conversations"
SDK = {"x-stainless-lang": "python"}
ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)
MODEL = "openai/gpt-test"
CAT = {"role": "user", "content": "My cat is called Luna."}
REPLY = {"role": "assistant", "content": "Luna, I see."}
SECRET = "Speak like the pirate Blackbeard."


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
async def server(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> AsyncIterator[ServerApp]:
    row = {"api_key": "x", "num_retries": 0, "api_base": provider.url}
    settings = msgspec.json.encode({"num_retries": 0, "providers": {"openai": row}}).decode()
    async with open_server_app(tmp_path, settings, store=store_url) as running:
        yield running


async def create(server: ServerApp, *items: Any, **fields: Any) -> str:
    response = await server("POST", LIST, json={"items": items, **fields})
    assert response.status_code == 200, response.text
    Conversation.model_validate(response.json())
    found: str = response.json()["id"]
    return found


async def add(server: ServerApp, conversation: str, *items: Any) -> httpx.Response:
    return await server("POST", f"{LIST}/{conversation}/items", json={"items": items})


async def list_items(server: ServerApp, conversation: str, query: str = "order=asc") -> Any:
    page = await server.get(f"{LIST}/{conversation}/items?{query}")
    for item in page["data"]:
        ITEM.validate_python(item)
    return page


async def texts(server: ServerApp, conversation: str) -> list[str]:
    items = (await list_items(server, conversation))["data"]
    return [item["content"][0]["text"] for item in items]


async def test_a_conversation_is_created_changed_and_deleted(server: ServerApp) -> None:
    conversation = await create(server, metadata={"topic": "cats"})
    path = f"{LIST}/{conversation}"

    assert (await server.get(path))["metadata"] == {"topic": "cats"}
    changed = await server("POST", path, json={"metadata": {"topic": "dogs"}})
    assert changed.status_code == 200
    assert changed.json() == await server.get(path)
    assert changed.json()["metadata"] == {"topic": "dogs"}
    removed = await server("POST", path, json={"metadata": None})
    assert removed.json()["metadata"] == {}
    deleted = await server("DELETE", path)
    assert deleted.status_code == 200
    ConversationDeletedResource.model_validate(deleted.json())
    assert deleted.json() == {"id": conversation, "object": "conversation.deleted", "deleted": True}
    for method in ("GET", "DELETE"):
        missing = await server(method, path)
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "conversation_not_found"
    assert (await server.get(f"{LIST}?archive_filter=all"))["total"] == 0


async def test_the_format_is_chosen_by_the_body_the_header_and_the_id(server: ServerApp) -> None:
    plain = await server("POST", LIST, json={"metadata": {}})
    of_sdk = await server("POST", LIST, json={"metadata": {}}, headers=SDK)
    empty = await server("POST", LIST, headers=SDK)
    with_items = await server("POST", LIST, json={"items": None})

    assert plain.status_code == 201
    assert "message_count" in plain.json()
    assert [each.status_code for each in (of_sdk, empty, with_items)] == [200] * 3
    assert {each.json()["object"] for each in (of_sdk, empty, with_items)} == {"conversation"}
    openai_id = of_sdk.json()["id"]
    uuid = read_conversation_id(openai_id)
    assert uuid is not None
    assert (await server.get(f"{LIST}/{uuid}"))["id"] == uuid
    assert (await server.get(f"{LIST}/{uuid}"))["messages"] == []
    assert (await server.get(f"{LIST}/{uuid}/items"))["data"] == []
    # Routes that OpenAI does not have return seed 001's format for both IDs.
    changed = await server("PATCH", f"{LIST}/{openai_id}", json={"title": "Cats"})
    assert (changed.status_code, changed.json()["id"]) == (200, uuid)
    archived = await server("DELETE", f"{LIST}/{uuid}")
    assert archived.status_code == 204
    assert (await server.get(f"{LIST}/{uuid}"))["archived_at"] is not None


async def test_items_are_the_messages_of_the_conversation(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await create(server, CAT, REPLY)
    body: Any = {"model": MODEL, "input": "What is my cat called?", "conversation": conversation}
    response = (await server("POST", "/v1/responses", json=body)).json()
    body = {"model": MODEL, "messages": [{"role": "user", "content": "And my dog?"}]}
    headers = {"X-Conversation-ID": conversation}
    completed = await server("POST", "/v1/chat/completions", json=body, headers=headers)

    assert completed.status_code == 200
    assert await texts(server, conversation) == [
        CAT["content"],
        REPLY["content"],
        "What is my cat called?",
        "echo: What is my cat called?",
        "And my dog?",
        "echo: And my dog?",
    ]
    assert CAT["content"] in json.dumps(provider.requests[-1].json)
    items = (await list_items(server, conversation))["data"]
    assert items[3] == response["output"][0]
    assert items[0]["role"] == "user"
    assert items[1]["content"][0]["type"] == "output_text"
    for item in items:
        assert await server.get(f"{LIST}/{conversation}/items/{item['id']}") == item
    assert len({item["id"] for item in items}) == 6


async def test_added_items_are_returned_and_are_one_turn(server: ServerApp) -> None:
    conversation = await create(server)
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "A cat."}
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    shown = {"type": "message", "role": "user", "content": [image]}

    added = await add(server, conversation, CAT, call, output, REPLY, shown)

    assert added.status_code == 200
    page = added.json()
    assert page["data"] == (await list_items(server, conversation))["data"]
    assert [item["type"] for item in page["data"]] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
    assert page["has_more"] is False
    stored = await server.load(str(read_conversation_id(conversation)))
    assert [turn.state for turn in stored.turns] == ["complete"]
    assert stored.title == CAT["content"]


async def test_pages(server: ServerApp) -> None:
    conversation = await create(server, *({"role": "user", "content": str(n)} for n in range(5)))

    first = await list_items(server, conversation, "limit=2&include=reasoning.encrypted_content")
    second = await list_items(server, conversation, f"limit=2&after={first['last_id']}")
    third = await list_items(server, conversation, f"limit=2&after={second['last_id']}")
    pages = [first, second, third]

    found = [item["content"][0]["text"] for page in pages for item in page["data"]]
    assert found == ["4", "3", "2", "1", "0"]
    assert [page["has_more"] for page in pages] == [True, True, False]
    for query in ("limit=0", "limit=101", "order=up"):
        refused = await server("GET", f"{LIST}/{conversation}/items?{query}")
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "validation_error"
    missing = await server("GET", f"{LIST}/{conversation}/items?after=msg_1")
    assert missing.json()["error"]["code"] == "item_not_found"


async def test_items_are_deleted_from_the_end(server: ServerApp) -> None:
    conversation = await create(server, CAT, REPLY, {"role": "user", "content": "Thanks."})
    ids = [item["id"] for item in (await list_items(server, conversation))["data"]]

    refused = await server("DELETE", f"{LIST}/{conversation}/items/{ids[0]}")
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_request"
    assert "Only the last item" in refused.json()["error"]["message"]
    for item_id in reversed(ids):
        deleted = await server("DELETE", f"{LIST}/{conversation}/items/{item_id}")
        assert deleted.status_code == 200, deleted.text
        Conversation.model_validate(deleted.json())
        assert deleted.json()["id"] == conversation
        again = await server("GET", f"{LIST}/{conversation}/items/{item_id}")
        assert again.status_code == 404
        assert again.json()["error"]["code"] == "item_not_found"
    assert await texts(server, conversation) == []


async def test_no_item_is_deleted_while_a_turn_runs(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await create(server, CAT, REPLY)
    last = (await list_items(server, conversation))["data"][-1]["id"]
    gate = provider.queue_held_reply("Held.", at=0)
    body = {"model": "openai/gpt-test", "input": "More.", "conversation": conversation}
    running = asyncio.create_task(server("POST", "/v1/responses", json=body))
    await asyncio.to_thread(gate.wait_reached)

    refused = await server("DELETE", f"{LIST}/{conversation}/items/{last}")

    gate.open()
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "conversation_busy"
    assert (await running).status_code == 200
    assert (await texts(server, conversation))[-2:] == ["More.", "Held."]


async def test_an_item_of_a_turn_can_be_deleted_by_its_first_id(
    server: ServerApp, provider: FakeProvider
) -> None:
    """The reply that becomes the last one of its turn has another ID."""
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "One", "Two", "Three", "Four")
    ids = [item["id"] for item in (await list_items(server, conversation))["data"]]

    for item_id in reversed(ids):
        deleted = await server("DELETE", f"{LIST}/{conversation}/items/{item_id}")
        assert deleted.status_code == 200, deleted.text
    assert await texts(server, conversation) == []


async def test_a_reply_with_several_items_cannot_be_deleted_in_part(
    server: ServerApp, provider: FakeProvider
) -> None:
    calls = [ToolCall(id=f"call_{n}", name="look", arguments="{}") for n in (1, 2)]
    provider.queue_reply(tool_calls=calls)
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    conversation = await create(server)
    body = {"model": MODEL, "input": "Look.", "conversation": conversation, "tools": [tool]}
    await server("POST", "/v1/responses", json=body)
    items = (await list_items(server, conversation))["data"]

    assert [item["type"] for item in items] == ["message", "function_call", "function_call"]
    for item in items:
        refused = await server("DELETE", f"{LIST}/{conversation}/items/{item['id']}")
        assert refused.status_code == 400
    assert len((await list_items(server, conversation))["data"]) == 3


async def test_system_items_are_not_stored(server: ServerApp) -> None:
    system = [{"role": role, "content": SECRET} for role in ("system", "developer")]
    created = await server("POST", LIST, json={"items": [system[0], CAT, system[1]]})
    conversation = created.json()["id"]
    added = await add(server, conversation, system[0])

    notices = json.loads(created.headers["X-CLLM-Notice"])
    assert [notice["path"] for notice in notices] == ["items[0]", "items[2]"]
    assert {notice["code"] for notice in notices} == {"system_message_ignored"}
    assert added.status_code == 200
    assert added.json()["data"] == []
    assert "X-CLLM-Notice" in added.headers
    assert await texts(server, conversation) == [CAT["content"]]
    stored = await server.load(str(read_conversation_id(conversation)))
    assert SECRET not in repr(stored)
    assert len(stored.turns) == 1


async def test_failed_turns_have_no_items(server: ServerApp, provider: FakeProvider) -> None:
    conversation = await create(server, CAT, REPLY)
    provider.queue_error(500)
    body = {"model": MODEL, "input": "Fail.", "conversation": conversation}
    failed = await server("POST", "/v1/responses", json=body)

    assert failed.status_code >= 500
    assert await texts(server, conversation) == [CAT["content"], REPLY["content"]]
    last = (await list_items(server, conversation))["last_id"]
    deleted = await server("DELETE", f"{LIST}/{conversation}/items/{last}")
    assert deleted.status_code == 200
    assert await texts(server, conversation) == [CAT["content"]]


async def test_references_are_replaced_by_their_items(server: ServerApp) -> None:
    first = await create(server, CAT, REPLY)
    items = (await list_items(server, first))["data"]
    references = [{"type": "item_reference", "id": item["id"]} for item in items]

    second = await create(server, *references)

    assert await texts(server, second) == await texts(server, first)
    unknown = await add(server, second, {"type": "item_reference", "id": "msg_1"})
    assert unknown.status_code == 404
    assert unknown.json()["error"]["param"] == "items"


async def test_a_deleted_response_stays_deleted_after_new_metadata(server: ServerApp) -> None:
    conversation = await create(server)
    body = {"model": MODEL, "input": "Hello.", "conversation": conversation}
    response = (await server("POST", "/v1/responses", json=body)).json()
    await server("DELETE", f"/v1/responses/{response['id']}")

    changed = await server("POST", f"{LIST}/{conversation}", json={"metadata": {"a": "b"}})

    assert changed.json()["metadata"] == {"a": "b"}
    assert (await server("GET", f"/v1/responses/{response['id']}")).status_code == 404
    assert len(await texts(server, conversation)) == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": "Hello."}, "items"),
        ({"items": [1]}, "items[0]"),
        ({"items": [{"role": "cat", "content": "Meow."}]}, "items[0].role"),
        ({"items": [], "title": "x"}, "title"),
        ({"items": [], "metadata": {"a": 1}}, "metadata[...]"),
        ({"items": [], "metadata": {"a": "x" * 513}}, "metadata[...]"),
        ({"items": [], "metadata": {str(n): "x" for n in range(17)}}, "metadata"),
    ],
)
async def test_invalid_bodies(server: ServerApp, body: Any, param: str) -> None:
    refused = await server("POST", LIST, json=body)

    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["code"] == "validation_error"
    assert refused.json()["error"]["param"] == param
    assert (await server.get(LIST))["total"] == 0


async def test_a_body_that_is_not_json_is_an_error_of_the_other_format(server: ServerApp) -> None:
    assert (await server("POST", LIST, content=b"{")).status_code == 422
    assert (await server("POST", LIST, content=b"{", headers=SDK)).status_code == 400


async def test_a_conversation_of_another_owner_does_not_exist(tmp_path: Path) -> None:
    alice, bob = ({"Authorization": f"Bearer {KEYS[name]}"} for name in ("alice", "bob"))
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        created = await server("POST", LIST, json={"items": [CAT]}, headers=alice)
        path = f"{LIST}/{created.json()['id']}"
        listed = await server.get(f"{path}/items", headers=alice)
        item = f"{path}/items/{listed['first_id']}"
        for method, url in (
            ("GET", path),
            ("POST", path),
            ("GET", f"{path}/items"),
            ("POST", f"{path}/items"),
            ("GET", item),
            ("DELETE", item),
            ("DELETE", path),
        ):
            body: Any = {"metadata": {}} if url == path else {"items": [CAT]}
            options = {"json": body} if method == "POST" else {}
            refused = await server(method, url, headers=bob, **options)
            assert refused.status_code == 404, (method, url)
            assert refused.json()["error"]["code"] == "conversation_not_found"
        assert await server.get(f"{path}/items", headers=alice) == listed


async def test_an_id_of_neither_format(server: ServerApp) -> None:
    for path in ("files:cats/items", "cats/items"):
        missing = await server("GET", f"{LIST}/{path}")
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "conversation_not_found"
    # This ID is a name, as before.
    assert (await server("GET", f"{LIST}/conv_cats")).status_code == 400


@pytest.mark.parametrize(
    "items",
    [
        b'[{"role": "user", "content": "\\ud800"}]',
        b'[{"role": "user", "content": "\xff"}]',
        b'[{"role": "user", "content": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]",
        b'[{"role": "user", "content": }]',
        b'[{"type": "item_reference", "id": "\\ud800"}]',
    ],
    ids=["surrogate", "not UTF-8", "deep", "not JSON", "reference"],
)
async def test_hostile_items(server: ServerApp, items: bytes) -> None:
    conversation = await create(server)
    for url in (LIST, f"{LIST}/{conversation}/items"):
        refused = await server("POST", url, content=b'{"items": ' + items + b"}", headers=SDK)
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["code"] == "validation_error"
    assert (await server.get(LIST))["total"] == 1


async def test_every_text_is_saved_or_refused(server: ServerApp) -> None:
    conversation = await create(server)

    added = await add(server, conversation, {"role": "user", "content": "a\0b"})

    assert added.status_code in (200, 400), added.text
    expected = ["a\0b"] if added.status_code == 200 else []
    assert await texts(server, conversation) == expected
