"""How Anthropic's clients are answered, event by event."""

import json
from itertools import count

from cllm.core.errors import ErrorReport
from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, TextDelta, Usage, Verbatim
from cllm.server.api.messages import AnthropicResponseEncoder

numbers = count(1)
FINISHED = ReplyFinished(
    message=plain_message("assistant", "Hi"), stop_reason="end", usage=Usage(input=3, output=2)
)


def encoder() -> AnthropicResponseEncoder:
    return AnthropicResponseEncoder(model="claude-test", new_id=lambda: str(next(numbers)))


def came(text: bytes, *, closes: bool = False) -> Verbatim:
    return Verbatim(dialect="anthropic", data=text, closes=closes)


def test_what_came_in_anthropics_words_is_not_said_twice():
    encoding = encoder()

    assert encoding.encode_event(came(b"one")) == b"one"
    assert encoding.encode_event(TextDelta(text="Hi")) == b""


def test_the_end_waits_until_the_turn_is_over():
    encoding = encoder()
    encoding.encode_event(came(b"one"))

    assert encoding.encode_event(came(b"delta", closes=True)) == b""
    assert encoding.encode_event(came(b"stop", closes=True)) == b""
    assert encoding.encode_event(FINISHED) == b"deltastop"


def test_another_providers_answer_is_the_same_sequence_of_events():
    encoding = encoder()
    said = encoding.encode_event(TextDelta(text="Hi")) + encoding.encode_event(FINISHED)

    names = [line[7:] for line in said.decode().splitlines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_a_whole_answer_of_another_provider_is_a_message():
    told = json.loads(encoder().encode_response(FINISHED))

    assert told["type"] == "message"
    assert told["id"].startswith("msg_")
    assert told["content"] == [{"type": "text", "text": "Hi"}]
    assert (told["usage"]["input_tokens"], told["usage"]["output_tokens"]) == (3, 2)


def test_a_stream_that_fails_ends_in_an_error_event():
    said = encoder().encode_error(ErrorReport(status=529, code="upstream_error", message="Later."))

    assert said.startswith(b"event: error\ndata: ")
    assert json.loads(said.split(b"data: ")[1]) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Later."},
    }
