"""Custom tools, whose input is plain text, for protocols that have only functions.

A custom tool becomes a function with one text argument, and a call of that function a custom call.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cllm.core.options import AnyTool, ForeignTool, Tool

CUSTOM = "custom"
CALL = "custom_tool_call"
OUTPUT = "custom_tool_call_output"
ARGUMENT = "input"
SCHEMA = {
    "type": "object",
    "properties": {ARGUMENT: {"type": "string", "description": "The input of the tool."}},
    "required": [ARGUMENT],
    "additionalProperties": False,
}


def to_function(tool: AnyTool) -> AnyTool:
    """Return a custom tool as a function; other tools are unchanged."""
    if not isinstance(tool, ForeignTool) or tool.raw.get("type") != CUSTOM:
        return tool
    fields = tool.raw.get(CUSTOM)
    fields = fields if isinstance(fields, dict) else {}
    texts = (fields.get("description"), _describe_format(fields.get("format")))
    description = "\n\n".join(text for text in texts if isinstance(text, str) and text)
    return Tool(name=tool.name, description=description or None, schema=SCHEMA)


def _describe_format(value: Any) -> str | None:
    """Return the grammar of the input as text."""
    inner = value.get("grammar") if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("definition"), str):
        return None
    syntax = inner.get("syntax") or "a"
    return f"The input must match this grammar ({syntax}):\n{inner['definition']}"


def find_custom_names(parameters: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the custom tools in a request."""
    tools = parameters.get("tools")
    if not isinstance(tools, list):
        return frozenset()
    return frozenset(
        str(tool.get("name"))
        for tool in tools
        if isinstance(tool, dict) and tool.get("type") == CUSTOM
    )


def encode_arguments(text: str) -> str:
    return msgspec.json.encode({ARGUMENT: text}).decode()


def decode_input(arguments: str) -> str:
    """Return the input of a custom call; arguments of another form are the input themselves."""
    try:
        fields = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    text = fields.get(ARGUMENT) if isinstance(fields, dict) else None
    return text if isinstance(text, str) else arguments
