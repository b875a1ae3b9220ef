"""One turn, and the prompt that it sent: which messages, and why others were left out."""

import pytest
from tests.server_app import open_server_app

from cllm.core.conversation import WindowRecord

LIST = "/v1/conversations"


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path) as server:
        yield server


async def test_a_turn_on_the_default_path_and_a_variant_are_found(server):
    conversation = await server.create_conversation()
    first = await server.add_turn(conversation, "Hello.", "Hi.")
    second = await server.save_turn(conversation, first.messages, place=first.place)

    for turn, on_default_path in ((first, False), (second, True)):
        view = await server.get(f"{LIST}/{conversation}/turns/{turn.id}")
        assert (view["id"], view["on_default_path"]) == (turn.id, on_default_path)


@pytest.mark.parametrize("path", ["turns/unknown", "turns/unknown/prompt"])
async def test_an_unknown_turn_is_an_error(server, path):
    conversation = await server.create_conversation()

    response = await server("GET", f"{LIST}/{conversation}/{path}")

    assert (response.status_code, response.json()["error"]["code"]) == (404, "turn_not_found")


async def test_a_prompt_lists_sent_messages_and_the_reason_for_the_others(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "one", "two")
    await server.add_turn(conversation, "three", state="failed")
    await server.add_turn(conversation, "four", "five")
    window = WindowRecord(first_sequence=4, sent_messages=3, counted=42)
    turn = await server.add_turn(conversation, "six", "seven", window=window)

    prompt = await server.get(f"{LIST}/{conversation}/turns/{turn.id}/prompt")

    sent = [(one["kind"], one["content"]) for one in prompt["sent"]]
    assert sent == [
        ("system", "not kept"),
        ("history", "four"),
        ("history", "five"),
        ("request", "six"),
    ]
    assert prompt["left_out"] == [
        {"first": 1, "last": 2, "reason": "window"},
        {"first": 3, "last": 3, "reason": "failed"},
    ]
    assert (prompt["exact"], prompt["counted_tokens"]) == (True, 42)


async def test_a_prompt_without_a_window_record_is_not_exact(server):
    conversation = await server.create_conversation()
    turn = await server.add_turn(conversation, "Hello.", "Hi.")

    prompt = await server.get(f"{LIST}/{conversation}/turns/{turn.id}/prompt")

    assert prompt["exact"] is False


async def test_a_summary_that_was_replaced_is_shown_as_not_stored(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "one", "two")
    window = WindowRecord(first_sequence=3, sent_messages=1, summary_through=2)
    turn = await server.add_turn(conversation, "three", "four", window=window)

    prompt = await server.get(f"{LIST}/{conversation}/turns/{turn.id}/prompt")

    assert ("summary", "not kept") in [(one["kind"], one["content"]) for one in prompt["sent"]]
    assert prompt["left_out"] == [{"first": 1, "last": 2, "reason": "summary"}]
