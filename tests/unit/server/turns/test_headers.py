"""The request headers that control a turn."""

import pytest
from starlette.datastructures import Headers

from cllm.server.http.errors import ApiError
from cllm.server.turns.headers import (
    FIND_CONVERSATION,
    NO_HEADERS,
    START_CONVERSATION,
    STATELESS,
    ContinueConversation,
    RequestHeaders,
    read_turn_headers,
)

ID = "0B9C6A8E-93D8-4E07-9A5E-0A8E6C1B7F11"


def test_a_request_without_our_headers_is_stateless():
    assert read_turn_headers(Headers({"content-type": "text/plain"})) is NO_HEADERS
    assert NO_HEADERS.mode is STATELESS


@pytest.mark.parametrize("value", ["", "  ", "null"])
def test_an_empty_id_starts_a_conversation(value: str):
    assert read_turn_headers(Headers({"x-conversation-id": value})).mode is START_CONVERSATION


def test_a_uuid_continues_a_conversation_and_is_lower_cased():
    assert read_turn_headers(Headers({"X-Conversation-ID": ID})).mode == ContinueConversation(
        ID.lower()
    )


def test_a_name_continues_or_creates_a_conversation():
    headers = read_turn_headers(Headers({"X-Conversation-ID": "cats_1"}))

    assert headers.mode == ContinueConversation("cats_1", is_name=True)


def test_auto_finds_the_conversation():
    assert read_turn_headers(Headers({"X-Conversation-ID": "auto"})).mode == FIND_CONVERSATION


@pytest.mark.parametrize("value", ["auto", "Full", "append"])
def test_the_history_header_has_three_values(value: str):
    assert read_turn_headers(Headers({"X-CLLM-History": value})).history == value.lower()


def test_an_unknown_history_mode_is_rejected():
    with pytest.raises(ApiError) as raised:
        read_turn_headers(Headers({"X-CLLM-History": "some"}))

    assert raised.value.code == "invalid_header"


def test_a_files_id_continues_a_conversation_file():
    headers = read_turn_headers(Headers({"X-Conversation-ID": "files:demo_1"}))

    assert headers.mode == ContinueConversation("demo_1", in_files=True)


@pytest.mark.parametrize(
    "value", ["files:", "files:../x", "../x", ID[:-1], f"{ID}0", "NULL", "Auto", "search"]
)
def test_an_invalid_conversation_id_is_rejected(value: str):
    with pytest.raises(ApiError) as raised:
        read_turn_headers(Headers({"X-Conversation-ID": value}))

    assert raised.value.code == "invalid_conversation_id"


@pytest.mark.parametrize(("value", "codes"), [("auto", ["header_ignored"]), ("passthrough", [])])
def test_a_routing_mode_that_does_not_exist_is_named_in_a_notice(value: str, codes: list[str]):
    notices = read_turn_headers(Headers({"X-Routing-Mode": value})).notices

    assert [notice.code for notice in notices] == codes


def test_all_headers_together():
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
def test_an_invalid_value_is_rejected(name: str, value: str):
    with pytest.raises(ApiError) as raised:
        read_turn_headers(Headers({name: value}))

    assert raised.value.code == "invalid_header"
    assert raised.value.param == name
