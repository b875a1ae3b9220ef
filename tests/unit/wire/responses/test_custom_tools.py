"""Custom tools as functions."""

from typing import Any

import pytest

from cllm.core.options import ForeignTool, Tool
from cllm.wire.responses.custom_tools import (
    SCHEMA,
    decode_input,
    encode_arguments,
    find_custom_names,
    to_function,
)


def custom(**fields: Any) -> ForeignTool:
    raw = {"type": "custom", "custom": {"name": "patch", **fields}}
    return ForeignTool(dialect="openai", name="patch", raw=raw)


def test_a_custom_tool_is_a_function_with_one_text():
    assert to_function(custom(description="Change a file.")) == Tool(
        name="patch", description="Change a file.", schema=SCHEMA
    )
    assert to_function(custom()) == Tool(name="patch", description=None, schema=SCHEMA)


def test_the_grammar_is_part_of_the_description():
    grammar = {"syntax": "lark", "definition": "start: WORD"}
    tool = to_function(
        custom(description="Change.", format={"type": "grammar", "grammar": grammar})
    )

    assert isinstance(tool, Tool)
    assert tool.description == ("Change.\n\nThe input must match this grammar (lark):\nstart: WORD")
    assert to_function(custom(format={"type": "text"})) == to_function(custom())


def test_other_tools_are_unchanged():
    for tool in (
        Tool(name="look", schema={}),
        ForeignTool(dialect="responses", name="web_search", raw={"type": "web_search"}),
    ):
        assert to_function(tool) is tool


@pytest.mark.parametrize("text", ["", "-a\n+b", '{"input": "nested"}', "äöü"])
def test_the_input_is_restored(text):
    assert decode_input(encode_arguments(text)) == text


@pytest.mark.parametrize("arguments", ["", "plain", "{}", "[1]", '{"input": 7}', '{"input'])
def test_arguments_of_another_form_are_the_input(arguments):
    assert decode_input(arguments) == arguments


def test_the_names_of_custom_tools():
    tools = [{"type": "custom", "name": "a"}, {"type": "function", "name": "b"}, 7]

    assert find_custom_names({"tools": tools}) == {"a"}
    assert find_custom_names({}) == frozenset()
