"""Legacy functions and `allowed_tools`."""

import json
from typing import Any

import msgspec
import pytest

from cllm.core.message import Message, Text, ToolCall, plain_message
from cllm.core.options import RequestOptions, Tool, ToolChoice
from cllm.core.reply import PartAdded, ReplyEvent, ReplyFinished, TextDelta, ToolCallDelta
from cllm.wire.errors import FieldError
from cllm.wire.openai.fields import FUNCTION_CALL, extra_field
from cllm.wire.openai.functions import (
    FunctionCalls,
    add_call_ids,
    function_calls_to_tool_calls,
    functions_to_tools,
    restrict_to_allowed_tools,
    uses_functions,
)
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


FUNCTION = {"name": "f", "parameters": {}}


def own(role: str, **fields: Any) -> Message:
    said = {"role": role, **fields}
    kind: Any = "tool" if role == "function" else role
    return Message(role=kind, raw=msgspec.json.encode(said))


def called(name: str) -> Message:
    return own("assistant", content=None, function_call={"name": name, "arguments": "{}"})


class TestParameters:
    def test_parameters_without_functions_are_the_same(self):
        parameters = {"temperature": 0, "functions": None}
        assert functions_to_tools(parameters) is parameters

    def test_functions_become_tools_that_are_called_one_at_a_time(self):
        said = functions_to_tools({"functions": [FUNCTION], "function_call": "none"})
        assert said == {
            "tools": [{"type": "function", "function": FUNCTION}],
            "parallel_tool_calls": False,
            "tool_choice": "none",
        }

    def test_functions_that_are_no_list_are_an_error(self):
        with pytest.raises(FieldError, match="functions"):
            functions_to_tools({"functions": {}})


class TestIds:
    ANSWER = own("function", name="f", content="1")

    def test_a_function_answers_under_the_id_of_the_first_call(self):
        messages = [own("assistant", content="x"), self.ANSWER, self.ANSWER]

        said = add_call_ids(messages, lambda _: ["a"])

        assert said[1].json() == {"role": "tool", "tool_call_id": "a", "content": "1"}
        assert said[2] is self.ANSWER

    def test_an_answer_to_a_call_without_an_id_is_the_same(self):
        messages = [called("f"), self.ANSWER]

        assert list(add_call_ids(messages, lambda _: [])) == messages

    def test_messages_without_functions_are_not_looked_into(self):
        messages = [own("assistant", content="x"), own("tool", tool_call_id="a", content="1")]

        assert add_call_ids(messages, lambda _: pytest.fail("looked")) is messages


class TestMessages:
    def test_a_call_and_its_answer_have_one_id_and_the_next_call_another(self):
        answer = own("function", name="f", content="1")
        said = function_calls_to_tool_calls([called("f"), answer, called("f"), answer])
        calls = [message.json()["tool_calls"][0]["id"] for message in said[::2]]
        assert [message.json()["tool_call_id"] for message in said[1::2]] == calls
        assert len(set(calls)) == 2

    @pytest.mark.parametrize(
        "message",
        [
            own("user", content="a function_call"),
            own("assistant", content="x", function_call=None),
            own("function", name="f", content="answers nothing"),
            own("tool", tool_call_id="a", content='of "function"'),
            Message(role="assistant", raw=b'{"function_call":{}}', dialect="anthropic"),
        ],
    )
    def test_every_other_message_is_the_same(self, message):
        assert function_calls_to_tool_calls([message])[0] is message


class TestAllowedTools:
    def options(self, **allowed: Any) -> RequestOptions:
        tools = tuple(Tool(name=name, schema={}) for name in ("f", "g"))
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
        return RequestOptions(tools=tools, extra={"tool_choice": choice, "n": 2})

    def test_only_the_tools_of_the_choice_stay(self):
        allowed = [{"type": "function", "function": {"name": "g"}}, {"type": "odd"}]
        options = restrict_to_allowed_tools(self.options(mode="required", tools=allowed))
        assert [tool.name for tool in options.tools or ()] == ["g"]
        assert options.tool_choice == ToolChoice(kind="any")
        assert options.extra == {"n": 2}

    @pytest.mark.parametrize("allowed", [{}, {"tools": {}}, {"tools": [], "mode": "odd"}])
    def test_a_choice_that_cannot_be_read_is_an_error(self, allowed):
        with pytest.raises(FieldError, match=r"tool_choice\.allowed_tools"):
            restrict_to_allowed_tools(self.options(**allowed))

    def test_another_choice_is_the_same(self):
        options = RequestOptions(extra={"tool_choice": {"type": "custom"}})
        assert restrict_to_allowed_tools(options) is options
