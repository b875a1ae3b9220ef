"""Forms that only OpenAI has, in those that every protocol has."""

from typing import Any

import msgspec
import pytest

from cllm.core.message import Message
from cllm.core.options import RequestOptions, Tool, ToolChoice
from cllm.wire.errors import FieldError
from cllm.wire.openai.functions import (
    add_call_ids,
    function_calls_to_tool_calls,
    functions_to_tools,
    restrict_to_allowed_tools,
)

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
