"""`POST /v1/messages/count_tokens` in a conversation counts the prompt of the next message."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.messages_api import (
    COUNT,
    MESSAGES,
    MODELS,
    list_notice_codes,
    make_settings,
    post_message,
    start_server,
)
from tests.server_process import Response, Server, list_messages
from tests.text_corpus import text_of
from tests.tokenizers import o200k

CAT = ("user", "My cat is called Luna.")
QUESTION = ("user", "What is my cat called?")
TOOLS = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
FILE = "old-one"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("counting")
    keep_file(folder / "home/.cllm/conversations")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


def keep_file(folder: Path) -> None:
    """Start a conversation on the command line with a stored system prompt."""
    folder.mkdir(parents=True)
    pairs = [("system", "Speak as a sailor."), ("user", "Ahoy."), ("assistant", "Ahoy, mate.")]
    conversation = {
        "id": FILE,
        "model": MODELS["anthropic"],
        "messages": [{"role": role, "content": content} for role, content in pairs],
        "created_at": "2026-10-31T12:00:00Z",
        "updated_at": "2026-10-31T12:00:15Z",
        "metadata": {},
    }
    (folder / f"{FILE}.json").write_text(json.dumps(conversation), encoding="utf-8")


def start_conversation(server: Server, provider: str = "anthropic") -> str:
    response = post_message(server, CAT, model=MODELS[provider], headers={"X-Conversation-ID": ""})
    return response.conversation


def count(server: Server, conversation: str, *pairs: tuple[str, Any], **fields: Any) -> Response:
    headers = {"X-Conversation-ID": conversation}
    return post_message(server, *pairs, path=COUNT, max_tokens=None, headers=headers, **fields)


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
def test_the_counted_prompt_is_the_next_sent_one(
    server: Server, upstream: FakeProvider, provider: str
):
    conversation = start_conversation(server, provider)
    request_fields: dict[str, Any] = {
        "model": MODELS[provider],
        "system": "Be brief.",
        "tools": TOOLS,
    }
    counted = count(server, conversation, QUESTION, **request_fields)
    seen = upstream.requests[-1].json
    post_message(server, QUESTION, headers={"X-Conversation-ID": conversation}, **request_fields)
    sent = upstream.requests[-1].json

    compared = ("messages", "system", "tools", "toolConfig")
    seen = seen.get("input", {}).get("converse", seen)
    assert counted.status == 200, counted.body
    assert counted.conversation == conversation
    assert len(seen["messages"]) == 3
    assert {name: seen.get(name) for name in compared} == {
        name: sent.get(name) for name in compared
    }


def test_an_estimate_includes_the_history(server: Server):
    conversation = start_conversation(server, "openai")
    alone = post_message(server, QUESTION, path=COUNT, model=MODELS["openai"])
    counted = count(server, conversation, QUESTION, model=MODELS["openai"])

    assert counted.json["input_tokens"] > alone.json["input_tokens"] + 8
    assert list_notice_codes(counted) == ["tokens_estimated"]


@pytest.mark.parametrize("kind", ["data: letters", "data: dna", "data: hex", "run: 'a'"])
def test_an_estimate_of_a_long_run_of_letters_is_between_half_and_twice_its_tokens(
    server: Server, kind: str
):
    text = text_of(kind, 100_000)
    counted = post_message(server, ("user", text), path=COUNT, model=MODELS["openai"])

    assert list_notice_codes(counted) == ["tokens_estimated"]
    assert 0.5 <= counted.json["input_tokens"] / o200k()(text) <= 2


def test_a_count_stores_nothing(server: Server):
    conversation = start_conversation(server)
    before = list(list_messages(server, conversation))
    total = server("GET", "/v1/conversations").json["total"]
    count(server, conversation, QUESTION)
    new = count(server, "", QUESTION)

    assert new.status == 200
    assert "x-conversation-id" not in new.headers
    assert list(list_messages(server, conversation)) == before
    assert server("GET", "/v1/conversations").json["total"] == total


def test_a_running_turn_does_not_block_a_count(server: Server, upstream: FakeProvider):
    conversation = start_conversation(server)
    gate = upstream.queue_held_reply("Very ", "late.")
    body = {"model": MODELS["anthropic"], "max_tokens": 9, "stream": True}
    running = server.open(
        "POST",
        MESSAGES,
        {**body, "messages": [{"role": "user", "content": "Take your time."}]},
        {"X-Conversation-ID": conversation},
    )
    gate.wait_reached()
    counted = count(server, conversation, QUESTION)
    seen = upstream.requests[-1].json["messages"]
    gate.open()
    rest = running.rest()

    assert counted.status == 200, counted.body
    assert seen[0]["content"] == CAT[1]
    assert b"Take your time." not in upstream.requests[-1].body
    assert b"message_stop" in rest


def test_without_messages_the_regenerated_prompt_is_counted(server: Server, upstream: FakeProvider):
    conversation = start_conversation(server)
    again = count(server, conversation)
    seen = upstream.requests[-1].json["messages"]
    nothing = count(server, "")

    assert again.status == 200, again.body
    assert [message["role"] for message in seen] == ["user"]
    assert (nothing.status, nothing.error["type"]) == (400, "invalid_request_error")


def test_a_stored_system_prompt_is_counted(server: Server, upstream: FakeProvider):
    counted = count(server, f"files:{FILE}", QUESTION, system="Be brief.")

    sent = upstream.requests[-1].json
    assert counted.status == 200, counted.body
    assert "Speak as a sailor." in str(sent["system"])
    assert "Be brief." not in str(sent["system"])
    assert len(sent["messages"]) == 3
    assert "system_prompt_ignored" in list_notice_codes(counted)


def test_an_unknown_conversation_cannot_be_counted(server: Server, upstream: FakeProvider):
    before = len(upstream.requests)
    response = count(server, UNKNOWN, QUESTION)

    assert (response.status, response.error["type"]) == (404, "not_found_error")
    assert len(upstream.requests) == before


def test_only_messages_in_the_window_are_counted(upstream: FakeProvider, tmp_path: Path):
    values = make_settings(upstream) | {"window": {"strategy": "turns", "max_turns": 2}}
    with start_server(tmp_path, values) as server:
        conversation = start_conversation(server)
        for number in range(3):
            post_message(
                server, ("user", f"And {number}?"), headers={"X-Conversation-ID": conversation}
            )
        counted = count(server, conversation, QUESTION)
        seen = upstream.requests[-1].json["messages"]
        post_message(server, QUESTION, headers={"X-Conversation-ID": conversation})
        sent = upstream.requests[-1].json["messages"]

    assert "trimmed" in list_notice_codes(counted)
    assert seen == sent
    assert CAT[1] not in str(seen)
