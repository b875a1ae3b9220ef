"""Forms that only OpenAI has, converted for other targets: functions and restricted tool choice.

Legacy functions become tools with ids; a choice among some tools becomes those tools alone.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from cllm.core.message import Message, ToolCall
from cllm.core.options import ForeignTool, RequestOptions, Tool, ToolChoice, ToolChoiceKind
from cllm.core.reply import PartAdded, ReplyEvent, ReplyFinished, ToolCallDelta
from cllm.wire.errors import FieldError
from cllm.wire.openai.fields import FUNCTION_CALL, beside

Fields = dict[str, Any]
CALL_ID = b'"tool_call_id"'
FUNCTION_CALL_KEY = b'"function_call"'
FUNCTION_ROLE = b'"function"'
MODES: dict[str, ToolChoiceKind] = {"auto": "auto", "required": "any"}


def with_tools_for_functions(parameters: Fields) -> Fields:
    """Replace legacy functions in OpenAI parameters by tools."""
    functions = parameters.get("functions")
    choice = parameters.get("function_call")
    if functions is None and choice is None:
        return parameters
    said = {k: v for k, v in parameters.items() if k not in ("functions", "function_call")}
    if functions is not None:
        if not isinstance(functions, list):
            raise FieldError("functions", "a list of functions is needed")
        tools = [{"type": "function", "function": function} for function in functions]
        said["tools"] = [*(said.get("tools") or ()), *tools]
        # Answers of functions have no ids, so only one call at a time.
        said.setdefault("parallel_tool_calls", False)
    if choice is not None and said.get("tool_choice") is None:
        named = isinstance(choice, dict)
        said["tool_choice"] = {"type": "function", "function": choice} if named else choice
    return said


def with_calls_for_functions(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Replace calls of functions in messages by tool calls with ids."""
    said: list[Message] = []
    open_call = ""
    for place, message in enumerate(messages):
        if message.dialect != "openai":
            said.append(message)
        elif message.role == "assistant" and FUNCTION_CALL_KEY in message.raw:
            modern, open_call = _calling(message, f"call_{place}")
            said.append(modern)
        elif open_call and message.role == "tool" and FUNCTION_ROLE in message.raw:
            said.append(_answering(message, open_call))
            open_call = ""
        else:
            said.append(message)
    return tuple(said)


def is_legacy(messages: Sequence[Message]) -> bool:
    """Whether a message answers a function, in the form without ids."""
    return any(message.role == "tool" and CALL_ID not in message.raw for message in messages)


def with_ids_of_calls(
    messages: Sequence[Message], calls_of: Callable[[Message], Sequence[str]]
) -> Sequence[Message]:
    """Give answers of functions the ids of the tool calls they answer.

    A client that only knows functions answers a provider's tool calls like this. `calls_of`
    returns the ids of the calls in a message.
    """
    if not is_legacy(messages):
        return messages
    said: list[Message] = []
    waiting: deque[str] = deque()
    for message in messages:
        if message.role == "assistant":
            waiting = deque(calls_of(message))
        answers = waiting and message.dialect == "openai" and message.role == "tool"
        answered = _answering(message, waiting[0]) if answers else message
        if answered is not message:
            waiting.popleft()
        said.append(answered)
    return said


def _calling(message: Message, call_id: str) -> tuple[Message, str]:
    fields: Fields = msgspec.json.decode(message.raw)
    call = fields.pop("function_call", None)
    if not isinstance(call, dict) or fields.get("tool_calls"):
        return message, ""
    fields["tool_calls"] = [{"id": call_id, "type": "function", "function": call}]
    return Message(role="assistant", raw=msgspec.json.encode(fields)), call_id


def _answering(message: Message, call_id: str) -> Message:
    fields: Fields = msgspec.json.decode(message.raw)
    if fields.get("role") != "function":
        return message
    modern = {"role": "tool", "tool_call_id": call_id, "content": fields.get("content")}
    return Message(role="tool", raw=msgspec.json.encode(modern))


def restricted_to_allowed(options: RequestOptions) -> RequestOptions:
    """Return the options with only the tools that `allowed_tools` lists."""
    choice = options.extra.get("tool_choice")
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return options
    allowed = choice.get("allowed_tools")
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(allowed, dict) or not isinstance(tools, list):
        raise FieldError("tool_choice.allowed_tools.tools", "a list of tools is needed")
    names = {_name(tool) for tool in tools}
    kept: tuple[Tool | ForeignTool, ...] = tuple(
        tool for tool in options.tools or () if tool.name in names
    )
    mode = MODES.get(str(allowed.get("mode", "auto")))
    if mode is None:
        raise FieldError("tool_choice.allowed_tools.mode", "one of auto, required is needed")
    extra = {name: value for name, value in options.extra.items() if name != "tool_choice"}
    return msgspec.structs.replace(
        options, tools=kept, tool_choice=ToolChoice(kind=mode), extra=extra
    )


def _name(tool: Any) -> Any:
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
        self._named = False
        self._argued = False

    def convert(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        match event:
            case ToolCallDelta():
                yield from self._piece(event.index, event.name, event.arguments)
            case PartAdded(part=ToolCall() as call):
                yield from self._piece(event.index, call.name, call.arguments)
            case ReplyFinished():
                if self._index is not None and not self._argued:
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
        if name and not self._named:
            fields["name"] = name
        if arguments:
            fields["arguments"] = arguments
        self._named, self._argued = self._named or bool(name), self._argued or bool(arguments)
        if fields:
            yield beside(FUNCTION_CALL, fields)
