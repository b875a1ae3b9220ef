"""The Responses API of a server on each store, over providers of other protocols."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.fake_provider import FakeProvider, ToolCall
from tests.fake_responses import (
    json_response_steps,
    make_events,
    make_response,
    message_item,
    reasoning_item,
    stream_steps,
    web_search_item,
)
from tests.server_app import ServerApp, open_server_app
from tests.server_process import dump_tables

from cllm.wire.responses.ids import read_provider_id
from cllm.wire.sse import SseDecoder

PATH = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
MODELS = {
    "chat": "openai/gpt-test",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "bedrock": "bedrock/claude-opus-4-6",
}
CALL = ToolCall(id="call_1", name="look", arguments='{"at": "the sky"}')
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
SECRET = "Speak like the pirate Blackbeard."


def settings_of(provider: FakeProvider, **server: Any) -> str:
    row = {"api_key": "x", "num_retries": 0}
    settings = {
        "num_retries": 0,
        "providers": {
            "openai": {**row, "api_base": provider.url},
            "anthropic": {**row, "api_base": provider.root},
            "bedrock": {**row, "api_base": provider.root},
        },
        "server": {"silence_seconds": 0.2, **server},
    }
    return msgspec.json.encode(settings).decode()


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
async def server(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> AsyncIterator[ServerApp]:
    async with open_server_app(tmp_path, settings_of(provider), store=store_url) as running:
        yield running


@pytest.fixture(params=list(MODELS.values()), ids=list(MODELS))
def model(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


async def create(server: ServerApp, text: Any, status: int = 200, /, **fields: Any) -> Any:
    headers = fields.pop("headers", {})
    body = {"model": MODELS["chat"], "input": text, **fields}
    response = await server("POST", PATH, json=body, headers=headers)
    assert response.status_code == status, response.text
    if status == 200:
        Response.model_validate(response.json(), strict=False)
    return response.json()


async def stream(server: ServerApp, text: Any, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": MODELS["chat"], "input": text, "stream": True, **fields}
    response = await server("POST", PATH, json=body)
    assert response.status_code == 200, response.text
    return check_events(response.content)


def check_events(body: bytes, first: int = 0) -> list[dict[str, Any]]:
    """Return the events, each valid by the SDK's own model, numbered without a gap."""
    events = [json.loads(event.data) for event in SseDecoder().feed(body)]
    for event in events:
        EVENT.validate_python(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(first, first + len(events)))
    return events


def restore_ids(items: list[Any]) -> list[Any]:
    """Return relayed items with the ids of their provider."""
    return [{**item, "id": read_provider_id(item["id"])} for item in items]


def text_of(response: Any) -> str:
    return Response.model_validate(response).output_text


async def test_a_stateless_response_is_not_saved(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    response = await create(server, "Hello.", model=model, store=False, instructions=SECRET)

    assert text_of(response) == "echo: Hello."
    assert response["status"] == "completed"
    assert response["instructions"] == SECRET
    assert response["store"] is False
    assert len(response["id"]) == len("resp_") + 64
    assert response["usage"]["input_tokens"] == 11
    assert SECRET in json.dumps(provider.requests[-1].json)
    assert (await server.get("/v1/conversations"))["conversations"] == []


async def test_a_stream_has_every_event_in_order(server: ServerApp, model: str) -> None:
    events = await stream(server, "Hello.", model=model, store=False)

    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert text_of(events[-1]["response"]) == "echo: Hello."
    assert {event["response"]["id"] for event in events if "response" in event} == {
        events[0]["response"]["id"]
    }


@pytest.mark.parametrize("streams", [False, True])
async def test_function_calls(
    server: ServerApp, provider: FakeProvider, model: str, streams: bool
) -> None:
    provider.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    fields: Any = {"model": model, "store": False, "tools": [LOOK]}
    if streams:
        events = await stream(server, "Look.", **fields)
        assert "response.function_call_arguments.done" in [event["type"] for event in events]
        response = events[-1]["response"]
    else:
        response = await create(server, "Look.", **fields)
    (call,) = response["output"]
    assert (call["type"], call["name"], call["call_id"]) == ("function_call", "look", "call_1")
    assert json.loads(call["arguments"]) == {"at": "the sky"}

    output = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}
    await create(server, [{"role": "user", "content": "Look."}, call, output], **fields)

    sent = json.dumps(provider.requests[-1].json)
    assert "blue" in sent
    assert call["id"] not in sent


