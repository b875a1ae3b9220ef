"""Tool calls in OpenAI answers. Servers omit ids and indexes, or send arguments as an object."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cllm.core.reply import ReplyEvent, ToolCallDelta
from cllm.wire.errors import MalformedError
from cllm.wire.messages import ObjectScanner
from cllm.wire.openai.fields import TOOL_CALLS, beside, joined, merge


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    def text(self) -> str:
        """Return the arguments as text; some servers send an object."""
        given = self.arguments
        return msgspec.json.encode(given).decode() if isinstance(given, dict) else given or ""


class CallPiece(msgspec.Struct, forbid_unknown_fields=True):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None


class ExtendedCallPiece(CallPiece, forbid_unknown_fields=False):
    """A piece with unknown fields: a custom call, or fields that a server wants back."""

    rest: Any = None


NO_FUNCTION = Function()
NAMED = frozenset(CallPiece.__struct_fields__)


def odd_piece(fields: Mapping[str, Any]) -> ExtendedCallPiece:
    piece = msgspec.convert(
        {name: fields[name] for name in fields if name in NAMED}, ExtendedCallPiece
    )
    piece.rest = {name: fields[name] for name in fields if name not in NAMED}
    return piece


def whole_calls(given: Any) -> Iterator[ReplyEvent]:
    """Yield each call as one event; non-function calls pass through."""
    if not given:
        return
    try:
        said = msgspec.convert(given, list[dict[str, Any]])
        calls = [odd_piece(call) for call in said]
    except msgspec.ValidationError as error:
        raise MalformedError(f"a tool call that cannot be read: {error}") from error
    for index, (call, fields) in enumerate(zip(calls, said, strict=True)):
        if call.function is None and call.rest:
            yield beside(TOOL_CALLS, [{"index": index, **fields}])
        else:
            function = call.function or NO_FUNCTION
            yield ToolCallDelta(
                index=index, id=call.id, name=function.name, arguments=function.text()
            )


def mend_calls(message: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Add missing ids, convert arguments to text, and replace aliases by the client's names.

    Returns whether an id or arguments changed.
    """
    calls = message.get("tool_calls")
    changed = False
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        if not isinstance(call, dict):
            continue
        if not call.get("id"):
            call["id"], changed = f"call_{place}", True
        function = call.get("function")
        if not isinstance(function, dict):
            continue
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = msgspec.json.encode(function["arguments"]).decode()
            changed = True
        if isinstance(function.get("name"), str):
            function["name"] = names.get(function["name"], function["name"])
    return changed


class BuiltCalls:
    """Builds the calls of one streamed message from pieces.

    Some servers give every call the same index. So a piece starts a new call if it has a new id
    and a name, or if it has a name, or arguments under a new id, while the current arguments
    are complete.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._calls: dict[int, _BuiltCall] = {}
        self._places: dict[int | None, int] = {}
        self._by_id: dict[str, int] = {}
        self._highest = -1
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: CallPiece, events: list[ReplyEvent]) -> None:
        """Add a piece and append its events."""
        function = piece.function or NO_FUNCTION
        name, call_id, given = function.name, piece.id, function.arguments
        place = self._last if piece.index is None else self._places.get(piece.index)
        if place is None or call_id or name or place not in self._calls:
            place = self._place_for(piece, function, place)
        self._last = place
        call = self._calls.get(place)
        if call is None:
            lent, call_id = not call_id, call_id or f"call_{place}"
            call = self._calls[place] = _BuiltCall(id=call_id, lent=lent)
            self._by_id.setdefault(call_id, place)
            self._highest = max(self._highest, place)
        if piece.function is None and type(piece) is ExtendedCallPiece:
            events.append(_add_odd(call, piece, place))
            return
        if name is not None:
            name = self._names.get(name, name)
            call.name = call.name or name
        arguments = given if isinstance(given, str) else function.text()
        call.arguments.append(arguments)
        events.append(ToolCallDelta(index=place, id=call_id, name=name, arguments=arguments))
        if type(piece) is ExtendedCallPiece and piece.rest:
            merge(call.rest, piece.rest)
            more = {"index": place, "function": {"arguments": ""}, **piece.rest}
            events.append(beside(TOOL_CALLS, [more]))

    def _place_for(self, piece: CallPiece, function: Function, place: int | None) -> int:
        if piece.id and (place is not None or piece.index is None):
            found = self._by_id.get(piece.id)
            if found is not None:
                return found
        call = None if place is None else self._calls.get(place)
        if place is not None and call is not None and not _begins(call, piece, function):
            return place
        wanted = len(self._calls) if piece.index is None else piece.index
        new = wanted if wanted not in self._calls else self._highest + 1
        if piece.index is not None:
            self._places[piece.index] = new
        return new

    def fields(self) -> list[dict[str, Any]]:
        return [call.fields() for _, call in sorted(self._calls.items())]


class _BuiltCall(msgspec.Struct):
    """A call so far; `lent`: its id is ours because the server sent none."""

    id: str
    lent: bool = False
    name: str | None = None
    type: str | None = None
    arguments: list[str] = msgspec.field(default_factory=list)
    rest: dict[str, Any] = msgspec.field(default_factory=dict)
    scanner: ObjectScanner | None = None

    def has_whole_arguments(self) -> bool:
        if self.scanner is None:
            self.scanner = ObjectScanner(self.arguments)
        return self.scanner.is_object()

    def fields(self) -> dict[str, Any]:
        head = {"id": self.id, "type": self.type or "function"}
        rest = joined(self.rest)
        if rest and not self.arguments:
            return {**head, **rest}
        arguments = "".join(self.arguments) or "{}"
        function = {"name": self.name or "", "arguments": arguments}
        return {**head, "function": function, **rest}


def _begins(call: _BuiltCall, piece: CallPiece, function: Function) -> bool:
    """Whether a piece with this call's index, but another id, starts a new call."""
    if piece.id and piece.index is None:
        return True
    named = function.name or (type(piece) is ExtendedCallPiece and "custom" in piece.rest)
    if piece.id and named and not call.lent and (call.name or call.rest):
        return True
    more = function.text().strip()
    other = bool(function.name) and function.name != call.name
    return bool(more or other) and bool(piece.id or function.name) and call.has_whole_arguments()


def _add_odd(call: _BuiltCall, piece: ExtendedCallPiece, place: int) -> ReplyEvent:
    call.type = call.type or piece.type
    merge(call.rest, piece.rest)
    said = {"id": piece.id, "type": piece.type, **piece.rest}
    told = {name: value for name, value in said.items() if value is not None}
    return beside(TOOL_CALLS, [{"index": place, **told}])
