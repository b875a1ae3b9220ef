"""The response encoder of Anthropic's protocol."""

import json
from itertools import count

from cllm.core.errors import ErrorReport
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyFinished, TextDelta, Usage, Verbatim
from cllm.engine.request import TurnStarted
from cllm.server.api.messages import AnthropicResponseEncoder

numbers = count(1)
FINISHED = ReplyFinished(
    message=plain_message("assistant", "Hi"), stop_reason="end", usage=Usage(input=3, output=2)
)


def make_encoder() -> AnthropicResponseEncoder:
    return AnthropicResponseEncoder(model="claude-test", new_id=lambda: str(next(numbers)))


def verbatim(text: bytes, *, closes: bool = False) -> Verbatim:
    return Verbatim(dialect="anthropic", data=text, closes=closes)


def test_verbatim_events_are_not_encoded_again():
    encoder = make_encoder()

    assert encoder.encode_event(verbatim(b"one")) == b"one"
    assert encoder.encode_event(TextDelta(text="Hi")) == b""


def test_the_last_events_wait_for_the_end_of_the_turn():
    encoder = make_encoder()
    encoder.encode_event(verbatim(b"one"))

    assert encoder.encode_event(verbatim(b"delta", closes=True)) == b""
    assert encoder.encode_event(verbatim(b"stop", closes=True)) == b""
    assert encoder.encode_event(FINISHED) == b"deltastop"


def test_a_reply_of_another_provider_has_the_same_sequence_of_events():
    encoder = make_encoder()
    events = encoder.encode_event(TextDelta(text="Hi")) + encoder.encode_event(FINISHED)

    names = [line[7:] for line in events.decode().splitlines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_first_event_has_an_estimate_of_the_input_tokens():
    encoder = make_encoder()
    messages = (plain_message("user", "Name three rivers in Norway."),)
    prompt = Prompt(model="gpt-test", messages=messages, parameters={"tools": [{"name": "f"}]})
    encoder.start(TurnStarted(conversation=None, model="openai/gpt-test", prompt=prompt))

    start, *_, end, _ = [
        json.loads(line[6:])
        for event in (TextDelta(text="Hi"), FINISHED)
        for line in encoder.encode_event(event).decode().splitlines()
        if line.startswith("data: ")
    ]

    assert 5 < start["message"]["usage"]["input_tokens"] < 30
    assert end["usage"]["input_tokens"] == 3


def test_a_whole_reply_of_another_provider_is_a_message():
    message = json.loads(make_encoder().encode_response(FINISHED))

    assert message["type"] == "message"
    assert message["id"].startswith("msg_")
    assert message["content"] == [{"type": "text", "text": "Hi"}]
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (3, 2)


def test_a_stream_that_fails_ends_in_an_error_event():
    events = make_encoder().encode_error(
        ErrorReport(status=529, code="upstream_error", message="Later.")
    )

    assert events.startswith(b"event: error\ndata: ")
    assert json.loads(events.split(b"data: ")[1]) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Later."},
    }
