"""Converts features that only OpenAI has: legacy functions and `allowed_tools`.

Legacy functions become tools with ids; `allowed_tools` becomes a list of these tools alone.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from cllm.core.message import Message, ToolCall
from cllm.core.options import ForeignTool, RequestOptions, Tool, ToolChoice, ToolChoiceKind
from cllm.core.reply import PartAdded, ReplyEvent, ReplyFinished, ToolCallDelta
from cllm.wire.errors import FieldError
from cllm.wire.openai.fields import FUNCTION_CALL, extra_field

Fields = dict[str, Any]
CALL_ID = b'"tool_call_id"'
FUNCTION_CALL_KEY = b'"function_call"'
FUNCTION_ROLE = b'"function"'
MODES: dict[str, ToolChoiceKind] = {"auto": "auto", "required": "any"}


def functions_to_tools(parameters: Fields) -> Fields:
    """Replace legacy functions in OpenAI parameters by tools."""
    functions = parameters.get("functions")
    choice = parameters.get("function_call")
    if functions is None and choice is None:
        return parameters
    result = {k: v for k, v in parameters.items() if k not in ("functions", "function_call")}
    if functions is not None:
        if not isinstance(functions, list):
            raise FieldError("functions", "must be a list of functions")
        tools = [{"type": "function", "function": function} for function in functions]
        result["tools"] = [*(result.get("tools") or ()), *tools]
        # Function results have no ids, so only one call at a time.
        result.setdefault("parallel_tool_calls", False)
    if choice is not None and result.get("tool_choice") is None:
        is_named = isinstance(choice, dict)
        result["tool_choice"] = {"type": "function", "function": choice} if is_named else choice
    return result


def function_calls_to_tool_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Replace legacy function calls in messages by tool calls with ids."""
    result: list[Message] = []
    open_call = ""
    for index, message in enumerate(messages):
        if message.dialect != "openai":
            result.append(message)
        elif message.role == "assistant" and FUNCTION_CALL_KEY in message.raw:
            modern, open_call = _to_tool_call(message, f"call_{index}")
            result.append(modern)
        elif open_call and message.role == "tool" and FUNCTION_ROLE in message.raw:
            result.append(_to_tool_result(message, open_call))
            open_call = ""
        else:
            result.append(message)
    return tuple(result)


def has_function_results(messages: Sequence[Message]) -> bool:
    """Whether a message is the result of a legacy function, which has no call id."""
    return any(
        message.role == "tool"
        and CALL_ID not in message.raw
        and message.json().get("role") == "function"
        for message in messages
    )


def add_call_ids(
    messages: Sequence[Message], calls_of: Callable[[Message], Sequence[str]]
) -> Sequence[Message]:
    """Add to function results the ids of the tool calls they answer.

    A client that supports functions only sends such results for a provider's tool calls.
    `calls_of` returns the ids of the calls in a message.
    """
    if not has_function_results(messages):
        return messages
    result: list[Message] = []
    pending: deque[str] = deque()
    for message in messages:
        if message.role == "assistant":
            pending = deque(calls_of(message))
        is_answer = pending and message.dialect == "openai" and message.role == "tool"
        converted = _to_tool_result(message, pending[0]) if is_answer else message
        if converted is not message:
            pending.popleft()
        result.append(converted)
    return result


def _to_tool_call(message: Message, call_id: str) -> tuple[Message, str]:
    fields: Fields = msgspec.json.decode(message.raw)
    call = fields.pop("function_call", None)
    if not isinstance(call, dict) or fields.get("tool_calls"):
        return message, ""
    fields["tool_calls"] = [{"id": call_id, "type": "function", "function": call}]
    return Message(role="assistant", raw=msgspec.json.encode(fields)), call_id


def _to_tool_result(message: Message, call_id: str) -> Message:
    fields: Fields = msgspec.json.decode(message.raw)
    if fields.get("role") != "function":
        return message
    modern = {"role": "tool", "tool_call_id": call_id, "content": fields.get("content")}
    return Message(role="tool", raw=msgspec.json.encode(modern))


def restrict_to_allowed_tools(options: RequestOptions) -> RequestOptions:
    """Return the options with only the tools that `allowed_tools` lists."""
    choice = options.extra.get("tool_choice")
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return options
    allowed = choice.get("allowed_tools")
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(allowed, dict) or not isinstance(tools, list):
        raise FieldError("tool_choice.allowed_tools.tools", "must be a list of tools")
    names = {_tool_name(tool) for tool in tools}
    tools_left: tuple[Tool | ForeignTool, ...] = tuple(
        tool for tool in options.tools or () if tool.name in names
    )
    mode = MODES.get(str(allowed.get("mode", "auto")))
    if mode is None:
        raise FieldError("tool_choice.allowed_tools.mode", "must be auto or required")
    extra = {name: value for name, value in options.extra.items() if name != "tool_choice"}
    return msgspec.structs.replace(
        options, tools=tools_left, tool_choice=ToolChoice(kind=mode), extra=extra
    )


def _tool_name(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    inner = tool.get(kind) if isinstance(kind, str) else None
    return inner.get("name") if isinstance(inner, dict) else kind


NO_ARGUMENTS = "{}"


def uses_functions(parameters: dict[str, Any]) -> bool:
    """Whether a request offers functions and no tools."""
    return bool(parameters.get("functions")) and not parameters.get("tools")


class FunctionCalls:
    """Converts tool calls of one stream to a legacy function call; further calls are dropped."""

    def __init__(self) -> None:
        self._index: int | None = None
        self._has_name = False
        self._has_arguments = False

    def convert(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        match event:
            case ToolCallDelta():
                yield from self._piece(event.index, event.name, event.arguments)
            case PartAdded(part=ToolCall() as call):
                yield from self._piece(event.index, call.name, call.arguments)
            case ReplyFinished():
                if self._index is not None and not self._has_arguments:
                    yield from self._piece(self._index, None, NO_ARGUMENTS)
                yield event
            case _:
                yield event

    def _piece(self, index: int, name: str | None, arguments: str) -> Iterator[ReplyEvent]:
        if self._index is None:
            self._index = index
        if index != self._index:
            return
        fields: dict[str, str] = {}
        # Clients concatenate the pieces of every field, so the name is sent once.
        if name and not self._has_name:
            fields["name"] = name
        if arguments:
            fields["arguments"] = arguments
        self._has_name = self._has_name or bool(name)
        self._has_arguments = self._has_arguments or bool(arguments)
        if fields:
            yield extra_field(FUNCTION_CALL, fields)
