"""References to stored items of a provider with the Responses API."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.fake_provider import FakeProvider, ToolCall
from tests.fake_responses import PATH
from tests.server_app import ServerApp, open_server_app

OPENAI = "lab/gpt-5-codex"
CHAT = "chat/gpt-test"
OTHER = "anthropic/claude-sonnet-4-5"
CALL = ToolCall(id="call_1", name="look", arguments='{"at": "the sky"}')
USER = {"role": "user", "content": "Look."}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}
KEYS = [
    {"name": owner, "key": f"sk-{owner}-0123456789", "owner": owner} for owner in ("ann", "bob")
]


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


def settings_of(provider: FakeProvider, **server: Any) -> str:
    row = {"api_key": "x", "num_retries": 0}
    lab = {**row, "type": "openai", "api": "responses", "api_base": provider.url}
    settings = {
        "providers": {
            "lab": lab,
            "chat": {**lab, "api": "chat"},
            "anthropic": {**row, "api_base": provider.root},
        },
        "server": {"keys": KEYS, **server},
    }
    return msgspec.json.encode(settings).decode()


@pytest.fixture
async def server(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> AsyncIterator[ServerApp]:
    async with open_server_app(tmp_path, settings_of(provider), store=store_url) as running:
        yield running


async def create(
    server: ServerApp,
    items: list[Any],
    *,
    owner: str = "ann",
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> Any:
    body = {"model": OPENAI, "input": items, **fields}
    headers = {"Authorization": f"Bearer sk-{owner}-0123456789", **(headers or {})}
    response = await server("POST", PATH, json=body, headers=headers)
    if fields.get("stream"):
        last = response.text.rpartition("data: ")[2]
        return json.loads(last)["response"]
    return response.json()


def refer(response: Any) -> list[dict[str, str]]:
    return [{"type": "item_reference", "id": item["id"]} for item in response["output"]]


def read_ids(items: list[Any]) -> list[str]:
    return [item["id"] for item in items if "id" in item]


@pytest.mark.parametrize("streams", [False, True])
async def test_items_of_openai_are_found_by_the_ids_that_the_client_received(
    server: ServerApp, provider: FakeProvider, streams: bool
) -> None:
    provider.queue_reply("I look.", tool_calls=(CALL,), reasoning=("Hm.",))
    first = await create(server, [USER], stream=streams)
    assert [item["type"] for item in first["output"]] == ["reasoning", "message", "function_call"]

    second = await create(server, [USER, *refer(first), OUTPUT])
    whole = await create(server, [USER, *first["output"], OUTPUT])

    by_reference, by_value = (request.json["input"] for request in provider.requests[1:])
    assert by_reference == by_value
    assert read_ids(by_reference) == ["rs_1", "msg_1", "fc_1_0"]
    assert by_reference[1]["encrypted_content"]
    assert second["id"][5:37] == first["id"][5:37], "the same conversation"
    assert whole["status"] == "completed"
    path = f"/v1/conversations/conv_{first['id'][5:37]}/items"
    headers = {"Authorization": "Bearer sk-ann-0123456789"}
    listed = (await server("GET", path, headers=headers, params={"order": "asc"})).json()
    assert [item["type"] for item in listed["data"]] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_another_provider_gets_the_items(server: ServerApp, provider: FakeProvider) -> None:
    provider.queue_reply("I look.", tool_calls=(CALL,), reasoning=("Hm.",))
    first = await create(server, [USER])

    await create(server, [USER, *refer(first), OUTPUT], model=OTHER)

    (_, reply, result) = provider.requests[-1].json["messages"]
    assert [block["type"] for block in reply["content"]] == ["text", "tool_use"]
    assert result["content"][0]["tool_use_id"] == "call_1"


async def test_items_are_found_in_any_order_of_a_stream(
    server: ServerApp, provider: FakeProvider
) -> None:
    """A server of chat completions can send the calls before the text; the text is stored first."""
    calls = [CALL, replace(CALL, id="call_2")]
    provider.queue_reply("I look.", tool_calls=tuple(calls), finish="tool_calls")
    first = await create(server, [USER], model=CHAT, stream=True)
    assert first["output"][0]["type"] == "function_call"

    outputs = [OUTPUT, {**OUTPUT, "call_id": "call_2"}]
    second = await create(server, [USER, *refer(first), *outputs], model=CHAT)

    reply = provider.requests[-1].json["messages"][1]
    assert reply["content"] == "I look."
    assert [call["id"] for call in reply["tool_calls"]] == ["call_1", "call_2"]
    assert second["id"][5:37] == first["id"][5:37], "the same conversation"


async def test_ids_of_input_items_are_not_sent(server: ServerApp, provider: FakeProvider) -> None:
    provider.queue_reply(tool_calls=(CALL,))
    first = await create(server, [USER])
    second = await create(server, [OUTPUT], previous_response_id=first["id"])
    headers = {"Authorization": "Bearer sk-ann-0123456789"}
    references = []
    for one in (first, second):
        listed = await server("GET", f"{PATH}/{one['id']}/input_items", headers=headers)
        references += refer({"output": listed.json()["data"]}) + refer(one)

    await create(server, [*references, {"role": "user", "content": "And now?"}])

    sent = provider.requests[-1].json["input"]
    assert [item.get("type", "message") for item in sent] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    assert read_ids(sent) == ["fc_1_0", "msg_2"]


@pytest.mark.parametrize("way", ["reference", "value", "header"])
async def test_an_item_id_identifies_the_conversation_of_a_repeated_program(
    server: ServerApp, provider: FakeProvider, way: str
) -> None:
    await run_program_three_times(server, way=way)


async def test_an_item_id_identifies_the_conversation_of_a_recorded_program(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> None:
    settings = settings_of(provider, record="auto")
    async with open_server_app(tmp_path, settings, store=store_url) as server:
        await run_program_three_times(server, store=False)


async def run_program_three_times(server: ServerApp, *, way: str = "value", **fields: Any) -> None:
    """Each run has the same texts, and its own conversation."""
    question = {"role": "user", "content": "And now?"}
    headers = {"X-Conversation-ID": "auto"} if way == "header" else {}
    conversations: list[str] = []
    for _ in range(3):
        first = await create(server, [USER], model=CHAT, **fields)
        items = refer(first) if way == "reference" else first["output"]
        history = [USER, *items, question]
        second = await create(server, history, model=CHAT, headers=headers, **fields)
        assert second["id"][5:37] == first["id"][5:37]
        conversations.append(second["id"][5:37])

    assert len(set(conversations)) == 3
    for one in conversations:
        stored = await server.load(f"{UUID(one)}", owner="ann")
        assert [message.role for message in stored.messages] == ["user", "assistant"] * 2
        assert not stored.variants


async def test_an_item_id_of_an_unknown_conversation_is_ignored(
    server: ServerApp, provider: FakeProvider
) -> None:
    """The conversation of another owner, an archived one, and one that does not exist."""
    item = {"type": "message", "role": "assistant", "content": "Blue."}
    first = await create(server, [USER], owner="ann")
    archived = await create(server, [USER], owner="bob")
    bob = {"Authorization": "Bearer sk-bob-0123456789"}
    path = f"/v1/conversations/{UUID(archived['id'][5:37])}"
    assert (await server("DELETE", path, headers=bob)).status_code == 204
    foreign = [one["output"][0]["id"] for one in (first, archived)]
    unknown = [foreign[0].replace(foreign[0].split("_")[1], "0" * 64), "msg_1", f"msg_{'a' * 70}"]

    found: set[str] = set()
    for item_id in (*foreign, *unknown):
        asked = {"role": "user", "content": f"Question {len(found)}"}
        history = [asked, {**item, "id": item_id}, USER]
        response = await create(server, history, owner="bob")
        assert response["status"] == "completed"
        found.add(response["id"][5:37])

    assert len(found) == 5, "each starts a conversation"
    assert not found & {first["id"][5:37], archived["id"][5:37]}


async def test_an_item_in_another_history_does_not_select_its_conversation(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, [USER])

    other = {"role": "user", "content": "Another question."}
    second = await create(server, [other, *first["output"], USER])

    assert second["id"][5:37] != first["id"][5:37]
    stored = await server.load(f"{UUID(second['id'][5:37])}", owner="ann")
    assert stored.parent is None


@pytest.mark.parametrize("item_id", [None, 1, {}, [], "", "\x00", "x" * 100_000, "msg_" * 50_000])
async def test_an_invalid_reference_is_a_short_error(
    server: ServerApp, provider: FakeProvider, item_id: Any
) -> None:
    requests = len(provider.requests)

    error = (await create(server, [USER, {"type": "item_reference", "id": item_id}]))["error"]

    assert error["code"] == "item_not_found"
    assert error["param"] == "input"
    assert len(error["message"]) < 200
    assert len(provider.requests) == requests


async def test_a_reference_may_lack_its_type(server: ServerApp, provider: FakeProvider) -> None:
    first = await create(server, [USER])

    for kind in ({}, {"type": None}):
        reference = {"id": first["output"][0]["id"], **kind}
        second = await create(server, [USER, reference, {"role": "user", "content": "More."}])
        assert second["status"] == "completed"
        assert provider.requests[-1].json["input"][1]["role"] == "assistant"


async def test_an_item_of_another_owner_is_unknown(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, [USER])
    requests = len(provider.requests)
    (reference,) = refer(first)
    digits = reference["id"].split("_")[1]
    unknown = {**reference, "id": reference["id"].replace(digits, "0" * 64)}

    errors = [await create(server, [USER, one], owner="bob") for one in (reference, unknown)]

    messages = [error["error"].pop("message") for error in errors]
    assert errors[0] == errors[1]
    assert errors[0]["error"]["code"] == "item_not_found"
    assert messages == [f"Item with id '{one['id']}' not found." for one in (reference, unknown)]
    assert len(provider.requests) == requests
