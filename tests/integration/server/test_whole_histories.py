"""Clients that send their whole history to a server, with and without a conversation ID."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fake_provider import FakeProvider, ToolCall
from tests.server_app import ServerApp, open_server_app
from tests.store_gates import block_method, wait_for_background

from cllm.core.errors import StoreUnavailableError
from cllm.core.ports import Changes
from cllm.engine import optional_steps
from cllm.engine.optional_steps import OptionalSteps

CHAT = "/v1/chat/completions"
LIST = "/v1/conversations"
MODEL = "openai/gpt-test"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def settings_of(provider: FakeProvider, **server: Any) -> str:
    settings = {
        "model": MODEL,
        "api_base": provider.url,
        "api_key": "sk-0",
        "num_retries": 0,
        "server": server,
    }
    return msgspec.json.encode(settings).decode()


@pytest.fixture
def provider() -> Any:
    with FakeProvider() as running:
        yield running


@pytest.fixture
async def server(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> AsyncIterator[ServerApp]:
    async with open_server_app(tmp_path, settings_of(provider), store=store_url) as running:
        yield running


@pytest.fixture
async def recording(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> AsyncIterator[ServerApp]:
    settings = settings_of(provider, record="auto")
    async with open_server_app(tmp_path, settings, store=store_url) as running:
        yield running


async def send(
    server: ServerApp,
    messages: list[dict[str, Any]],
    fields: dict[str, Any] | None = None,
    /,
    **headers: str,
) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"model": MODEL, "messages": messages, **(fields or {})}
    return await server("POST", CHAT, json=body, headers=named)


async def texts_of(server: ServerApp, conversation: str) -> list[Any]:
    detail = await server.get(f"{LIST}/{conversation}")
    return [one["content"] for one in detail["messages"]]


async def metrics_of(server: ServerApp) -> str:
    return (await server("GET", "/metrics")).text


def notice_codes(response: Any) -> list[str]:
    return [one["code"] for one in json.loads(response.headers.get("X-CLLM-Notice", "[]"))]


async def test_ten_turns_of_a_client_with_an_id_store_twenty_messages(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    history: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for number in range(10):
        provider.queue_reply(f"reply {number}")
        history.append(user(f"question {number}"))
        response = await send(server, history, X_Conversation_ID=conversation)
        assert response.headers["X-Conversation-ID"] == conversation
        assert provider.requests[-1].json["messages"] == history
        history.append(reply(response.json()["choices"][0]["message"]["content"]))
    assert len(await texts_of(server, conversation)) == 20


async def test_a_tool_loop_sends_each_call_once(server: ServerApp, provider: FakeProvider) -> None:
    conversation = await server.create_conversation()
    function = {"name": "read", "arguments": "{}"}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "call_1", "content": "text"}
    history = [user("read it"), call, result]
    await send(server, history, X_Conversation_ID=conversation)
    assert provider.requests[-1].json["messages"] == history
    await send(
        server, [*history, reply("echo: read it"), user("next")], X_Conversation_ID=conversation
    )
    detail = await server.get(f"{LIST}/{conversation}")
    assert [one["role"] for one in detail["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]


async def test_a_request_without_a_reply_is_new_input(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    for _ in range(2):
        provider.queue_reply("same")
        await send(server, [user("hello")], X_Conversation_ID=conversation)
    assert await texts_of(server, conversation) == ["hello", "same", "hello", "same"]
    assert len(provider.requests[-1].json["messages"]) == 3


async def test_new_input_that_repeats_the_last_reply_stores_it_once(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    provider.queue_reply("first")
    await send(server, [user("one")], X_Conversation_ID=conversation)
    provider.queue_reply("second")
    await send(server, [reply(" first\n"), user("two")], X_Conversation_ID=conversation)
    assert await texts_of(server, conversation) == ["one", "first", "two", "second"]
    assert [one["content"] for one in provider.requests[-1].json["messages"]] == [
        "one",
        "first",
        "two",
    ]


CALL = ToolCall(id="call_1", name="read", arguments="{}")


async def run_tools(server: ServerApp, provider: FakeProvider, text: str, **headers: str) -> Any:
    """Send the messages of one turn each time, as helpers of the SDKs do."""
    messages = [user(text)]
    provider.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    provider.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    for _ in range(2):
        response = await send(server, messages, **headers)
        messages.append(response.json()["choices"][0]["message"])
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": "text"})
    return await send(server, messages, **headers)


@pytest.mark.parametrize("is_named", [True, False])
async def test_the_messages_of_the_last_turn_are_no_whole_history(
    server: ServerApp, provider: FakeProvider, is_named: bool
) -> None:
    """The turns have the same texts and calls, also as the first one."""
    conversation = "tools" if is_named else await server.create_conversation()
    turn = ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    for count in range(3):
        response = await run_tools(server, provider, "read it", X_Conversation_ID=conversation)

        assert notice_codes(response) == ([] if count else ["history_recognised"])
        sent = [one["role"] for one in provider.requests[-1].json["messages"]]
        assert sent == [*turn * count, *turn[:-1]]
        detail = await server.get(f"{LIST}/{conversation}?variants=true")
        assert [one["role"] for one in detail["messages"]] == turn * (count + 1)
        assert not detail["variants"]
    assert (await server.get(LIST))["total"] == 1


async def test_append_takes_the_messages_of_the_last_turn_as_new_ones(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    provider.queue_reply("first")
    for text in ("zero", "one"):
        await send(server, [user(text)], X_Conversation_ID=conversation)
    messages = [user("one"), reply("echo: one"), reply("more")]
    await send(server, messages, X_Conversation_ID=conversation, X_CLLM_History="append")
    assert len(await texts_of(server, conversation)) == 8


async def test_full_takes_one_message_as_the_whole_history(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    headers = {"X_Conversation_ID": conversation, "X_CLLM_History": "full"}
    provider.queue_reply("first")
    await send(server, [user("one")], **headers)
    provider.queue_reply("second")
    await send(server, [user("one")], **headers)
    assert await texts_of(server, conversation) == ["one", "second"]


async def test_append_takes_a_whole_history_as_new_messages(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    provider.queue_reply("first")
    await send(server, [user("one")], X_Conversation_ID=conversation)
    provider.queue_reply("second")
    messages = [user("one"), reply("first"), user("two")]
    await send(server, messages, X_Conversation_ID=conversation, X_CLLM_History="append")
    assert len(await texts_of(server, conversation)) == 6


async def test_an_edited_history_continues_in_a_branch(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    history = [user("one"), reply("1"), user("two"), reply("2")]
    await send(server, [*history, user("three")], X_Conversation_ID=conversation)
    await send(
        server,
        [*history, user("three"), reply("echo: three"), user("x")],
        X_Conversation_ID=conversation,
    )
    edited = [user("one"), reply("1"), user("other")]
    response = await send(server, edited, X_Conversation_ID=conversation)
    branch = response.headers["X-Conversation-ID"]
    assert branch != conversation
    assert notice_codes(response) == ["history_recognised", "history_diverged"]
    assert await texts_of(server, branch) == ["one", "1", "other", "echo: other"]
    again = [*edited, reply("echo: other"), user("more")]
    response = await send(server, again, X_Conversation_ID=conversation)
    assert response.headers["X-Conversation-ID"] == branch
    strict = await send(
        server,
        [user("zero"), reply("1"), user("x")],
        X_Conversation_ID=conversation,
        X_CLLM_Strict="true",
    )
    assert strict.status_code == 409
    assert strict.json()["error"]["code"] == "history_diverged"


async def test_a_name_creates_and_continues_a_conversation(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await send(server, [user("one")], X_Conversation_ID="cats")
    second = await send(server, [user("two")], X_Conversation_ID="cats")
    third = await send(
        server,
        [user("one"), reply("echo: one"), user("two"), reply("echo: two"), user("three")],
        X_Conversation_ID="cats",
    )
    ids = {one.headers["X-Conversation-ID"] for one in (first, second, third)}
    assert len(ids) == 1
    assert len(await texts_of(server, "cats")) == 6
    assert (await server.get(f"{LIST}/cats"))["name"] == "cats"
    started = await send(server, [user("a"), reply("b"), user("c")], X_Conversation_ID="dogs")
    assert started.status_code == 200
    assert await texts_of(server, "dogs") == ["a", "b", "c", "echo: c"]


async def test_auto_finds_the_conversation(server: ServerApp, provider: FakeProvider) -> None:
    history = [user("one")]
    first = await send(server, history, X_Conversation_ID="auto")
    history += [reply("echo: one"), user("two")]
    second = await send(server, history, X_Conversation_ID="auto")
    assert first.headers["X-Conversation-ID"] == second.headers["X-Conversation-ID"]
    assert notice_codes(second) == ["history_recognised"]
    other = await send(server, history)
    assert "X-Conversation-ID" not in other.headers


async def test_recorded_requests_are_sent_and_answered_like_stateless_ones(
    recording: ServerApp, server: ServerApp, provider: FakeProvider
) -> None:
    body = {
        "model": MODEL,
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "Be brief."},
            user("one"),
            {"role": "assistant", "content": "1", "name": "x"},
            {"role": "system", "content": "Now be long."},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
        ],
        "stream": True,
    }
    streams = []
    for one in (server, recording):
        response = await one("POST", CHAT, json=body)
        lines = [line for line in response.text.splitlines() if line]
        streams.append(
            [sorted(json.loads(line[6:]).keys()) if "{" in line else line for line in lines]
        )
    assert provider.requests[0].body == provider.requests[1].body
    assert streams[0] == streams[1]
    conversation = response.headers["X-Conversation-ID"]
    blocks = [{"type": "text", "text": "two"}]
    assert await texts_of(recording, conversation) == ["one", "1", blocks, "echo: two"]


async def test_parallel_requests_are_never_refused(
    recording: ServerApp, provider: FakeProvider
) -> None:
    responses = await asyncio.gather(*(send(recording, [user("the same")]) for _ in range(6)))
    assert [one.status_code for one in responses] == [200] * 6
    assert all(one.headers["X-Conversation-ID"] for one in responses)


async def test_a_store_that_is_not_available_changes_no_reply(
    recording: ServerApp, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailableError("The disk is full.")

    store = recording.state.store
    monkeypatch.setattr(store, "find_paths", fail)
    response = await send(recording, [user("one")])
    assert response.status_code == 200
    assert notice_codes(response) == ["not_recorded"]
    monkeypatch.undo()
    monkeypatch.setattr(store, "finish_turn", fail)
    response = await send(recording, [user("two")])
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "echo: two"
    assert notice_codes(response) == ["not_recorded"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_error_response_of_a_recorded_turn_names_the_failed_turn(
    recording: ServerApp, provider: FakeProvider, stream: bool
) -> None:
    provider.queue_error(529, "Overloaded.")
    body = {"model": MODEL, "messages": [user("one")], "stream": stream}
    response = await recording("POST", CHAT, json=body)
    assert response.status_code == 529
    conversation, turn = (response.headers[f"X-{name}-ID"] for name in ("Conversation", "Turn"))
    detail = await recording.get(f"{LIST}/{conversation}/turns/{turn}")
    assert (detail["id"], detail["state"]) == (turn, "failed")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["find_paths", "begin_turn"])
async def test_a_reply_does_not_wait_for_a_store_that_hangs_at_its_start(
    recording: ServerApp, monkeypatch: pytest.MonkeyPatch, name: str, stream: bool
) -> None:
    monkeypatch.setattr(optional_steps, "OPTIONAL_SECONDS", 0.05)
    gate = block_method(monkeypatch, recording.state.store, name)
    response = await send(recording, [user("one")], {"stream": stream})
    assert ("[DONE]" if stream else "echo: one") in response.text
    assert notice_codes(response) == ["not_recorded"]
    assert 'not_recorded_total{reason="StoreUnavailableError"} 1' in await metrics_of(recording)

    gate.set()
    await wait_for_background(recording.state.turns.background)
    assert (await recording.get(LIST))["total"] == 0


def limit_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the end of a reply wait a very short time; the start has more."""

    def restart_limit(steps: OptionalSteps) -> None:
        steps._seconds = 0.01

    monkeypatch.setattr(OptionalSteps, "restart_limit", restart_limit)


