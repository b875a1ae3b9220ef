"""What the local model is shown of a prompt."""

from typing import Any

import msgspec
import pytest

from cllm.core.errors import StrictError, UnsendableError
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.providers.local.client import adapt_prompt

ABOUT_TOOLS: list[dict[str, Any]] = [
    {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
    {"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "auto"},
    {"functions": [{"name": "look"}], "function_call": "auto"},
    {"toolConfig": {"tools": [{"toolSpec": {"name": "look"}}]}},
]


def prompt(**fields: Any) -> Prompt:
    return Prompt(model="smollm2-135m", **{"messages": (plain_message("user", "Hi."),), **fields})


@pytest.mark.parametrize("parameters", ABOUT_TOOLS)
def test_tools_that_are_not_shown_are_left_out_and_told(parameters: dict[str, Any]):
    asked = prompt(parameters={"max_tokens": 5, **parameters})
    shown, notices = adapt_prompt(asked, provider="local", sees_tools=False)

    assert shown.parameters == {"max_tokens": 5}
    assert [notice.code for notice in notices] == ["tools_left_out"]


@pytest.mark.parametrize("parameters", ABOUT_TOOLS)
def test_a_model_with_a_template_for_tools_is_given_them(parameters: dict[str, Any]):
    asked = prompt(parameters=parameters)

    assert adapt_prompt(asked, provider="local", sees_tools=True) == (asked, ())


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
def test_no_tools_are_nothing_to_tell(parameters: dict[str, Any]):
    asked = prompt(parameters={"seed": 1, **parameters}, strict=True)
    shown, notices = adapt_prompt(asked, provider="local", sees_tools=False)

    assert (shown.parameters, notices) == ({"seed": 1}, ())


def test_in_strict_mode_tools_are_refused():
    asked = prompt(parameters=ABOUT_TOOLS[0], strict=True)

    with pytest.raises(StrictError, match="tools"):
        adapt_prompt(asked, provider="local", sees_tools=False)


def test_an_image_that_is_asked_about_is_refused():
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    content = [{"type": "image", "source": source}]
    raw = msgspec.json.encode({"role": "user", "content": content})
    asked = prompt(messages=(Message(role="user", raw=raw, dialect="anthropic"),))

    with pytest.raises(UnsendableError, match="text only"):
        adapt_prompt(asked, provider="local", sees_tools=True)
