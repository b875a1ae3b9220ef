"""A history as turns that Anthropic accepts: cleaned, merged, calls paired with results, few marks.

What the API refuses is arranged so that it accepts it, on the wire only, and said in a notice. A
message that needs no change keeps the bytes it came as. Writes no body, and no parameter but the
marks on tools.
"""

import base64
import binascii
import hashlib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.notice import Notice
from cllm.wire.anthropic_options import Fields, version_of
from cllm.wire.anthropic_parts import DIALECT, UNREADABLE
from cllm.wire.spoken import Spoken

MAX_MARKS = 4
EMPTY_CONTENT = re.compile(rb'"content"\s*:\s*(""|\[\s*\])')
MARK = re.compile(rb'"cache_control"\s*:\s*\{')
VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NO_RESULT = "The call was interrupted; there is no result."
INVALID_JSON = "INVALID_JSON"
SYSTEM_TURNS_SINCE = (4, 8)

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Turn(msgspec.Struct):
    """A message on its way out: its own bytes for as long as nothing of it had to change."""

    role: Role
    parts: Sequence[AnyPart]
    raw: bytes | None = None

    def change(self, parts: Sequence[AnyPart]) -> None:
        """Other parts, if they are others; the bytes it came as no longer stand then."""
        same = len(parts) == len(self.parts) and all(map(operator.is_, parts, self.parts))
        if not same:
            self.parts, self.raw = parts, None


class Log:
    """Notices of one request: each kind once, with its first place and how often it was."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, int]] = {}

    def add(self, code: str, path: str, message: str) -> None:
        first, count = self._seen.get((code, message), (path, 0))
        self._seen[code, message] = first, count + 1

    def notices(self) -> tuple[Notice, ...]:
        return tuple(
            Notice(code=code, path=path, message=message if n == 1 else f"{message} ({n} times)")
            for (code, message), (path, n) in self._seen.items()
        )


def system_parts(parts: Sequence[AnyPart], log: Log) -> Iterator[AnyPart]:
    """The parts that a system prompt can hold, which is text that is not blank."""
    for part in parts:
        if not isinstance(part, Text):
            log.add("dropped_part", "system", f"a system prompt has no {type(part).__name__}")
        elif part.text.strip():
            yield part


def arrange(messages: Sequence[Spoken], model: str, log: Log) -> tuple[list[Turn], list[AnyPart]]:
    """Alternating turns of what can be said, and the system messages that stood among them."""
    turns: list[Turn] = []
    moved: list[AnyPart] = []
    for index, spoken in enumerate(messages):
        path = f"messages[{index}]"
        turn = _clean_turn(spoken, path, log)
        if not turn.parts:
            continue
        after_user = bool(turns) and turns[-1].role == "user"
        if turn.role != "system" or (after_user and _may_stay(messages, index, model)):
            turns.append(turn)
        else:
            moved += system_parts(turn.parts, log)
            log.add("moved_message", path, "a system message in the history, put with the system")
    merged = _merge(turns)
    speaking = [turn for turn in merged if not _is_thinking_alone(turn)]
    if len(speaking) < len(merged):
        log.add("dropped_thinking", "messages", "an assistant message of thinking alone")
        merged = _merge(speaking)
    return merged, moved


def _may_stay(messages: Sequence[Spoken], index: int, model: str) -> bool:
    """Whether a system message may stand where it is: in Anthropic's words, on a model for it."""
    following = messages[index + 1].role if index + 1 < len(messages) else "assistant"
    own = messages[index].raw is not None
    return own and following == "assistant" and version_of(model) >= SYSTEM_TURNS_SINCE