@pytest.mark.parametrize(
    ("name", "stream"),
    [("add_events", True), ("finish_turn", False), ("finish_turn", True), ("update", False)],
)
async def test_a_reply_does_not_wait_for_a_store_that_hangs_at_its_end(
    recording: ServerApp, monkeypatch: pytest.MonkeyPatch, name: str, stream: bool
) -> None:
    conversation = (await send(recording, [user("one")])).headers["X-Conversation-ID"]
    await recording.state.store.update(conversation, Changes(model=MODEL))
    limit_end(monkeypatch)
    gate = block_method(monkeypatch, recording.state.store, name)
    history = [user("one"), reply("echo: one"), user("two")]
    body = {"model": "openai/gpt-other", "stream": stream}
    response = await send(recording, history, body, X_CLLM_Switch_Model="true")
    assert response.status_code == 200
    assert recording.state.turns.background
    assert 'not_recorded_total{reason="StoreUnavailableError"} 1' in await metrics_of(recording)

    gate.set()
    await wait_for_background(recording.state.turns.background)
    assert response.headers["X-Conversation-ID"] == conversation
    assert await texts_of(recording, conversation) == ["one", "echo: one", "two", "echo: two"]
    stored = await recording.load(conversation)
    assert stored.model == "openai/gpt-other"
    assert [turn.state for turn in stored.turns] == ["complete", "complete"]


