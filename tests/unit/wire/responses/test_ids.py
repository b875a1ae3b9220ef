"""IDs of responses and items."""

import json
from typing import Any

import pytest

from cllm.core.message import Message
from cllm.wire.responses.ids import (
    ItemKey,
    ResponseKey,
    find_item_conversation,
    is_generated_id,
    make_conversation_id,
    make_item_id,
    make_relayed_id,
    make_response_id,
    read_conversation_id,
    read_item_id,
    read_provider_id,
    read_response_id,
)

CONVERSATION = "0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11"
TURN = "34364889-f9dc-4fe9-bd9e-3186a8777205"
KEY = ResponseKey(conversation=CONVERSATION, turn=TURN)
RESPONSE = "resp_0d9e4a546f5b4a5e9a0e3f1d7a6f2b1134364889f9dc4fe9bd9e3186a8777205"


def test_the_id_of_a_conversation_has_the_digits_of_its_uuid():
    assert make_conversation_id(CONVERSATION) == "conv_0d9e4a546f5b4a5e9a0e3f1d7a6f2b11"
    assert read_conversation_id("conv_0d9e4a546f5b4a5e9a0e3f1d7a6f2b11") == CONVERSATION


@pytest.mark.parametrize("text", ["", "conv_cats", CONVERSATION, f"conv_{CONVERSATION}"])
def test_another_text_is_no_conversation_id(text):
    assert read_conversation_id(text) is None


def test_the_id_of_a_response_has_conversation_and_turn():
    assert make_response_id(CONVERSATION, TURN) == RESPONSE
    assert read_response_id(RESPONSE) == KEY


@pytest.mark.parametrize("conversation", ["cats", CONVERSATION.upper(), CONVERSATION + "0"])
def test_a_conversation_without_a_uuid_has_no_response_ids(conversation):
    assert make_response_id(conversation, TURN) is None


@pytest.mark.parametrize("text", ["", "resp_1", RESPONSE + "0", RESPONSE[1:], RESPONSE + "\n"])
def test_another_text_is_no_response_id(text):
    assert read_response_id(text) is None


@pytest.mark.parametrize("prefix", ["msg", "fc", "rs_cllm", "ctc"])
@pytest.mark.parametrize("is_input", [False, True])
def test_the_id_of_an_item_has_its_response_and_index(prefix, is_input):
    item_id = make_item_id(prefix, RESPONSE, 12, is_input=is_input)

    assert read_item_id(item_id) == ItemKey(response=KEY, index=12, is_input=is_input)
    assert is_generated_id(item_id)


@pytest.mark.parametrize("text", ["msg_1", "msg_68a1c0ffee", f"msg_{'0' * 64}_x", f"{RESPONSE}_"])
def test_another_text_is_no_item_id(text):
    assert read_item_id(text) is None
    assert not is_generated_id(text)


def test_ids_of_reasoning_in_older_responses_are_generated():
    assert is_generated_id("rs_cllm_1_0")


@pytest.mark.parametrize("provider_id", ["msg_68a1c0ffee", "rs_1", "ws_a_b", "rs_cllm_1_0", "7-x"])
def test_the_id_of_a_relayed_item_has_the_id_of_its_provider(provider_id):
    item_id = make_relayed_id(provider_id, RESPONSE, 3)

    assert item_id.startswith(provider_id.partition("_")[0] if "_" in provider_id else "item_")
    assert read_item_id(item_id) == ItemKey(response=KEY, index=3, is_input=False)
    assert read_provider_id(item_id) == provider_id
    assert not is_generated_id(item_id)


def test_an_id_of_a_provider_stays():
    assert read_provider_id("msg_68a1c0ffee") == "msg_68a1c0ffee"
    assert read_provider_id(make_item_id("msg", RESPONSE, 0)) is None


OTHER = "5f0c3a52-9d6f-4a57-8f53-d7c3e8f1a7aa"
OWN_ID = make_item_id("msg", RESPONSE, 0)
OTHER_ID = make_relayed_id("fc_1", make_response_id(OTHER, TURN) or "", 1)


def make_message(role: Any, *ids: Any) -> Message:
    items = [{"type": "x", "id": item_id} for item_id in ids]
    fields = {"role": role, "content": items} if role != "user" else {"role": role, "id": ids[0]}
    return Message(role=role, dialect="responses", raw=json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], None),
        ([("user", "msg_1"), ("assistant", "msg_2")], None),
        ([("user", "msg_1"), ("assistant", OWN_ID)], CONVERSATION),
        ([("user", make_item_id("msg", RESPONSE, 0, is_input=True))], CONVERSATION),
        ([("assistant", OWN_ID), ("user", "msg_1"), ("assistant", OTHER_ID)], OTHER),
        ([("assistant", OTHER_ID, OWN_ID, "msg_1", None, 1)], CONVERSATION),
        ([("tool", OWN_ID), ("assistant", f"{OWN_ID}x")], CONVERSATION),
        ([("assistant", OWN_ID[:-1] + "9" * 100_000)], None),
    ],
)
def test_the_last_id_of_an_item_names_the_conversation(messages: Any, expected: str | None):
    found = find_item_conversation([make_message(role, *ids) for role, *ids in messages])

    assert found == expected


def test_an_id_in_a_text_names_no_conversation():
    text = json.dumps({"id": OWN_ID})
    raw = json.dumps({"role": "user", "content": [{"type": "input_text", "text": text}]})
    nested = json.dumps({"role": "user", "content": [{"type": "input_text", "id": OWN_ID}]})
    messages = [Message(role="user", dialect="responses", raw=x.encode()) for x in (raw, nested)]

    assert find_item_conversation(messages) is None