def _merge(turns: Iterable[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            merged[-1] = Turn(role=turn.role, parts=[*merged[-1].parts, *turn.parts])
        else:
            merged.append(turn)
    return merged


def _is_thinking_alone(turn: Turn) -> bool:
    thought = (Thinking, RedactedThinking)
    return turn.role == "assistant" and all(isinstance(part, thought) for part in turn.parts)


def _clean_turn(spoken: Spoken, path: str, log: Log) -> Turn:
    role: Role = "user" if spoken.role == "tool" else spoken.role
    turn = Turn(role=role, parts=spoken.parts, raw=spoken.raw)
    turn.change(_clean_parts(spoken.parts, path, log, foreign=spoken.raw is None))
    if turn.raw is not None and _has_empty_result(turn):
        turn.raw = None
    return turn


def _has_empty_result(turn: Turn) -> bool:
    """Whether a result has a content that is there and empty, which the API refuses."""
    empty = any(isinstance(part, ToolResult) and not part.content for part in turn.parts)
    return empty and EMPTY_CONTENT.search(turn.raw or b"") is not None


def _clean_parts(
    parts: Sequence[AnyPart], path: str, log: Log, *, foreign: bool
) -> Sequence[AnyPart]:
    """The parts that can be said, as they can be said; a part that needs no change is the same."""
    said: list[AnyPart] = []
    for part in parts:
        clean = CLEANERS.get(type(part))
        cleaned = part if clean is None else clean(part, path, log)
        if cleaned is not None and foreign:
            cleaned = _naturalise(cleaned, path, log)
        if cleaned is not None:
            said.append(cleaned)
    return said


def _clean_text(part: Text | Refusal, _path: str, _log: Log) -> AnyPart | None:
    return part if part.text.strip() else None


def _clean_thinking(part: Thinking, path: str, log: Log) -> AnyPart | None:
    if part.signature:
        return part
    log.add("dropped_thinking", path, "thinking without a signature of Anthropic's")
    return None


def _clean_unknown(part: Unknown, path: str, log: Log) -> AnyPart | None:
    if part.dialect == DIALECT:
        return part
    log.add("dropped_part", path, f"a block that only {part.dialect} has")
    return None


def _clean_result(part: ToolResult, path: str, log: Log) -> AnyPart | None:
    content: Any = tuple(_clean_parts(part.content, path, log, foreign=False))
    if len(content) == len(part.content):
        return part
    return msgspec.structs.replace(part, content=content)


CLEANERS: dict[type, Callable[[Any, str, Log], AnyPart | None]] = {
    Text: _clean_text,
    Refusal: _clean_text,
    Thinking: _clean_thinking,
    ToolResult: _clean_result,
    Unknown: _clean_unknown,
}
# A call says its tool's name and has its place: nothing is lost with these.
REDUNDANT: dict[type, tuple[str, ...]] = {ToolCall: ("index",), ToolResult: ("name",)}


def _naturalise(part: AnyPart, path: str, log: Log) -> AnyPart | None:
    """A part from another protocol, without the fields that only that one knows."""
    if part.extra:
        names = ", ".join(sorted(part.extra.keys() - REDUNDANT.get(type(part), ())))
        if names:
            log.add("dropped_field", path, f"Anthropic has no {names} on a {type(part).__name__}")
        part = msgspec.structs.replace(part, extra={})
    change = NATURALISERS.get(type(part))
    return part if change is None else change(part, path, log)


def _naturalise_image(part: Image, path: str, log: Log) -> AnyPart | None:
    if part.data is None and part.url is None:
        log.add("dropped_part", path, "an image without data and without a URL")
        return None
    if part.media_type == "image/jpg":
        return msgspec.structs.replace(part, media_type="image/jpeg")
    return part


def _naturalise_document(part: Document, path: str, log: Log) -> AnyPart | None:
    if part.data is None:
        if part.text is None and part.url is None and part.file_id is None:
            log.add("dropped_part", path, "a document without content")
            return None
        return part
    if not (part.media_type or "").startswith("text/"):
        return part
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return part
    return msgspec.structs.replace(part, data=None, text=text, media_type="text/plain")


def _naturalise_call(part: ToolCall, path: str, log: Log) -> AnyPart | None:
    try:
        _objects.decode(part.arguments or "{}")
    except UNREADABLE:
        log.add("changed_arguments", path, f"arguments that are no JSON object, as {INVALID_JSON}")
        wrapped = msgspec.json.encode({INVALID_JSON: part.arguments}).decode()
        return msgspec.structs.replace(part, arguments=wrapped)
    return part


def _naturalise_thought(part: Thinking | RedactedThinking, _path: str, _log: Log) -> AnyPart | None:
    return part if part.cache is None else msgspec.structs.replace(part, cache=None)


def _naturalise_result(part: ToolResult, path: str, log: Log) -> AnyPart | None:
    content = [_naturalise(inner, path, log) for inner in part.content]
    kept: Any = tuple(inner for inner in content if inner is not None)
    return msgspec.structs.replace(part, content=kept)


NATURALISERS: dict[type, Callable[[Any, str, Log], AnyPart | None]] = {
    Image: _naturalise_image,
    Document: _naturalise_document,
    ToolCall: _naturalise_call,
    ToolResult: _naturalise_result,
    Thinking: _naturalise_thought,
    RedactedThinking: _naturalise_thought,
}


def pair(turns: Sequence[Turn], aliases: dict[str, str], log: Log) -> None:
    """Every call gets its result, first thing in the next message, in the order of the calls."""
    calls: list[ToolCall] = []
    sent: list[str] = []
    for turn in turns:
        if turn.role == "assistant":
            calls = [part for part in turn.parts if isinstance(part, ToolCall)]
            sent = _sent_ids(calls, aliases)
            if [call.id for call in calls] != sent:
                _rename(turn, sent)
        elif turn.role == "user":
            _answer(turn, calls, sent, aliases, log)
            calls, sent = [], []


def _sent_ids(calls: Sequence[ToolCall], aliases: dict[str, str]) -> list[str]:
    seen: dict[str, int] = {}
    sent = []
    for call in calls:
        seen[call.id] = seen.get(call.id, 0) + 1
        sent.append(_sent_id(call.id, seen[call.id], aliases))
    return sent


def _sent_id(own: str, occurrence: int, aliases: dict[str, str]) -> str:
    """The id itself where the API takes it; else an alias that is always the same for it."""
    if occurrence == 1 and VALID_ID.fullmatch(own):
        return own
    digest = hashlib.sha256(f"{occurrence}:{own}".encode("utf-8", "surrogatepass"))
    alias = f"toolu_{digest.hexdigest()[:24]}"
    aliases[alias] = own
    return alias


def _rename(turn: Turn, sent: Sequence[str]) -> None:
    ids = iter(sent)
    turn.change(
        [
            msgspec.structs.replace(part, id=next(ids)) if isinstance(part, ToolCall) else part
            for part in turn.parts
        ]
    )


def _answer(
    turn: Turn,
    calls: Sequence[ToolCall],
    sent: Sequence[str],
    aliases: dict[str, str],
    log: Log,
) -> None:
    results = [part for part in turn.parts if isinstance(part, ToolResult)]
    if not results and not calls:
        return
    waiting: dict[str, list[ToolResult]] = {}
    for result in results:
        waiting.setdefault(result.call_id, []).append(result)
    placed = [_take(waiting, call, to, log) for call, to in zip(calls, sent, strict=True)]
    left = [
        _addressed(result, _sent_id(result.call_id, 1, aliases))
        for queue in waiting.values()
        for result in queue
    ]
    turn.change(
        [*placed, *left, *(part for part in turn.parts if not isinstance(part, ToolResult))]
    )


def _take(waiting: dict[str, list[ToolResult]], call: ToolCall, sent: str, log: Log) -> ToolResult:
    """The result of a call, or one that says that there is none."""
    queue = waiting.get(call.id)
    if queue:
        return _addressed(queue.pop(0), sent)
    log.add("added_result", "messages", "a call without a result was answered with an error")
    return ToolResult(call_id=sent, content=(Text(text=NO_RESULT),), is_error=True)


def _addressed(result: ToolResult, call_id: str) -> ToolResult:
    if result.call_id == call_id:
        return result
    return msgspec.structs.replace(result, call_id=call_id)


def _marks_of(part: AnyPart) -> int:
    inner = sum(map(_marks_of, part.content)) if isinstance(part, ToolResult) else 0
    if isinstance(part, Unknown):
        return int(MARK.search(part.raw) is not None)
    return inner + (part.cache is not None)


def _tools_of(fields: Fields) -> list[Any]:
    tools = fields.get("tools")
    return tools if isinstance(tools, list) else []


def _is_marked(tool: Any) -> bool:
    return isinstance(tool, dict) and bool(tool.get("cache_control"))


def count_marks(fields: Fields, head: Turn, turns: Sequence[Turn]) -> int:
    tools = sum(map(_is_marked, _tools_of(fields)))
    whole = 1 if fields.get("cache_control") else 0
    return whole + tools + sum(_marks_of(part) for turn in (head, *turns) for part in turn.parts)


def limit_marks(fields: Fields, head: Turn, turns: Sequence[Turn], log: Log) -> Fields:
    """Without the marks above the limit: the oldest of the messages go, then system, then tools."""
    surplus = count_marks(fields, head, turns) - MAX_MARKS
    log.add(
        "dropped_cache_mark", "cache_control", f"{surplus} of more than {MAX_MARKS} cache marks"
    )
    for turn in (*turns, head):
        if surplus > 0:
            before = sum(map(_marks_of, turn.parts))
            turn.change(_unmark(turn.parts, surplus))
            surplus -= before - sum(map(_marks_of, turn.parts))
    tools = []
    for tool in _tools_of(fields):
        marked = surplus > 0 and _is_marked(tool)
        tools.append({k: tool[k] for k in tool if k != "cache_control"} if marked else tool)
        surplus -= marked
    return {**fields, "tools": tools} if tools else fields


def _unmark(parts: Sequence[AnyPart], surplus: int) -> list[AnyPart]:
    """The parts with their first so many marks gone."""
    unmarked: list[AnyPart] = []
    for part in parts:
        had = _marks_of(part) if surplus > 0 else 0
        kept = _without_marks(part, surplus) if had else part
        surplus -= had - _marks_of(kept) if had else 0
        unmarked.append(kept)
    return unmarked


def _without_marks(part: AnyPart, surplus: int) -> AnyPart:
    if isinstance(part, Unknown):
        fields = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
        fields.pop("cache_control", None)
        return msgspec.structs.replace(part, raw=msgspec.json.encode(fields))
    if isinstance(part, ToolResult):
        inner = sum(map(_marks_of, part.content))
        content: Any = tuple(_unmark(part.content, surplus))
        cache = None if surplus > inner else part.cache
        return msgspec.structs.replace(part, content=content, cache=cache)
    return msgspec.structs.replace(part, cache=None)