async def test_a_late_turn_is_saved_when_the_server_stops(
    tmp_path: Path, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_end(monkeypatch)
    settings, store = settings_of(provider, record="auto"), f"sqlite:///{tmp_path}/c.db"
    async with open_server_app(tmp_path, settings, store=store) as running:
        gate = block_method(monkeypatch, running.state.store, "finish_turn")
        response = await send(running, [user("one")])
        asyncio.get_running_loop().call_later(0.1, gate.set)
    async with open_server_app(tmp_path, settings, store=store) as running:
        conversation = response.headers["X-Conversation-ID"]
        assert await texts_of(running, conversation) == ["one", "echo: one"]


async def test_titles_are_not_stored_and_side_requests_are_hidden(
    recording: ServerApp, provider: FakeProvider
) -> None:
    headers = {"x_session_id": "ses_1", "User_Agent": "opencode/1.18"}
    title = [{"role": "system", "content": "You are a title generator."}, user("Generate a title")]
    response = await send(recording, title, **headers)
    assert "X-Conversation-ID" not in response.headers
    first = await send(recording, [user("work")], **headers)
    child = {**headers, "x_session_id": "ses_2", "x_parent_session_id": "ses_1"}
    agent = await send(recording, [user("search")], **child)
    listed = await recording.get(LIST)
    assert [one["id"] for one in listed["conversations"]] == [first.headers["X-Conversation-ID"]]
    everything = await recording.get(f"{LIST}?side=true")
    ids = {one["id"]: one for one in everything["conversations"]}
    assert set(ids) == {one.headers["X-Conversation-ID"] for one in (first, agent)}
    side = ids[agent.headers["X-Conversation-ID"]]
    assert side["parent"]["conversation_id"] == first.headers["X-Conversation-ID"]
    assert side["source"] == "opencode:subagent"


async def test_count_tokens_is_not_recorded(recording: ServerApp, provider: FakeProvider) -> None:
    body = {"model": MODEL, "messages": [user("one")], "max_tokens": 10}
    response = await recording("POST", "/v1/messages/count_tokens", json=body)
    assert response.status_code == 200
    assert (await recording.get(LIST))["total"] == 0


async def test_the_prompt_of_a_turn_shows_where_the_client_differed(
    server: ServerApp, provider: FakeProvider
) -> None:
    conversation = await server.create_conversation()
    history = [user("one")]
    turns = []
    for text in ("two", "three", "four"):
        response = await send(
            server, history, X_Conversation_ID=conversation, X_CLLM_History="full"
        )
        turns.append(response.headers["X-Turn-ID"])
        history += [reply(response.json()["choices"][0]["message"]["content"]), user(text)]
        if text == "three":
            history[1] = reply("echo:  one\n")
    prompts = [await server.get(f"{LIST}/{conversation}/turns/{turn}/prompt") for turn in turns]
    assert [one["from_client"] for one in prompts] == [True] * 3
    sent = [[message["content"] for message in one["sent"][1:]] for one in prompts]
    assert sent[2] == ["one", "echo: one", "two", "echo: two", "three"]
    assert [one["exact"] for one in prompts] == [True, True, False]
    assert [one["differs"] for one in prompts[2]["sent"][1:]] == [False, True, False, False, False]


async def test_the_prompt_of_a_side_request_starts_with_the_messages_of_its_parent(
    recording: ServerApp, provider: FakeProvider
) -> None:
    headers = {"x_claude_code_session_id": "ses_1", "User_Agent": "claude-cli/2.0"}
    first = await send(recording, [user("one")], **headers)
    history = [user("one"), reply("echo: one"), user("CRITICAL: Respond with TEXT ONLY.")]
    side = await send(recording, history, **headers)
    main, conversation, turn = (
        first.headers["X-Conversation-ID"],
        side.headers["X-Conversation-ID"],
        side.headers["X-Turn-ID"],
    )
    assert conversation != main
    path = f"{LIST}/{conversation}/turns/{turn}/prompt"
    prompt = await recording.get(path)
    names = ("kind", "content", "conversation_id", "sequence_number", "differs")
    own = ("request", "CRITICAL: Respond with TEXT ONLY.", None, None, False)
    assert [tuple(one[name] for name in names) for one in prompt["sent"][1:]] == [
        ("history", "one", main, 1, False),
        ("history", "echo: one", main, 2, False),
        own,
    ]
    assert prompt["exact"]

    await recording("DELETE", f"{LIST}/{main}?permanent=true")
    prompt = await recording.get(path)
    assert [tuple(one[name] for name in names) for one in prompt["sent"][1:]] == [own]
    assert not prompt["exact"]


async def test_a_request_without_messages_is_no_whole_history(server: ServerApp) -> None:
    conversation = await server.create_conversation()
    for messages in ([], [{"role": "system", "content": "Be brief."}]):
        response = await send(
            server, messages, X_Conversation_ID=conversation, X_CLLM_History="full"
        )
        assert response.status_code == 422
    assert (await server.get(LIST))["total"] == 1


async def test_parallel_requests_of_a_session_are_branches(
    recording: ServerApp, provider: FakeProvider
) -> None:
    headers = {"x_session_id": "ses_1", "User_Agent": "opencode/1.18"}
    history = [user("one")]
    await send(recording, history, **headers)
    history.append(reply("echo: one"))
    gate = provider.queue_held_reply("held")
    first = asyncio.create_task(send(recording, [*history, user("two")], **headers))
    await asyncio.to_thread(gate.wait_reached)
    second = await send(recording, [*history, user("three")], **headers)
    gate.open()
    response = await first
    branch = await recording.get(f"{LIST}/{second.headers['X-Conversation-ID']}")
    assert branch["parent"]["conversation_id"] == response.headers["X-Conversation-ID"]
    assert branch["parent"]["sequence_number"] == 2
    assert [one["content"] for one in branch["messages"]][:3] == ["one", "echo: one", "three"]


async def test_an_edit_of_the_only_message_is_a_variant(
    recording: ServerApp, provider: FakeProvider
) -> None:
    headers = {"x_session_id": "ses_1", "User_Agent": "opencode/1.18"}
    first = await send(recording, [user("one")], **headers)
    second = await send(recording, [user("two")], **headers)
    assert first.headers["X-Conversation-ID"] == second.headers["X-Conversation-ID"]