async def test_a_stored_response_continues(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    first = await create(server, "My cat is called Luna.", model=model, instructions=SECRET)
    second = await create(
        server, "What is my cat called?", model=model, previous_response_id=first["id"]
    )

    assert second["previous_response_id"] == first["id"]
    assert second["instructions"] is None
    sent = json.dumps(provider.requests[-1].json)
    assert "Luna" in sent
    assert "echo: My cat" in sent
    assert SECRET not in sent
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    assert listed["message_count"] == 4


async def test_an_older_response_continues_in_a_branch(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, "One.")
    second = await create(server, "Two.", previous_response_id=first["id"])
    third = await create(server, "Three.", previous_response_id=first["id"])

    assert "Two." not in json.dumps(provider.requests[-1].json)
    assert "One." in json.dumps(provider.requests[-1].json)
    conversations = [one["id"][5:37] for one in (first, second, third)]
    assert conversations[0] == conversations[1] != conversations[2]
    fourth = await create(server, "Four.", previous_response_id=second["id"])
    assert fourth["id"][5:37] == conversations[0]


async def test_parallel_requests_continue_one_response(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, "One.")
    options: list[dict[str, Any]] = [{}, {}, {}, {}, {"background": True}, {"background": True}]

    replies = await asyncio.gather(
        *(
            create(server, f"Two {number}.", previous_response_id=first["id"], **more)
            for number, more in enumerate(options)
        )
    )

    assert {one["previous_response_id"] for one in replies} == {first["id"]}
    conversations = [one["id"][5:37] for one in replies]
    assert len(set(conversations)) == len(replies)
    for _ in range(200):
        states = [await server.get(f"/v1/responses/{one['id']}") for one in replies]
        if all(one["status"] == "completed" for one in states):
            break
        await asyncio.sleep(0.05)
    assert [one["status"] for one in states] == ["completed"] * len(replies)
    for number in range(len(options)):
        bodies = [json.dumps(request.json) for request in provider.requests]
        sent = [body for body in bodies if f"Two {number}." in body]
        assert len(sent) == 1
        assert "One." in sent[0]
        assert sent[0].count("Two ") == 1


async def test_an_unknown_previous_response(server: ServerApp) -> None:
    for unknown in ("resp_" + "0" * 64, "resp_abc", "nothing"):
        error = await create(server, "Hello.", 404, previous_response_id=unknown)
        assert error["error"]["code"] == "previous_response_not_found"
        assert error["error"]["param"] == "previous_response_id"
        assert error["error"]["type"] == "invalid_request_error"


async def test_a_previous_response_without_storage(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, "One.")
    await create(server, "Two.", previous_response_id=first["id"])
    third = await create(server, "Three.", previous_response_id=first["id"], store=False)

    sent = json.dumps(provider.requests[-1].json)
    assert "One." in sent
    assert "Two." not in sent
    assert third["store"] is False
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    assert listed["message_count"] == 4


async def test_a_developer_message_of_a_continued_response_is_sent_and_not_saved(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, "One.", instructions="Be brief.")
    items = [{"role": "developer", "content": SECRET}, {"role": "user", "content": "Two."}]
    second = await create(server, items, previous_response_id=first["id"], instructions="Be kind.")

    assert "Be kind." in json.dumps(provider.requests[-1].json)
    assert SECRET in json.dumps(provider.requests[-1].json)
    await create(server, "Three.", previous_response_id=second["id"])
    assert SECRET not in json.dumps(provider.requests[-1].json)


async def test_a_whole_history_is_recognised(server: ServerApp) -> None:
    first = await create(server, "One.")
    items = [{"role": "user", "content": "One."}, *first["output"]]
    second = await create(server, [*items, {"role": "user", "content": "Two."}])

    assert second["id"][5:37] == first["id"][5:37]
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    assert listed["message_count"] == 4


async def test_a_conversation_of_the_request(server: ServerApp) -> None:
    conversation = await server.create_conversation()
    first = await create(server, "One.", conversation=conversation)
    await create(server, "Two.", conversation={"id": "conv_" + conversation})
    await create(server, "Three.", conversation="conv_" + conversation.replace("-", ""))

    assert first["id"][5:37] == conversation.replace("-", "")
    assert first["conversation"] == {"id": "conv_" + conversation.replace("-", "")}
    assert len((await server.get(f"/v1/conversations/{conversation}"))["messages"]) == 6
    error = await create(
        server, "Four.", 400, conversation=conversation, previous_response_id=first["id"]
    )
    assert error["error"]["param"] == "previous_response_id"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 7}, "input"),
        ({"store": "yes"}, "store"),
        ({"background": True, "store": False}, "background"),
        ({"truncation": "some"}, "truncation"),
        ({"metadata": {"a": 1}}, "metadata"),
    ],
)
async def test_invalid_requests(server: ServerApp, fields: Any, param: str) -> None:
    error = await create(server, "Hello.", 400, **fields)

    assert error["error"]["type"] == "invalid_request_error"
    assert error["error"]["param"].startswith(param)


