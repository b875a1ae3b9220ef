"""The parts of a prompt that are sent to the local model."""

from typing import Any

import msgspec
import pytest

from cllm.core.errors import StrictError, UnsendableError
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.providers.local.client import adapt_prompt

TOOL_PARAMETERS: list[dict[str, Any]] = [
    {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
    {"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "auto"},
    {"functions": [{"name": "look"}], "function_call": "auto"},
    {"toolConfig": {"tools": [{"toolSpec": {"name": "look"}}]}},
]


def prompt(**fields: Any) -> Prompt:
    return Prompt(model="smollm2-135m", **{"messages": (plain_message("user", "Hi."),), **fields})


@pytest.mark.parametrize("parameters", TOOL_PARAMETERS)
def test_tools_that_the_template_cannot_show_are_removed_with_a_notice(parameters: dict[str, Any]):
    request = prompt(parameters={"max_tokens": 5, **parameters})
    adapted, notices = adapt_prompt(request, provider="local", sees_tools=False)

    assert adapted.parameters == {"max_tokens": 5}
    assert [notice.code for notice in notices] == ["tools_left_out"]


@pytest.mark.parametrize("parameters", TOOL_PARAMETERS)
def test_tools_are_sent_to_a_model_with_a_template_for_tools(parameters: dict[str, Any]):
    request = prompt(parameters=parameters)

    assert adapt_prompt(request, provider="local", sees_tools=True) == (request, ())


@pytest.mark.parametrize(
    "parameters",
    [
        {"tools": [], "tool_choice": None},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
        {"functions": [], "function_call": "none"},
        {"toolConfig": {"tools": [], "toolChoice": {"auto": {}}}},
        {"toolConfig": None, "tool_choice": "auto"},
    ],
)
def test_empty_tool_parameters_are_removed_without_a_notice(parameters: dict[str, Any]):
    request = prompt(parameters={"seed": 1, **parameters}, strict=True)
    adapted, notices = adapt_prompt(request, provider="local", sees_tools=False)

    assert (adapted.parameters, notices) == ({"seed": 1}, ())


def test_strict_mode_refuses_tools():
    request = prompt(parameters=TOOL_PARAMETERS[0], strict=True)

    with pytest.raises(StrictError, match="tools"):
        adapt_prompt(request, provider="local", sees_tools=False)


def test_an_image_in_the_last_user_message_is_refused():
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    content = [{"type": "image", "source": source}]
    raw = msgspec.json.encode({"role": "user", "content": content})
    request = prompt(messages=(Message(role="user", raw=raw, dialect="anthropic"),))

    with pytest.raises(UnsendableError, match="text only"):
        adapt_prompt(request, provider="local", sees_tools=True)
