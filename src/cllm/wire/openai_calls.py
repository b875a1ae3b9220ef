"""Tool calls in answers of OpenAI's protocol: mended where they are whole, built from their pieces.

Servers differ here more than anywhere: calls come without ids, without numbers, with arguments as
an object. What leaves this module has an id to be answered by and arguments as text.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cllm.core.reply import ReplyEvent, ToolCallDelta
from cllm.wire.malformed import MalformedError
from cllm.wire.openai_beside import beside


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    def text(self) -> str:
        """The arguments as text; some servers give the object itself."""
        given = self.arguments
        return msgspec.json.encode(given).decode() if isinstance(given, dict) else given or ""


class CallPiece(msgspec.Struct):
    """A call, or a piece of one; `extra_content` is what a server wants back with it."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None


NO_FUNCTION = Function()


def whole_calls(given: Any) -> list[ToolCallDelta]:
    """The calls of a message, each as one delta."""
    try:
        calls = msgspec.convert(given or [], list[CallPiece])
    except msgspec.ValidationError as error:
        raise MalformedError(f"a tool call that cannot be read: {error}") from error
    functions = [call.function or NO_FUNCTION for call in calls]
    return [
        ToolCallDelta(index=index, id=call.id, name=function.name, arguments=function.text())
        for index, (call, function) in enumerate(zip(calls, functions, strict=True))
    ]


def mend_calls(message: Mapping[str, Any]) -> bool:
    """Calls with an id to be answered by, and arguments as text; whether any had to be changed."""
    calls = message.get("tool_calls")
    changed = False
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict) and not call.get("id"):
            call["id"], changed = f"call_{place}", True
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
            function["arguments"] = msgspec.json.encode(function["arguments"]).decode()
            changed = True
    return changed


def give_names_back(message: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Calls under the names that the client has for its tools."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            function["name"] = names.get(function["name"], function["name"])


class BuiltCalls:
    """The calls of one streamed message, put together from their pieces."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._calls: dict[int, _BuiltCall] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: CallPiece, events: list[ReplyEvent]) -> None:
        """Take a piece, and append what is to be told of it."""
        index = piece.index if piece.index is not None else self._index_for(piece)
        self._last = index
        function = piece.function or NO_FUNCTION
        name, call_id, given = function.name, piece.id, function.arguments
        call = self._calls.get(index)
        if call is None:
            call_id = call_id or f"call_{index}"
            call = self._calls[index] = _BuiltCall(id=call_id)
        if name is not None:
            name = self._names.get(name, name)
            call.name = call.name or name
        arguments = given if isinstance(given, str) else function.text()
        call.arguments.append(arguments)
        events.append(ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments))
        if piece.extra_content is not None:
            call.extra["extra_content"] = piece.extra_content
            more = {"index": index, "function": {"arguments": ""}, **call.extra}
            events.append(beside("tool_calls", [more]))

    def _index_for(self, piece: CallPiece) -> int:
        """A piece without a number begins a call if its id is new, else goes on with one."""
        if not piece.id:
            return self._last
        known = (index for index, call in self._calls.items() if call.id == piece.id)
        return next(known, len(self._calls))

    def fields(self) -> list[dict[str, Any]]:
        """The calls as they stand in a message."""
        return [call.fields() for _, call in sorted(self._calls.items())]


class _BuiltCall(msgspec.Struct):
    id: str
    name: str | None = None
    arguments: list[str] = msgspec.field(default_factory=list)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        arguments = "".join(self.arguments) or "{}"
        function = {"name": self.name or "", "arguments": arguments}
        return {"id": self.id, "type": "function", "function": function, **self.extra}