async def get_response(server: ServerApp, response_id: str) -> Any:
    response = await server.get(f"{PATH}/{response_id}")
    Response.model_validate(response)
    return response


async def test_a_stored_response_is_read(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    provider.queue_reply("Let me look.", tool_calls=(CALL,), finish="tool_calls")
    first = await create(server, "Look.", model=model, tools=[LOOK], instructions=SECRET)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}
    second = await create(server, [output], model=model, previous_response_id=first["id"])

    stored = await get_response(server, first["id"])
    assert stored["output"] == first["output"]
    assert {item["type"] for item in stored["output"]} == {"message", "function_call"}
    assert stored["usage"] == first["usage"]
    assert (stored["status"], stored["instructions"]) == ("completed", None)
    newest = await get_response(server, second["id"])
    assert newest["previous_response_id"] == first["id"]
    assert newest["output"] == second["output"]


async def test_a_reply_that_reached_its_limit_is_incomplete(
    server: ServerApp, provider: FakeProvider
) -> None:
    provider.queue_reply("Half", finish="length")
    response = await create(server, "Hello.")

    assert response["status"] == "incomplete"
    stored = await get_response(server, response["id"])
    assert stored["status"] == "incomplete"
    assert stored["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_a_failed_response_is_stored(server: ServerApp, provider: FakeProvider) -> None:
    provider.queue_error(429)
    response = await server("POST", PATH, json={"model": MODELS["chat"], "input": "Hello."})
    assert response.status_code == 429
    ids = (response.headers["X-Conversation-ID"], response.headers["X-Turn-ID"])

    stored = await get_response(server, f"resp_{''.join(ids)}".replace("-", ""))

    assert stored["status"] == "failed"
    assert stored["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("after", [None, 0, 3, 8])
async def test_a_stream_is_read_again(server: ServerApp, after: int | None) -> None:
    events = await stream(server, "Hello.", instructions=SECRET)
    query = {"stream": "true"} if after is None else {"stream": "true", "starting_after": after}

    again = await server("GET", f"{PATH}/{events[0]['response']['id']}", params=query)

    assert SECRET not in again.text
    first = 0 if after is None else after + 1
    rest = check_events(again.content, first)
    assert [event["type"] for event in rest] == [event["type"] for event in events[first:]]
    assert text_of(rest[-1]["response"]) == "echo: Hello."


async def test_the_stream_of_a_response_that_was_not_streamed(
    server: ServerApp, model: str
) -> None:
    response = await create(server, "Hello.", model=model)
    path = f"{PATH}/{response['id']}"

    built = check_events((await server("GET", path, params={"stream": "true"})).content)

    assert built[-1]["type"] == "response.completed"
    assert text_of(built[-1]["response"]) == text_of(response)
    assert built[-1]["response"]["output"][0]["id"] == response["output"][0]["id"]
    missing = await server("GET", path, params={"stream": "true", "starting_after": 2})
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "events_not_kept"


async def test_a_deleted_response_is_hidden_and_later_turns_stay(server: ServerApp) -> None:
    first = await create(server, "One.")
    second = await create(server, "Two.", previous_response_id=first["id"])

    deleted = await server("DELETE", f"{PATH}/{first['id']}")

    assert deleted.json() == {"id": first["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        again = await server(method, f"{PATH}/{first['id']}")
        assert again.status_code == 404
        assert again.json()["error"]["code"] == "response_not_found"
    await create(server, "Three.", 404, previous_response_id=first["id"])
    await get_response(server, second["id"])
    await create(server, "Three.", previous_response_id=second["id"])
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    assert (listed["message_count"], listed["metadata"]) == (6, {})
    path = f"/v1/conversations/{listed['id']}"
    changed = await server("PATCH", path, json={"metadata": {"a": "b"}})
    assert changed.json()["metadata"] == {"a": "b"}
    assert (await server("GET", f"{PATH}/{first['id']}")).status_code == 404


async def test_the_items_of_the_input_are_listed(server: ServerApp, provider: FakeProvider) -> None:
    provider.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    first = await create(server, "Look.", tools=[LOOK], instructions=SECRET)
    items = [
        {"role": "developer", "content": SECRET},
        {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
        {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
    ]
    second = await create(server, items, previous_response_id=first["id"])

    path = f"{PATH}/{second['id']}/input_items"
    listed = await server.get(path, params={"order": "asc"})

    assert [item["type"] for item in listed["data"]] == ["function_call_output", "message"]
    assert SECRET not in json.dumps(listed)
    assert listed["has_more"] is False
    assert (listed["first_id"], listed["last_id"]) == tuple(item["id"] for item in listed["data"])
    newest = await server.get(path, params={"limit": 1})
    assert (newest["data"][0]["type"], newest["has_more"]) == ("message", True)
    rest = await server.get(path, params={"after": newest["last_id"]})
    assert [item["type"] for item in rest["data"]] == ["function_call_output"]
    (only,) = (await server.get(f"{PATH}/{first['id']}/input_items"))["data"]
    assert only["content"] == [{"type": "input_text", "text": "Look."}]
    unknown = await server("GET", path, params={"after": "msg_1"})
    assert unknown.json()["error"]["code"] == "item_not_found"


async def test_references_to_stored_items(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    first = await create(server, "One.", model=model)
    (asked,) = (await server.get(f"{PATH}/{first['id']}/input_items"))["data"]
    items = [
        {"type": "item_reference", "id": asked["id"]},
        {"type": "item_reference", "id": first["output"][0]["id"]},
        {"role": "user", "content": "Two."},
    ]

    second = await create(server, items, model=model)

    sent = json.dumps(provider.requests[-1].json)
    assert "echo: One." in sent
    assert second["id"][5:37] == first["id"][5:37]
    for unknown in ("msg_1", f"msg_{'0' * 64}_0", f"{first['output'][0]['id']}9"):
        items[1]["id"] = unknown
        error = await create(server, items, 404, model=model)
        assert error["error"]["code"] == "item_not_found"


async def wait_for_end(server: ServerApp, response_id: str) -> Any:
    for _ in range(200):
        response = await get_response(server, response_id)
        if response["status"] not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.05)
    raise AssertionError("the response did not end")


async def test_a_background_response_is_polled(server: ServerApp, provider: FakeProvider) -> None:
    gate = provider.queue_held_reply("Held.", at=0)
    response = await create(server, "Hello.", background=True)

    assert response["status"] == "in_progress"
    assert response["background"] is True
    assert (await get_response(server, response["id"]))["status"] == "in_progress"
    gate.open()
    ended = await wait_for_end(server, response["id"])
    assert (ended["status"], text_of(ended)) == ("completed", "Held.")


async def test_a_background_response_is_cancelled(
    server: ServerApp, provider: FakeProvider
) -> None:
    gate = provider.queue_held_reply("Held.", at=0)
    response = await create(server, "Hello.", background=True)

    cancelled = await server("POST", f"{PATH}/{response['id']}/cancel")
    gate.open()

    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"] == "cancelled"
    assert (await get_response(server, response["id"]))["status"] == "cancelled"
    again = await server("POST", f"{PATH}/{response['id']}/cancel")
    assert again.json()["status"] == "cancelled"


async def test_a_background_response_of_a_whole_history(server: ServerApp) -> None:
    items = [
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three."},
    ]
    response = await create(server, items, background=True)

    ended = await wait_for_end(server, response["id"])

    assert text_of(ended) == "echo: Three."


async def test_a_background_request_that_cannot_start(server: ServerApp) -> None:
    error = await create(server, "Hello.", 404, model="nothing/at-all", background=True)

    assert error["error"]["code"] == "model_not_found"


async def test_only_background_responses_are_cancelled(
    server: ServerApp, provider: FakeProvider
) -> None:
    gate = provider.queue_held_reply("Held.", at=0)
    running = asyncio.create_task(create(server, "Hello."))
    while not provider.requests:
        await asyncio.sleep(0.01)
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    (turn,) = (await server.load(listed["id"])).turns
    response_id = f"resp_{listed['id']}{turn.id}".replace("-", "")

    refused = await server("POST", f"{PATH}/{response_id}/cancel")

    gate.open()
    assert (await running)["id"] == response_id
    assert refused.status_code == 400
    ended = await server("POST", f"{PATH}/{response_id}/cancel")
    assert ended.json()["status"] == "completed"


async def test_a_repeated_request_gets_the_stored_response_without_instructions(
    server: ServerApp, provider: FakeProvider
) -> None:
    fields: Any = {"instructions": SECRET, "headers": {"Idempotency-Key": "k1"}}
    first = await create(server, "Hello.", **fields)
    fields = {"instructions": SECRET, "headers": {"Idempotency-Key": "k1"}}
    again = await create(server, "Hello.", **fields)

    assert again == {**first, "instructions": None}
    assert len(provider.requests) == 1


async def test_the_events_of_another_api_are_not_those_of_the_response(server: ServerApp) -> None:
    body = {"model": MODELS["chat"], "messages": [{"role": "user", "content": "One."}]}
    chat = await server(
        "POST",
        "/v1/chat/completions",
        json={**body, "stream": True},
        headers={"X-Conversation-ID": ""},
    )
    ids = (chat.headers["X-Conversation-ID"], chat.headers["X-Turn-ID"])
    response_id = f"resp_{''.join(ids)}".replace("-", "")

    events = await server("GET", f"{PATH}/{response_id}", params={"stream": "true"})

    assert text_of(check_events(events.content)[-1]["response"]) == "echo: One."
    second = await create(server, "Two.", previous_response_id=response_id)
    assert second["id"][5:37] == response_id[5:37]


async def test_a_websocket_is_refused(server: ServerApp) -> None:
    refused = await server("GET", PATH, headers={"Upgrade": "websocket", "Connection": "Upgrade"})

    assert refused.status_code == 426
    assert refused.json()["error"]["code"] == "upgrade_required"
    assert (await server("GET", PATH)).status_code == 405


HOSTED = [
    {"type": "web_search"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "mcp", "server_label": "x", "server_url": "https://example.com/mcp"},
    {"type": "image_generation"},
    {"type": "local_shell"},
    {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [LOOK]},
    {"type": "tool_search"},
]


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
@pytest.mark.parametrize("streams", [False, True])
async def test_hosted_tools_are_refused_by_other_providers(
    server: ServerApp, provider: FakeProvider, model: str, tool: Any, streams: bool
) -> None:
    error = await create(server, "Hello.", 400, model=model, tools=[tool], stream=streams)

    assert error["error"]["code"] == "invalid_request"
    assert "only OpenAI's Responses API has the tool" in error["error"]["message"]
    assert provider.requests == []


RELAYED = "lab/gpt-5-codex"


@pytest.fixture
async def relaying(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> AsyncIterator[ServerApp]:
    """A server whose provider has the Responses API."""
    settings = msgspec.json.decode(settings_of(provider))
    settings["providers"]["lab"] = {
        "type": "openai",
        "api": "responses",
        "api_base": provider.url,
        "api_key": "x",
    }
    settings["server"] |= {"routes": {"gpt-5-codex": RELAYED}, "system_prefix": "Prefix."}
    text = msgspec.json.encode(settings).decode()
    async with open_server_app(tmp_path, text, store=store_url) as running:
        yield running


@pytest.mark.parametrize("streams", [False, True])
async def test_a_response_of_openai_is_relayed(
    relaying: ServerApp, provider: FakeProvider, streams: bool
) -> None:
    upstream = make_response(
        reasoning_item("Thinking."), web_search_item(), message_item("Cats.", "msg_own")
    )
    upstream["instructions"] = f"Prefix.\n\n{SECRET}"
    events = make_events(upstream)
    provider.queue_steps(*(stream_steps(events) if streams else json_response_steps(upstream)))
    fields: Any = {"model": RELAYED, "tools": [{"type": "web_search"}], "instructions": SECRET}
    if streams:
        relayed = await stream(relaying, "Cats?", **fields)
        assert [event["type"] for event in relayed] == [event["type"] for event in events]
        response = relayed[-1]["response"]
    else:
        response = await create(relaying, "Cats?", **fields)

    assert restore_ids(response["output"]) == upstream["output"]
    assert response["instructions"] == SECRET
    assert response["id"] != upstream["id"]
    assert (await get_response(relaying, response["id"]))["output"] == response["output"]
    sent = provider.requests[-1].json
    assert sent["store"] is False
    assert sent["tools"] == [{"type": "web_search"}]
    await create(relaying, "And dogs?", model=RELAYED, previous_response_id=response["id"])
    assert provider.requests[-1].json["input"][1:4] == [
        {name: value for name, value in item.items() if value is not None}
        for item in upstream["output"]
    ]


async def test_the_body_of_a_stateless_request_is_sent_unchanged(
    tmp_path: Path, provider: FakeProvider
) -> None:
    settings = msgspec.json.decode(settings_of(provider))
    settings["providers"]["openai"]["api"] = "responses"
    text = msgspec.json.encode(settings).decode()
    body = (
        b'{ "model": "gpt-5", "input": [{"content":"Hi.","role":"user"}], "store":false,'
        b' "include":["reasoning.encrypted_content"], "stream": true}'
    )
    async with open_server_app(tmp_path, text) as server:
        response = await server("POST", PATH, content=body)

    assert response.status_code == 200, response.text
    check_events(response.content)
    assert provider.requests[-1].body == body


async def test_ids_of_this_server_are_not_sent_to_openai(
    relaying: ServerApp, provider: FakeProvider
) -> None:
    first = await create(relaying, "One.")
    items = [{"role": "user", "content": "One."}, *first["output"]]

    await create(relaying, [*items, {"role": "user", "content": "Two."}], model=RELAYED)

    assert first["output"][0]["id"] not in json.dumps(provider.requests[-1].json)


async def test_an_error_after_the_first_event(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    provider.queue_reply("Half", " of it", stop_after=1)

    events = await stream(server, "Hello.", model=model)

    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["code"] == "upstream_broken_stream"
    failed = events[-1]["response"]
    assert failed["error"]["code"] == "server_error"
    stored = await get_response(server, failed["id"])
    assert (stored["status"], text_of(stored)) == ("failed", "Half")
    again = await server("GET", f"{PATH}/{failed['id']}", params={"stream": "true"})
    resumed = check_events(again.content)
    assert [event["type"] for event in resumed[-2:]] == ["error", "response.failed"]


async def test_structured_output_and_reasoning_are_requested(
    server: ServerApp, provider: FakeProvider
) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    text = {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}
    body = {"model": MODELS["chat"], "input": "Hello.", "text": text, "top_p": 0.5}
    response = (await server("POST", PATH, json={**body, "max_output_tokens": 99})).json()

    sent = provider.requests[-1].json
    assert sent["response_format"]["json_schema"]["name"] == "answer"
    assert 99 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert (response["text"], response["top_p"]) == (text, 0.5)


@pytest.mark.parametrize("ends", [None, "length", "error"])
async def test_no_system_text_is_stored(
    server: ServerApp, provider: FakeProvider, store_url: str, tmp_path: Path, ends: str | None
) -> None:
    """Neither in rows, nor in stored events, nor in the records of repeated requests."""
    items = [{"role": "developer", "content": SECRET}, {"role": "user", "content": "Hello."}]
    for number, streams in enumerate((False, True)):
        if ends == "length":
            provider.queue_reply("Half", finish="length")
        elif ends == "error":
            provider.queue_reply("Half", " of it", stop_after=1)
        response = await server(
            "POST",
            PATH,
            json={
                "model": MODELS["chat"],
                "input": items,
                "instructions": SECRET,
                "stream": streams,
            },
            headers={"Idempotency-Key": f"key-{number}"},
        )
        assert (ends == "error" and not streams) or SECRET in response.text
    first = await create(server, "One.", instructions=SECRET)
    await create(server, items, previous_response_id=first["id"], instructions=SECRET)
    history = [{"role": "user", "content": "One."}, *first["output"], *items]
    last = await create(server, history, instructions=SECRET, background=True)
    await wait_for_end(server, last["id"])

    if store_url.startswith("postgresql:"):
        stored = await dump_tables(store_url)
    else:
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("server.db*"))

    assert b"Hello." in stored
    assert b"Blackbeard" not in stored


async def test_a_stateless_response_is_recorded_if_the_server_records(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> None:
    settings = settings_of(provider, record="auto")
    async with open_server_app(tmp_path, settings, store=store_url) as server:
        first = await create(server, "One.", store=False)
        items = [{"role": "user", "content": "One."}, *first["output"]]
        await create(server, [*items, {"role": "user", "content": "Two."}], store=False)
        (listed,) = (await server.get("/v1/conversations"))["conversations"]

    assert listed["message_count"] == 4
    assert first["store"] is False


PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Change a file.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"},
}


@pytest.mark.parametrize("streams", [False, True])
async def test_custom_tools_are_functions_of_other_providers(
    server: ServerApp, provider: FakeProvider, model: str, streams: bool
) -> None:
    call = ToolCall(id="call_7", name="patch", arguments=json.dumps({"input": "-a\n+b"}))
    provider.queue_reply(tool_calls=(call,), finish="tool_calls")
    fields: Any = {"model": model, "tools": [PATCH], "store": False}
    if streams:
        events = await stream(server, "Patch it.", **fields)
        kinds = [event["type"] for event in events]
        assert "response.custom_tool_call_input.delta" in kinds
        assert "response.custom_tool_call_input.done" in kinds
        response = events[-1]["response"]
    else:
        response = await create(server, "Patch it.", **fields)
    (item,) = response["output"]
    assert (item["type"], item["name"], item["call_id"]) == ("custom_tool_call", "patch", "call_7")
    assert item["input"] == "-a\n+b"
    assert "start: WORD" in json.dumps(provider.requests[-1].json)

    output = {"type": "custom_tool_call_output", "call_id": "call_7", "output": "Patched."}
    items = [{"role": "user", "content": "Patch it."}, item, output]
    await create(server, items, **fields)

    sent = json.dumps(provider.requests[-1].json)
    assert "Patched." in sent
    assert sent.count("call_7") == 2


async def test_a_custom_tool_is_relayed_to_openai(
    relaying: ServerApp, provider: FakeProvider
) -> None:
    upstream = make_response(
        {
            "id": "ctc_1",
            "type": "custom_tool_call",
            "call_id": "call_7",
            "name": "patch",
            "input": "-a",
        }
    )
    provider.queue_steps(*stream_steps(make_events(upstream)))

    events = await stream(relaying, "Patch it.", model=RELAYED, tools=[PATCH])

    assert restore_ids(events[-1]["response"]["output"]) == upstream["output"]
    assert provider.requests[-1].json["tools"] == [PATCH]
    output = {"type": "custom_tool_call_output", "call_id": "call_7", "output": "Patched."}
    previous = events[-1]["response"]["id"]
    await create(relaying, [output], model=RELAYED, previous_response_id=previous)
    assert provider.requests[-1].json["input"][1:] == [*upstream["output"], output]


PARAMETERS: dict[str, Any] = {
    "max_output_tokens": 99,
    "metadata": {"ticket": "T-1"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "pirates",
    "reasoning": {"effort": "low", "summary": None},
    "safety_identifier": "user-7",
    "temperature": 0.5,
    "text": {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}},
    "tool_choice": "auto",
    "tools": [LOOK],
    "top_p": 0.25,
    "truncation": "auto",
    "user": "anne",
}


@pytest.mark.parametrize("background", [False, True])
async def test_a_stored_response_repeats_the_parameters_of_the_request(
    server: ServerApp, provider: FakeProvider, background: bool
) -> None:
    first = await create(server, "One.", instructions=SECRET, **PARAMETERS)
    gate = provider.queue_held_reply("Held.", at=0) if background else None
    live = await create(
        server, "Two.", previous_response_id=first["id"], background=background, **PARAMETERS
    )
    if gate is not None:
        running = await get_response(server, live["id"])
        assert running == {**live, "model": running["model"]}
        gate.open()
    await wait_for_end(server, live["id"])

    for response in (first, live):
        stored = await get_response(server, response["id"])
        assert {name: stored[name] for name in PARAMETERS} == PARAMETERS
        assert {name: response[name] for name in PARAMETERS} == PARAMETERS
        assert stored["instructions"] is None
        for name in ("background", "conversation", "previous_response_id", "store"):
            assert stored[name] == response[name]
    events = await server("GET", f"{PATH}/{first['id']}", params={"stream": "true"})
    created = check_events(events.content)[0]["response"]
    assert {name: created[name] for name in PARAMETERS} == PARAMETERS


async def test_large_parameters_are_stored_in_part(server: ServerApp) -> None:
    tools = [{**LOOK, "name": f"look_{number}", "description": "x" * 500} for number in range(40)]
    metadata = {"note": "x" * 20_000, "nul": "\0"}

    response = await create(server, "Hello.", tools=[*tools, PATCH], metadata=metadata, user="anne")

    stored = await get_response(server, response["id"])
    assert [tool["name"] for tool in stored["tools"]] == [
        tool["name"] for tool in response["tools"]
    ]
    assert len(json.dumps(stored["tools"])) < 16 * 1024
    assert (stored["metadata"], stored["user"]) == ({}, "anne")


async def test_a_nul_in_a_parameter_is_not_stored(server: ServerApp) -> None:
    response = await create(server, "Hello.", metadata={"a": "\0"}, user="anne")

    again = await create(server, "More.", previous_response_id=response["id"])
    stored = await get_response(server, response["id"])
    assert (stored["metadata"], stored["user"]) == ({}, "anne")
    assert text_of(again) == "echo: More."


@pytest.mark.parametrize("form", ["uuid", "openai", "object", "header", "name"])
async def test_the_conversation_of_a_response(server: ServerApp, form: str) -> None:
    conversation = await server.create_conversation()
    openai_id = f"conv_{conversation}".replace("-", "")
    fields: dict[str, dict[str, Any]] = {
        "uuid": {"conversation": conversation},
        "openai": {"conversation": openai_id},
        "object": {"conversation": {"id": openai_id}},
        "header": {"headers": {"X-Conversation-ID": conversation}},
        "name": {"conversation": "pirates"},
    }

    response = await create(server, "Hello.", **fields[form])

    digits = response["id"].removeprefix("resp_")[:32]
    assert response["conversation"] == {"id": f"conv_{digits}"}
    assert (openai_id == f"conv_{digits}") == (form != "name")
    stored = await get_response(server, response["id"])
    assert stored["conversation"] == response["conversation"]
    assert stored["previous_response_id"] is None
    events = await stream(server, "Again.", conversation=f"conv_{digits}")
    assert events[0]["response"]["conversation"] == response["conversation"]


@pytest.mark.parametrize("unknown", ["conv_123", f"conv_{'0' * 48}", f"conv_{'0' * 32}"])
async def test_an_unknown_conversation_of_openai_is_not_found(
    server: ServerApp, unknown: str
) -> None:
    error = await create(server, "Hello.", 404, conversation=unknown)

    assert error["error"]["code"] == "conversation_not_found"


async def test_a_custom_call_of_another_provider_is_stored_as_one(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    call = ToolCall(id="call_7", name="patch", arguments=json.dumps({"input": "-a\n+b"}))
    provider.queue_reply(tool_calls=(call,), finish="tool_calls")
    fields: Any = {"model": model, "tools": [PATCH]}
    live = await create(server, "Patch it.", **fields)

    stored = await get_response(server, live["id"])

    assert stored["output"] == live["output"]
    assert live["output"][0]["type"] == "custom_tool_call"
    events = await server("GET", f"{PATH}/{live['id']}", params={"stream": "true"})
    assert check_events(events.content)[-1]["response"]["output"] == live["output"]
    output = {"type": "custom_tool_call_output", "call_id": "call_7", "output": "Patched."}
    reference = {"type": "item_reference", "id": live["output"][0]["id"]}
    question = {"role": "user", "content": "Patch it."}
    again = await create(server, [question, reference, output], **fields)
    assert again["id"][5:37] == live["id"][5:37]
    conversation = f"conv_{live['id'][5:37]}"
    items = (await server.get(f"/v1/conversations/{conversation}/items?order=asc"))["data"]
    kinds = ["message", "custom_tool_call", "custom_tool_call_output", "message"]
    assert [item["type"] for item in items] == kinds
    assert items[1]["input"] == "-a\n+b"
