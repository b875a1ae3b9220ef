"""Stored turns as responses."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response
from tests.fake_responses import message_item

from cllm.core.conversation import (
    CANCELLATION,
    INTERRUPTION,
    StoredConversation,
    Turn,
    TurnFailure,
)
from cllm.core.message import Message, plain_message
from cllm.core.notice import reply_cut
from cllm.core.reply import Usage
from cllm.server.api.response_views import (
    find_item,
    list_input,
    list_output,
    stream_response,
    view_response,
)
from cllm.server.turns.previous_response import StoredResponse
from cllm.wire.responses.ids import read_provider_id
from cllm.wire.responses.request import decode_request

NOW = datetime(2026, 11, 16, tzinfo=UTC)
CONVERSATION = "0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11"
TURN = "34364889-f9dc-4fe9-bd9e-3186a8777205"
EARLIER = "11111111-f9dc-4fe9-bd9e-3186a8777205"
ID = f"resp_{CONVERSATION}{TURN}".replace("-", "")
ASKED = plain_message("user", "Hello.")
REPLY = plain_message("assistant", "Hi.")


def make_turn(*messages: Message, state: Any = "complete", **fields: Any) -> Turn:
    defaults: Any = {"id": TURN, "place": fields.get("id", TURN), "started_at": NOW}
    return Turn(messages=messages or (ASKED, REPLY), state=state, **{**defaults, **fields})


def make_stored(*messages: Message, before: tuple[Turn, ...] = (), **fields: Any) -> StoredResponse:
    turn = make_turn(*messages, **fields)
    conversation = StoredConversation(
        id=CONVERSATION, created_at=NOW, updated_at=NOW, turns=(*before, turn)
    )
    return StoredResponse(conversation=conversation, turn=turn)


def view(*messages: Message, **fields: Any) -> Any:
    response = view_response(make_stored(*messages, **fields))
    Response.model_validate(response)
    return response


def test_a_complete_turn():
    response = view(model="openai/gpt-test", usage=Usage(input=3, output=2), ended_at=NOW)

    assert (response["id"], response["status"], response["error"]) == (ID, "completed", None)
    assert response["output"][0]["content"][0]["text"] == "Hi."
    assert response["usage"]["total_tokens"] == 5
    assert response["completed_at"] == response["created_at"] == int(NOW.timestamp())
    assert response["instructions"] is None
    assert response["previous_response_id"] is None


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"state": "running"}, "in_progress"),
        ({"state": "incomplete"}, "incomplete"),
        ({"state": "incomplete", "failure": INTERRUPTION}, "failed"),
        ({"state": "failed", "failure": INTERRUPTION}, "failed"),
        ({"state": "incomplete", "failure": CANCELLATION}, "cancelled"),
        ({"state": "failed", "failure": CANCELLATION}, "cancelled"),
        ({"state": "failed"}, "failed"),
        ({"notices": (reply_cut("max_output_tokens"),)}, "incomplete"),
        ({"notices": (reply_cut("content_filter"),)}, "incomplete"),
    ],
)
def test_the_status(fields: Any, status: str):
    assert view(**fields)["status"] == status


@pytest.mark.parametrize(
    ("code", "shown"),
    [("RateLimitedError", "rate_limit_exceeded"), ("UpstreamError", "server_error")],
)
def test_the_error_of_a_failed_turn(code: str, shown: str):
    failure = TurnFailure(code=code, message="It failed.")

    response = view(ASKED, state="failed", failure=failure)

    assert response["error"] == {"code": shown, "message": "It failed."}
    assert response["output"] == []


def test_the_response_before_it():
    failed = make_turn(ASKED, id="22222222-f9dc-4fe9-bd9e-3186a8777205", state="failed")
    before = (make_turn(id=EARLIER), failed)

    assert view(before=before)["previous_response_id"] == (
        f"resp_{CONVERSATION}{EARLIER}".replace("-", "")
    )


def test_items_of_openai_have_its_ids_at_the_end():
    items = [message_item("Hi.", item_id="msg_own")]
    raw = msgspec.json.encode({"role": "assistant", "content": items})
    reply = Message(role="assistant", raw=raw, dialect="responses")

    (item,) = list_output(make_stored(ASKED, reply))
    assert item == {**items[0], "id": item["id"]}
    assert read_provider_id(item["id"]) == "msg_own"
    assert find_item(make_stored(ASKED, reply), item["id"]) == item


def test_the_items_of_the_input():
    body = {
        "model": "m",
        "input": [
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "blue"},
            {"role": "assistant", "content": "Blue."},
        ],
    }
    messages = decode_request(msgspec.json.encode(body)).messages
    items = list_input(make_stored(ASKED, *messages, REPLY))

    assert [item["type"] for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    hexadecimal = ID.removeprefix("resp_")
    assert [item["id"] for item in items] == [
        f"{prefix}_{hexadecimal}_i{index}"
        for index, prefix in enumerate(("msg", "msg", "fc", "fco", "msg"))
    ]
    assert items[0]["content"] == [{"type": "input_text", "text": "Hello."}]
    assert items[4]["content"][0]["type"] == "output_text"


def test_a_turn_without_a_reply_has_its_input():
    assert len(list_input(make_stored(ASKED, state="running"))) == 1


def test_the_events_of_a_stored_turn():
    data = stream_response(make_stored())

    assert data.count(b"event: ") == 9
    assert b"event: response.completed" in data


def test_the_events_of_a_failed_turn():
    data = stream_response(make_stored(ASKED, state="failed", failure=CANCELLATION))

    assert b"The response is cancelled." in data
    assert data.endswith(b"\n\n")
    assert b"event: response.failed" in data
