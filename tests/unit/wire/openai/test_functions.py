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


def encode_events(*events: ReplyEvent) -> list[dict[str, Any]]:
    """The choices in the chunks of a stream."""
    calls = FunctionCalls()
    encoder = OpenAIStreamEncoder(model="m", id="x", created=7)
    sent = b"".join(encoder.encode(out) for event in events for out in calls.convert(event))
    datas = sent.decode().replace("data: ", "").split("\n\n")
    return [json.loads(data)["choices"][0] for data in datas if data.startswith("{")]


def join_call(choices: list[dict[str, Any]]) -> dict[str, str]:
    """The call that a client puts together from its pieces."""
    call = {"name": "", "arguments": ""}
    for choice in choices:
        for name, piece in choice["delta"].get("function_call", {}).items():
            call[name] += piece
    return call


def test_a_streamed_tool_call_becomes_a_function_call():
    more = [ToolCallDelta(index=0, arguments=piece) for piece in ('{"a"', ":1}")]

    choices = encode_events(TextDelta(text="Let me look."), BEGUN, *more, FINISHED)

    assert join_call(choices) == {"name": "find", "arguments": '{"a":1}'}
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    assert choices[-1]["finish_reason"] == "function_call"


def test_a_repeated_name_is_sent_once():
    again = ToolCallDelta(index=0, id="toolu_1", name="find", arguments="{}")

    assert join_call(encode_events(BEGUN, again, FINISHED)) == {"name": "find", "arguments": "{}"}


def test_a_call_without_arguments_has_an_empty_object():
    assert join_call(encode_events(BEGUN, FINISHED)) == {"name": "find", "arguments": "{}"}


def test_a_whole_tool_call_becomes_a_whole_function_call():
    call = join_call(encode_events(PartAdded(part=CALL), FINISHED))

    assert call == {"name": "find", "arguments": '{"a":1}'}


def test_only_the_first_call_is_sent():
    other = ToolCallDelta(index=1, id="toolu_2", name="other", arguments="{}")

    assert join_call(encode_events(BEGUN, other, FINISHED)) == {"name": "find", "arguments": "{}"}


def test_a_function_call_is_unchanged():
    came = extra_field(FUNCTION_CALL, {"name": "find", "arguments": "{}"})

    assert list(FunctionCalls().convert(came)) == [came]


def test_an_answer_without_a_call_is_unchanged():
    ended = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason="end")

    choices = encode_events(TextDelta(text="Hi"), ended)

    assert choices[0]["delta"] == {"role": "assistant", "content": "Hi"}
    assert choices[-1]["finish_reason"] == "stop"


def test_a_whole_answer_has_the_first_call_as_function_call():
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


def test_a_truncated_answer_has_no_function_call_finish_reason():
    result: dict[str, Any] = {"usage": None, "model": "m", "id": "x", "created": 7}
    body = encode_answer((CALL,), stop_reason="length", functions=True, **result)

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
def test_a_request_with_functions_and_no_tools_uses_functions(parameters, asks):
    assert uses_functions(parameters) is asks


FUNCTION = {"name": "f", "parameters": {}}


def own(role: str, **fields: Any) -> Message:
    result = {"role": role, **fields}
    kind: Any = "tool" if role == "function" else role
    return Message(role=kind, raw=msgspec.json.encode(result))


def function_call(name: str) -> Message:
    return own("assistant", content=None, function_call={"name": name, "arguments": "{}"})


class TestParameters:
    def test_parameters_without_functions_are_unchanged(self):
        parameters = {"temperature": 0, "functions": None}
        assert functions_to_tools(parameters) is parameters

    def test_functions_become_tools_without_parallel_calls(self):
        result = functions_to_tools({"functions": [FUNCTION], "function_call": "none"})
        assert result == {
            "tools": [{"type": "function", "function": FUNCTION}],
            "parallel_tool_calls": False,
            "tool_choice": "none",
        }

    def test_functions_must_be_a_list(self):
        with pytest.raises(FieldError, match="functions"):
            functions_to_tools({"functions": {}})


class TestIds:
    ANSWER = own("function", name="f", content="1")

    def test_a_function_result_gets_the_id_of_the_first_call(self):
        messages = [own("assistant", content="x"), self.ANSWER, self.ANSWER]

        result = add_call_ids(messages, lambda _: ["a"])

        assert result[1].json() == {"role": "tool", "tool_call_id": "a", "content": "1"}
        assert result[2] is self.ANSWER

    def test_a_result_of_a_call_without_an_id_is_unchanged(self):
        messages = [function_call("f"), self.ANSWER]

        assert list(add_call_ids(messages, lambda _: [])) == messages

    def test_messages_without_functions_are_not_decoded(self):
        messages = [own("assistant", content="x"), own("tool", tool_call_id="a", content="1")]

        assert add_call_ids(messages, lambda _: pytest.fail("looked")) is messages


class TestMessages:
    def test_a_call_and_its_result_share_an_id(self):
        answer = own("function", name="f", content="1")
        result = function_calls_to_tool_calls(
            [function_call("f"), answer, function_call("f"), answer]
        )
        calls = [message.json()["tool_calls"][0]["id"] for message in result[::2]]
        assert [message.json()["tool_call_id"] for message in result[1::2]] == calls
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
    def test_other_messages_are_unchanged(self, message):
        assert function_calls_to_tool_calls([message])[0] is message


class TestAllowedTools:
    def options(self, **allowed: Any) -> RequestOptions:
        tools = tuple(Tool(name=name, schema={}) for name in ("f", "g"))
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
        return RequestOptions(tools=tools, extra={"tool_choice": choice, "n": 2})

    def test_only_the_allowed_tools_are_sent(self):
        allowed = [{"type": "function", "function": {"name": "g"}}, {"type": "odd"}]
        options = restrict_to_allowed_tools(self.options(mode="required", tools=allowed))
        assert [tool.name for tool in options.tools or ()] == ["g"]
        assert options.tool_choice == ToolChoice(kind="any")
        assert options.extra == {"n": 2}

    @pytest.mark.parametrize("allowed", [{}, {"tools": {}}, {"tools": [], "mode": "odd"}])
    def test_an_invalid_choice_is_an_error(self, allowed):
        with pytest.raises(FieldError, match=r"tool_choice\.allowed_tools"):
            restrict_to_allowed_tools(self.options(**allowed))

    def test_another_choice_is_unchanged(self):
        options = RequestOptions(extra={"tool_choice": {"type": "custom"}})
        assert restrict_to_allowed_tools(options) is options
