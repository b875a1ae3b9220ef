"""The parameters of the Responses API, and its encoder."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.fake_responses import make_response, message_item

from cllm.core.errors import ErrorReport
from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, TextDelta, Verbatim
from cllm.server.api.responses import (
    ResponseOptions,
    ResponsesEncoder,
    choose_mode,
    remove_state_fields,
)
from cllm.server.http.errors import ApiError
from cllm.server.turns.headers import (
    FIND_CONVERSATION,
    NO_HEADERS,
    START_CONVERSATION,
    STATELESS,
    ContinueConversation,
    ContinueResponse,
    RequestHeaders,
)
from cllm.wire.messages import convert
from cllm.wire.responses.ids import ResponseKey
from cllm.wire.responses.passthrough import encode_frame
from cllm.wire.responses.request import decode_request
from cllm.wire.sse import SseDecoder

UUID = "0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11"
TURN = "34364889-f9dc-4fe9-bd9e-3186a8777205"
RESPONSE = f"resp_{UUID}{TURN}".replace("-", "")


def request_of(**fields: Any):
    prompt = decode_request(msgspec.json.encode({"model": "m", "input": "Hello.", **fields}))
    return prompt, convert(prompt.parameters, ResponseOptions)


def mode_of(headers: RequestHeaders = NO_HEADERS, **fields: Any) -> Any:
    prompt, options = request_of(**fields)
    return choose_mode(headers, options, prompt).mode


def test_a_stored_response_starts_a_conversation():
    assert mode_of() == START_CONVERSATION
    assert mode_of(store=None) == START_CONVERSATION
    assert mode_of(store=False) == STATELESS


def test_a_whole_history_is_looked_for():
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    assert mode_of(input=items) == FIND_CONVERSATION


def test_the_header_selects_the_conversation():
    headers = RequestHeaders(mode=ContinueConversation(UUID))

    assert mode_of(headers) == headers.mode
    assert mode_of(headers, store=False) == headers.mode


@pytest.mark.parametrize(
    "conversation", [UUID, {"id": UUID}, f"conv_{UUID}", f"conv_{UUID.replace('-', '')}"]
)
def test_the_conversation_of_the_body(conversation: Any):
    assert mode_of(conversation=conversation) == ContinueConversation(UUID)


def test_a_previous_response():
    key = ResponseKey(conversation=UUID, turn=TURN)

    assert mode_of(previous_response_id=RESPONSE) == ContinueResponse(response=key)
    assert mode_of(previous_response_id=RESPONSE, store=False, truncation="auto") == (
        ContinueResponse(response=key, saves=False, truncates=True)
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": RESPONSE, "conversation": UUID}, "previous_response_id"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": "not valid!"}, "conversation"),
    ],
)
def test_contradictions(fields: Any, param: str):
    with pytest.raises(ApiError) as error:
        mode_of(**fields)

    assert (error.value.status, error.value.param) == (400, param)


def test_a_header_and_a_conversation_in_the_body():
    headers = RequestHeaders(mode=START_CONVERSATION)

    for fields in ({"conversation": UUID}, {"previous_response_id": RESPONSE}):
        with pytest.raises(ApiError):
            mode_of(headers, **fields)


def test_a_stateless_request_is_unchanged():
    prompt, _ = request_of(store=False, background=False, temperature=1)

    assert remove_state_fields(prompt) is prompt


def test_the_provider_gets_no_state():
    prompt, _ = request_of(store=True, previous_response_id=RESPONSE, top_p=1)

    sent = remove_state_fields(prompt)

    assert sent.parameters == {"top_p": 1}
    assert sent.original is None


def make_encoder(**parameters: Any) -> ResponsesEncoder:
    return ResponsesEncoder(
        model="m",
        parameters=parameters,
        new_id=lambda: UUID,
        clock=lambda: datetime(2026, 11, 16, tzinfo=UTC),
    )


FINISHED = ReplyFinished(message=plain_message("assistant", "Hello."), stop_reason="end")


def test_a_response_that_is_not_saved_has_a_random_id():
    response = msgspec.json.decode(make_encoder().encode_response(FINISHED))

    assert response["id"] == f"resp_{UUID}{UUID}".replace("-", "")


def test_stored_bytes_have_no_instructions():
    encoder = make_encoder(instructions='Say "ahoy"\n')

    live = encoder.encode_response(FINISHED)

    assert msgspec.json.decode(live)["instructions"] == 'Say "ahoy"\n'
    stored = msgspec.json.decode(encoder.redact(live))
    assert stored["instructions"] is None
    assert stored["output"] == msgspec.json.decode(live)["output"]


def test_the_stored_stream_has_no_instructions():
    encoder = make_encoder(instructions="Ahoy.")
    data = encoder.encode_event(TextDelta(text="Hello."))
    data += encoder.encode_event(FINISHED)

    assert data.count(b'"Ahoy."') == 3
    assert b"Ahoy" not in encoder.redact(data)


def test_a_relayed_response_has_the_fields_of_the_server():
    upstream = make_response(message_item("Hello.", item_id="msg_own"))
    upstream["instructions"] = "The prefix of the operator."
    event = {"type": "response.completed", "response": upstream, "sequence_number": 0}
    frame = encode_frame("response.completed", msgspec.json.encode(event))
    encoder = make_encoder(store=True)

    assert encoder.encode_event(Verbatim(dialect="responses", data=frame, closes=True)) == b""
    assert encoder.encode_event(TextDelta(text="Hello.")) == b""
    data = encoder.encode_event(FINISHED)

    response = msgspec.json.decode(data.partition(b"data: ")[2])["response"]
    assert response["id"].startswith("resp_0d9e")
    assert (response["instructions"], response["store"]) == (None, True)
    assert response["output"][0]["id"].endswith("_0_msg_own")


def test_the_error_of_a_relayed_stream_continues_its_numbers():
    encoder = make_encoder()
    frame = encode_frame("response.created", b'{"type":"response.created","response":{}}')
    encoder.encode_event(Verbatim(dialect="responses", data=frame))

    error = encoder.encode_error(ErrorReport(status=429, code="rate_limited", message="Wait."))

    first, second = error.decode().strip().split("\n\n")
    assert '"sequence_number":1' in first
    assert '"code":"rate_limit_exceeded"' in second


def test_an_error_replaces_the_end_of_a_reply_that_cannot_be_saved():
    encoder = make_encoder()
    first = encoder.encode_event(TextDelta(text="Hi.", index=0))
    end = encoder.encode_event(
        ReplyFinished(message=plain_message("assistant", "Hi."), stop_reason="end")
    )

    error = encoder.encode_error(ErrorReport(status=503, code="down", message="Down."))

    numbers = [
        [msgspec.json.decode(event.data)["sequence_number"] for event in SseDecoder().feed(data)]
        for data in (first, end, error)
    ]
    assert numbers[1][0] == numbers[2][0] == numbers[0][-1] + 1
    assert len(numbers[2]) == 2
