"""The parameters of a request of the Responses API that its stored response repeats.

They are stored with the turn. `instructions` and `prompt` are never among them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cllm.core.conversation import Turn

STORED_PARAMETERS = (
    "background",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
NAMES_CONVERSATION = "conversation"
"""Whether the request named its conversation; a branch has another one."""
MAX_FIELD_BYTES = 16 * 1024
TOOL_FIELDS = ("type", "name")
NUL = b"\\u0000"


def select_parameters(parameters: Mapping[str, Any], *, names_conversation: bool) -> msgspec.Raw:
    """Return the parameters to store, as a JSON object.

    A field of more than MAX_FIELD_BYTES is left out; larger tools have only their types and names.
    """
    selected = {
        name: encoded
        for name in STORED_PARAMETERS
        if parameters.get(name) is not None
        and (encoded := _encode_field(name, parameters[name])) is not None
    }
    if names_conversation:
        selected[NAMES_CONVERSATION] = msgspec.Raw(b"true")
    return msgspec.Raw(msgspec.json.encode(selected))


def _encode_field(name: str, value: Any) -> msgspec.Raw | None:
    encoded = msgspec.json.encode(value)
    if len(encoded) > MAX_FIELD_BYTES and name == "tools":
        encoded = msgspec.json.encode([_shorten_tool(tool) for tool in value])
    # A NUL cannot be stored.
    return None if len(encoded) > MAX_FIELD_BYTES or NUL in encoded else msgspec.Raw(encoded)


def _shorten_tool(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return None
    return {name: tool[name] for name in TOOL_FIELDS if name in tool}


def read_parameters(turn: Turn) -> dict[str, Any] | None:
    """Return the parameters of the request; None if the turn has none, as those of other APIs."""
    stored = msgspec.UNSET if turn.window is None else turn.window.parameters
    if isinstance(stored, msgspec.UnsetType):
        return None
    # An imported file can contain any value.
    fields = msgspec.json.decode(stored)
    if not isinstance(fields, dict):
        return None
    allowed = (*STORED_PARAMETERS, NAMES_CONVERSATION)
    return {name: fields[name] for name in allowed if name in fields}
