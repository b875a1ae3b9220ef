"""Tool calls in OpenAI answers; some servers omit ids and indexes, or send argument objects."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cllm.core.reply import ReplyEvent, ToolCallDelta
from cllm.wire.errors import MalformedError
from cllm.wire.openai.fields import TOOL_CALLS, extra_field, join_pieces, merge_fields
from cllm.wire.tool_arguments import ObjectScanner


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    def text(self) -> str:
        """Return the arguments as text; some servers send an object."""
        value = self.arguments
        return msgspec.json.encode(value).decode() if isinstance(value, dict) else value or ""


class CallPiece(msgspec.Struct, forbid_unknown_fields=True):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None


class ExtendedCallPiece(CallPiece, forbid_unknown_fields=False):
    """A piece with unknown fields: a custom call, or fields that a server wants back."""

    rest: Any = None


NO_FUNCTION = Function()
ID_DIGITS = 24
PIECE_FIELDS = frozenset(CallPiece.__struct_fields__)


def extended_piece(fields: Mapping[str, Any]) -> ExtendedCallPiece:
    piece = msgspec.convert(
        {name: fields[name] for name in fields if name in PIECE_FIELDS}, ExtendedCallPiece
    )
    piece.rest = {name: fields[name] for name in fields if name not in PIECE_FIELDS}
    return piece


def call_events(tool_calls: Any) -> Iterator[ReplyEvent]:
    """Yield each call as one event; non-function calls pass through."""
    if not tool_calls:
        return
    try:
        objects = msgspec.convert(tool_calls, list[dict[str, Any]])
        calls = [extended_piece(call) for call in objects]
    except msgspec.ValidationError as error:
        raise MalformedError(f"an invalid tool call: {error}") from error
    for index, (call, fields) in enumerate(zip(calls, objects, strict=True)):
        if call.function is None and call.rest:
            yield extra_field(TOOL_CALLS, [{"index": index, **fields}])
        else:
            function = call.function or NO_FUNCTION
            yield ToolCallDelta(
                index=index, id=call.id, name=function.name, arguments=function.text()
            )


def make_call_id(reply: bytes, index: int) -> str:
    """Return an id for a call of this reply, which no other reply's calls have."""
    digest = hashlib.sha256(b"%b#%d" % (reply, index)).hexdigest()
    return f"call_{digest[:ID_DIGITS]}"


def repair_calls(
    message: Mapping[str, Any], names: Mapping[str, str], *, reply: bytes = b""
) -> bool:
    """Add missing ids, convert arguments to text, and replace aliases by the client's names.

    `reply` is the reply's JSON. Returns whether an id or arguments changed.
    """
    calls = message.get("tool_calls")
    changed = False
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        if not isinstance(call, dict):
            continue
        if not call.get("id"):
            call["id"], changed = make_call_id(reply, index), True
        function = call.get("function")
        if not isinstance(function, dict):
            continue
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = msgspec.json.encode(function["arguments"]).decode()
            changed = True
        if isinstance(function.get("name"), str):
            function["name"] = names.get(function["name"], function["name"])
    return changed


class ToolCallBuilder:
    """Builds the calls of one streamed message from pieces.

    Some servers send the same index for every call. So a piece starts a new call if it has a
    new id and a name, or if the current arguments are complete and it has a name, or arguments
    with a new id. `first_chunk` identifies the reply, for the ids of calls without one.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.first_chunk = b""
        self._calls: dict[int, _PartialCall] = {}
        self._indexes: dict[int | None, int] = {}
        self._by_id: dict[str, int] = {}
        self._highest = -1
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: CallPiece, events: list[ReplyEvent]) -> None:
        function = piece.function or NO_FUNCTION
        name, call_id, value = function.name, piece.id, function.arguments
        index = self._last if piece.index is None else self._indexes.get(piece.index)
        if index is None or call_id or name or index not in self._calls:
            index = self._index_for(piece, function, index)
        self._last = index
        call = self._calls.get(index)
        if call is None:
            is_generated, call_id = not call_id, call_id or make_call_id(self.first_chunk, index)
            call = self._calls[index] = _PartialCall(id=call_id, has_generated_id=is_generated)
            self._by_id.setdefault(call_id, index)
            self._highest = max(self._highest, index)
        if piece.function is None and type(piece) is ExtendedCallPiece:
            events.append(_add_custom_call(call, piece, index))
            return
        if name is not None:
            name = self._names.get(name, name)
            call.name = call.name or name
        arguments = value if isinstance(value, str) else function.text()
        call.arguments.append(arguments)
        events.append(ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments))
        if type(piece) is ExtendedCallPiece and piece.rest:
            merge_fields(call.rest, piece.rest)
            more = {"index": index, "function": {"arguments": ""}, **piece.rest}
            events.append(extra_field(TOOL_CALLS, [more]))

    def _index_for(self, piece: CallPiece, function: Function, index: int | None) -> int:
        if piece.id and (index is not None or piece.index is None):
            match = self._by_id.get(piece.id)
            if match is not None:
                return match
        call = None if index is None else self._calls.get(index)
        if index is not None and call is not None and not _starts_call(call, piece, function):
            return index
        preferred = len(self._calls) if piece.index is None else piece.index
        new = preferred if preferred not in self._calls else self._highest + 1
        if piece.index is not None:
            self._indexes[piece.index] = new
        return new

    def fields(self) -> list[dict[str, Any]]:
        return [call.fields() for _, call in sorted(self._calls.items())]


class _PartialCall(msgspec.Struct):
    """A call so far; `has_generated_id`: its id is ours because the server sent none."""

    id: str
    has_generated_id: bool = False
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
        rest = join_pieces(self.rest)
        if rest and not self.arguments:
            return {**head, **rest}
        arguments = "".join(self.arguments) or "{}"
        function = {"name": self.name or "", "arguments": arguments}
        return {**head, "function": function, **rest}


def _starts_call(call: _PartialCall, piece: CallPiece, function: Function) -> bool:
    """Whether a piece with this call's index, but another id, starts a new call."""
    if piece.id and piece.index is None:
        return True
    has_name = function.name or (type(piece) is ExtendedCallPiece and "custom" in piece.rest)
    if piece.id and has_name and not call.has_generated_id and (call.name or call.rest):
        return True
    more = function.text().strip()
    other = bool(function.name) and function.name != call.name
    return bool(more or other) and bool(piece.id or function.name) and call.has_whole_arguments()


def _add_custom_call(call: _PartialCall, piece: ExtendedCallPiece, index: int) -> ReplyEvent:
    call.type = call.type or piece.type
    merge_fields(call.rest, piece.rest)
    fields = {"id": piece.id, "type": piece.type, **piece.rest}
    present = {name: value for name, value in fields.items() if value is not None}
    return extra_field(TOOL_CALLS, [{"index": index, **present}])
