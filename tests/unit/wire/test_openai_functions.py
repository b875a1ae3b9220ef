"""A client that offered functions is answered with a call of a function, whoever made the call."""

import json
from typing import Any

import pytest

from cllm.core.message import Message, Text, ToolCall, plain_message
from cllm.core.reply import PartAdded, ReplyEvent, ReplyFinished, TextDelta, ToolCallDelta
from cllm.wire.openai.fields import FUNCTION_CALL, extra_field
from cllm.wire.openai.functions import FunctionCalls, uses_functions
from cllm.wire.openai.response_encoder import OpenAIStreamEncoder, encode_answer, encode_reply

BEGUN = ToolCallDelta(index=0, id="toolu_1", name="find", arguments="")
FINISHED = ReplyFinished(message=plain_message("assistant", ""), stop_reason="tool_calls")
CALL = ToolCall(id="toolu_1", name="find", arguments='{"a":1}')


def told(*events: ReplyEvent) -> list[dict[str, Any]]:
    """The choices in the chunks of a stream."""
    calls = FunctionCalls()
    encoder = OpenAIStreamEncoder(model="m", id="x", created=7)
    sent = b"".join(encoder.encode(out) for event in events for out in calls.convert(event))
    datas = sent.decode().replace("data: ", "").split("\n\n")
    return [json.loads(data)["choices"][0] for data in datas if data.startswith("{")]


def joined(choices: list[dict[str, Any]]) -> dict[str, str]:
    """The call that a client puts together from its pieces."""
    call = {"name": "", "arguments": ""}
    for choice in choices:
        for name, piece in choice["delta"].get("function_call", {}).items():
            call[name] += piece
    return call


def test_a_streamed_call_of_a_tool_is_one_of_a_function():
    more = [ToolCallDelta(index=0, arguments=piece) for piece in ('{"a"', ":1}")]

    choices = told(TextDelta(text="Let me look."), BEGUN, *more, FINISHED)

    assert joined(choices) == {"name": "find", "arguments": '{"a":1}'}
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    assert choices[-1]["finish_reason"] == "function_call"


def test_a_name_that_is_given_again_is_said_once():
    again = ToolCallDelta(index=0, id="toolu_1", name="find", arguments="{}")

    assert joined(told(BEGUN, again, FINISHED)) == {"name": "find", "arguments": "{}"}


def test_a_call_without_arguments_has_empty_ones():
    assert joined(told(BEGUN, FINISHED)) == {"name": "find", "arguments": "{}"}


def test_a_call_that_came_whole_is_told_whole():
    call = joined(told(PartAdded(part=CALL), FINISHED))

    assert call == {"name": "find", "arguments": '{"a":1}'}


def test_only_the_first_call_can_be_told():
    other = ToolCallDelta(index=1, id="toolu_2", name="other", arguments="{}")

    assert joined(told(BEGUN, other, FINISHED)) == {"name": "find", "arguments": "{}"}


def test_a_call_of_a_function_goes_by_as_it_came():
    came = extra_field(FUNCTION_CALL, {"name": "find", "arguments": "{}"})

    assert list(FunctionCalls().convert(came)) == [came]


def test_an_answer_without_a_call_is_as_for_everybody():
    ended = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason="end")

    choices = told(TextDelta(text="Hi"), ended)

    assert choices[0]["delta"] == {"role": "assistant", "content": "Hi"}
    assert choices[-1]["finish_reason"] == "stop"


def test_a_whole_answer_has_the_first_call_as_one_of_a_function():
    message = Message(role="assistant", raw=b"{}", dialect="anthropic")
    finished = ReplyFinished(message=message, stop_reason="tool_calls")

    body = encode_reply(finished, parts=(Text(text="So."), CALL, CALL), functions=True)

    (choice,) = json.loads(body)["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"] == {
        "role": "assistant",
        "content": "So.",
        "refusal": None,
        "function_call": {"name": "find", "arguments": '{"a":1}'},
    }


def test_a_whole_answer_that_was_cut_off_does_not_say_that_it_is_a_call():
    said: dict[str, Any] = {"usage": None, "model": "m", "id": "x", "created": 7}
    body = encode_answer((CALL,), stop_reason="length", functions=True, **said)

    (choice,) = json.loads(body)["choices"]

    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("parameters", "asks"),
    [
        ({"functions": [{"name": "find"}]}, True),
        ({"functions": []}, False),
        ({"functions": None}, False),
        ({"functions": [{"name": "find"}], "tools": [{"type": "function"}]}, False),
        ({}, False),
    ],
)
def test_functions_without_tools_are_what_such_a_client_offers(parameters, asks):
    assert uses_functions(parameters) is asks
