"""What headers ask for."""

import pytest
from starlette.datastructures import Headers

from cllm.server.http.errors import ApiError
from cllm.server.turns.headers import (
    NO_HEADERS,
    START_CONVERSATION,
    STATELESS,
    ContinueConversation,
    RequestHeaders,
    read_turn_headers,
)

ID = "0B9C6A8E-93D8-4E07-9A5E-0A8E6C1B7F11"


def test_without_headers_of_ours_nothing_is_wished():
    assert read_turn_headers(Headers({"content-type": "text/plain"})) is NO_HEADERS
    assert NO_HEADERS.mode is STATELESS


@pytest.mark.parametrize("value", ["", "  ", "null"])
def test_an_empty_conversation_is_a_new_one(value: str):
    assert read_turn_headers(Headers({"x-conversation-id": value})).mode is START_CONVERSATION


def test_a_uuid_is_a_conversation_in_small_letters():
    assert read_turn_headers(Headers({"X-Conversation-ID": ID})).mode == ContinueConversation(
        ID.lower()
    )


def test_a_file_is_a_conversation_in_the_folder():
    wish = read_turn_headers(Headers({"X-Conversation-ID": "files:demo_1"}))

    assert wish.mode == ContinueConversation("demo_1", in_files=True)


@pytest.mark.parametrize("value", ["demo", "files:", "files:../x", ID[:-1], f"{ID}0", "NULL", "0"])
def test_another_conversation_id_is_refused(value: str):
    with pytest.raises(ApiError) as refused:
        read_turn_headers(Headers({"X-Conversation-ID": value}))

    assert refused.value.code == "invalid_conversation_id"


def test_all_wishes_together():
    headers = {
        "X-Conversation-ID": "",
        "X-Provider": " mine ",
        "X-On-Conflict": "Queue",
        "X-CLLM-Strict": "1",
        "Idempotency-Key": "once",
    }

    assert read_turn_headers(Headers(headers)) == RequestHeaders(
        mode=START_CONVERSATION,
        provider="mine",
        on_conflict="queue",
        strict=True,
        idempotency_key="once",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Provider", "a/b"),
        ("X-On-Conflict", "shout"),
        ("X-CLLM-Strict", "maybe"),
        ("Idempotency-Key", "k" * 256),
    ],
)
def test_a_header_that_says_nothing_known_is_refused(name: str, value: str):
    with pytest.raises(ApiError) as refused:
        read_turn_headers(Headers({name: value}))

    assert refused.value.code == "invalid_header"
    assert refused.value.param == name
