"""Converts a history to Anthropic's format: parts, system messages and cache breakpoints.

An unchanged message keeps its bytes. Does not check the order of messages.
"""

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.anthropic.models import Fields, parse_claude_version
from cllm.wire.anthropic.parts import DIALECT
from cllm.wire.messages import (
    EMPTY,
    NoticeMerger,
    OutgoingMessage,
    check_not_emptied,
    find_stray_system,
    lost_extra_fields,
    replace_parts,
)
from cllm.wire.tool_arguments import wrap_invalid_arguments

MAX_CACHE_BREAKPOINTS = 4
HOUR = "1h"
EMPTY_CONTENT = re.compile(rb'"content"\s*:\s*(""|\[\s*\])')
CACHE_CONTROL = re.compile(rb'"cache_control"\s*:\s*\{')
SYSTEM_MESSAGES_SINCE = (4, 8)


class MessageDraft(msgspec.Struct):
    """A message to send, with its original bytes unless it is changed."""

    role: Role
    parts: Sequence[AnyPart]
    raw: bytes | None = None
    extra: Mapping[str, Any] = EMPTY

    def change(self, parts: Sequence[AnyPart]) -> None:
        """Set the parts; drops the bytes if the parts differ."""
        same = len(parts) == len(self.parts) and all(map(operator.is_, parts, self.parts))
        if not same:
            self.parts, self.raw = parts, None


def filter_system_parts(parts: Sequence[AnyPart], notes: NoticeMerger) -> Iterator[AnyPart]:
    for part in parts:
        if not isinstance(part, Text):
            message = f"A system prompt cannot contain a {type(part).__name__}; it is not sent."
            notes.add("part_left_out", "system", message)
        elif part.text.strip():
            yield part


def arrange_messages(
    messages: Sequence[OutgoingMessage], model: str, notes: NoticeMerger
) -> tuple[list[OutgoingMessage], list[AnyPart]]:
    """Return the messages for Anthropic, and the parts that belong to the system prompt.

    Newer models accept a system message at the end of a user turn; for older ones it is part of
    the system prompt. A system message without a user turn stays, for the repair.
    """
    is_accepted = parse_claude_version(model) >= SYSTEM_MESSAGES_SINCE
    stray = find_stray_system(messages)
    arranged: list[OutgoingMessage] = []
    moved: list[AnyPart] = []
    waiting: list[OutgoingMessage] = []
    for index, message in enumerate(messages):
        cleaned = clean_message(message, f"messages[{message.prompt_index}]", notes)
        if index == len(messages) - 1:
            check_not_emptied(message, cleaned, "Anthropic")
        if index in stray:
            arranged.append(_clean_system(cleaned, notes))
        elif cleaned.role == "system" and arranged and is_accepted:
            waiting.append(_clean_system(cleaned, notes))
        elif cleaned.role == "system":
            moved += filter_system_parts(cleaned.parts, notes)
            if arranged:
                _report_moved(cleaned, notes, "with the system prompt")
        else:
            if cleaned.role == "assistant":
                arranged += waiting
                waiting = []
            for system in waiting:
                _report_moved(system, notes, "after the user message that follows it")
            arranged.append(cleaned)
    arranged += waiting
    return [message for message in arranged if message.parts or message.role != "system"], moved


def _clean_system(message: OutgoingMessage, notes: NoticeMerger) -> OutgoingMessage:
    if message.raw is not None:
        return message
    return replace_parts(message, tuple(filter_system_parts(message.parts, notes)))


def _report_moved(message: OutgoingMessage, notes: NoticeMerger, where: str) -> None:
    path = f"messages[{message.prompt_index}]"
    notes.add("system_moved", path, f"A system message in the history is sent {where}.")


def clean_message(message: OutgoingMessage, path: str, notes: NoticeMerger) -> OutgoingMessage:
    if len(message.parts) == 1 and type(message.parts[0]) is Text and not message.parts[0].extra:
        return message
    parts = _clean_parts(message.parts, path, notes, foreign=not message.is_own(DIALECT))
    same = len(parts) == len(message.parts) and all(map(operator.is_, parts, message.parts))
    return message if same and not _has_empty_result(message) else replace_parts(message, parts)


def _has_empty_result(message: OutgoingMessage) -> bool:
    """Whether a result has an empty content field, which the API refuses."""
    for part in message.parts:
        if type(part) is ToolResult and not part.content:
            return EMPTY_CONTENT.search(message.raw or b"") is not None
    return False


def _clean_parts(
    parts: Sequence[AnyPart], path: str, notes: NoticeMerger, *, foreign: bool
) -> Sequence[AnyPart]:
    cleaned_parts: list[AnyPart] = []
    for part in parts:
        if type(part) is Text and not (foreign and part.extra):
            cleaned_parts.append(part)
            continue
        clean = CLEANERS.get(type(part))
        cleaned = part if clean is None else clean(part, path, notes)
        if cleaned is not None and foreign:
            cleaned = _convert_foreign(cleaned, path, notes)
        if cleaned is not None:
            cleaned_parts.append(cleaned)
    return cleaned_parts


def _clean_unknown(part: Unknown, path: str, notes: NoticeMerger) -> AnyPart | None:
    if part.dialect == DIALECT:
        return part
    notes.add("part_left_out", path, f"Only {part.dialect} has this block; it is not sent.")
    return None


CLEANERS: dict[type, Callable[[Any, str, NoticeMerger], AnyPart | None]] = {
    Unknown: _clean_unknown,
}
# Fields without a notice: a call has the tool's name, and its position is its index.
REDUNDANT: dict[type, tuple[str, ...]] = {ToolCall: ("index",), ToolResult: ("name",)}


def _convert_foreign(part: AnyPart, path: str, notes: NoticeMerger) -> AnyPart:
    if part.extra:
        names = ", ".join(sorted(lost_extra_fields(part) - set(REDUNDANT.get(type(part), ()))))
        if names:
            message = f"Anthropic has no {names} in a {type(part).__name__}; it is not sent."
            notes.add("field_left_out", path, message)
        part = msgspec.structs.replace(part, extra={})
    if isinstance(part, Thinking | RedactedThinking) and part.cache is not None:
        return msgspec.structs.replace(part, cache=None)
    convert = CONVERTERS.get(type(part))
    return part if convert is None else convert(part, path, notes)


def _convert_result(part: ToolResult, path: str, notes: NoticeMerger) -> AnyPart:
    content: Any = tuple(_convert_foreign(inner, path, notes) for inner in part.content)
    same = all(map(operator.is_, content, part.content))
    return part if same else msgspec.structs.replace(part, content=content)


CONVERTERS: dict[type, Callable[[Any, str, NoticeMerger], AnyPart]] = {
    ToolCall: wrap_invalid_arguments,
    ToolResult: _convert_result,
}


# The breakpoint of an unknown block, whose TTL is not read.
OPAQUE = CacheMark()
# Parts that can contain breakpoints in their content.
CONTAINERS = (ToolResult, Unknown)
ChangeCacheControl = Callable[[CacheMark], CacheMark | None]


def _iterate_breakpoints(part: AnyPart) -> Iterator[CacheMark]:
    """Yield the breakpoints of a part in order, the content of a tool result first.

    An unknown part has only the breakpoint in its bytes.
    """
    if type(part) is Unknown:
        if CACHE_CONTROL.search(part.raw) is not None:
            yield OPAQUE
        return
    if type(part) is ToolResult:
        for inner in part.content:
            if inner.cache is not None or type(inner) is Unknown:
                yield from _iterate_breakpoints(inner)
    if part.cache is not None:
        yield part.cache


def _change_breakpoints(part: AnyPart, change: ChangeCacheControl) -> AnyPart:
    """Return the part with changed breakpoints; the same object if none changes."""
    if isinstance(part, Unknown):
        if CACHE_CONTROL.search(part.raw) is None:
            return part
        fields = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
        if "cache_control" not in fields or change(OPAQUE) is not None:
            return part
        del fields["cache_control"]
        return msgspec.structs.replace(part, raw=msgspec.json.encode(fields))
    if isinstance(part, ToolResult):
        content: Any = tuple(_change_breakpoints(inner, change) for inner in part.content)
        if not all(map(operator.is_, content, part.content)):
            part = msgspec.structs.replace(part, content=content)
    cache = None if part.cache is None else change(part.cache)
    return part if cache is part.cache else msgspec.structs.replace(part, cache=cache)


def _change_turns(turns: Sequence[MessageDraft], change: ChangeCacheControl) -> None:
    for turn in turns:
        if any(part.cache or type(part) in CONTAINERS for part in turn.parts):
            turn.change([_change_breakpoints(part, change) for part in turn.parts])


def _drop_first(surplus: int) -> ChangeCacheControl:
    """Return a change that drops the first `surplus` breakpoints."""
    remaining = iter(range(surplus))
    return lambda cache: cache if next(remaining, None) is None else None


def _get_tools(fields: Fields) -> list[Any]:
    tools = fields.get("tools")
    return tools if isinstance(tools, list) else []


def _has_cache_control(tool: Any) -> bool:
    return isinstance(tool, dict) and bool(tool.get("cache_control"))


def _count_in_drafts(turns: Iterable[MessageDraft]) -> int:
    count = 0
    for turn in turns:
        for part in turn.parts:
            if part.cache is not None or type(part) in CONTAINERS:
                count += len(list(_iterate_breakpoints(part)))
    return count


def fit_cache_breakpoints(
    fields: Fields, head: MessageDraft, turns: Sequence[MessageDraft], notes: NoticeMerger
) -> Fields:
    """Change the breakpoints to a number and an order that the API accepts."""
    count = _count_breakpoints(fields, head, turns)
    if count > MAX_CACHE_BREAKPOINTS:
        fields = _limit_breakpoints(fields, head, turns, notes)
    return _order_breakpoints(fields, head, turns, notes) if count > 1 else fields


def _count_breakpoints(fields: Fields, head: MessageDraft, turns: Sequence[MessageDraft]) -> int:
    own = 1 if fields.get("cache_control") else 0
    return own + sum(map(_has_cache_control, _get_tools(fields))) + _count_in_drafts((head, *turns))


def _limit_breakpoints(
    fields: Fields, head: MessageDraft, turns: Sequence[MessageDraft], notes: NoticeMerger
) -> Fields:
    """Remove breakpoints above the limit, the oldest in the messages first.

    The last three of tools and system prompt stay if the messages have one.
    """
    own = 1 if fields.get("cache_control") else 0
    moving, fixed = _count_in_drafts(turns), _count_breakpoints(fields, head, ()) - own
    surplus = own + moving + fixed - MAX_CACHE_BREAKPOINTS
    notes.add(
        "cache_mark_left_out",
        "cache_control",
        f"Anthropic allows {MAX_CACHE_BREAKPOINTS} cache breakpoints; {surplus} are not sent.",
    )
    room = MAX_CACHE_BREAKPOINTS - own
    remaining = min(fixed, room if own or not moving else room - 1)
    _change_turns(turns, _drop_first(moving - min(moving, room - remaining)))
    surplus = fixed - remaining
    tools = []
    for tool in _get_tools(fields):
        drops = surplus > 0 and _has_cache_control(tool)
        tools.append({k: tool[k] for k in tool if k != "cache_control"} if drops else tool)
        surplus -= drops
    _change_turns((head,), _drop_first(surplus))
    return {**fields, "tools": tools} if tools else fields


def _order_breakpoints(
    fields: Fields, head: MessageDraft, turns: Sequence[MessageDraft], notes: NoticeMerger
) -> Fields:
    """Shorten one-hour breakpoints after a five-minute one: the API refuses that order."""
    tools = _get_tools(fields)
    controls = [tool["cache_control"] for tool in tools if _has_cache_control(tool)]
    ttls = [control.get("ttl") if isinstance(control, dict) else None for control in controls]
    parts = (part for turn in (head, *turns) for part in turn.parts)
    caches = (cache for part in parts for cache in _iterate_breakpoints(part))
    ttls += [cache.ttl for cache in caches if cache is not OPAQUE]
    hours = [ttl == HOUR for ttl in ttls]
    if hours == sorted(hours, reverse=True):
        return fields
    notes.add(
        "cache_mark_changed",
        "cache_control",
        "A one-hour cache breakpoint after a five-minute one is sent as five minutes.",
    )
    first_short = hours.index(False)
    position = itertools.count()
    changed = [
        _shorten_tool(tool) if _has_cache_control(tool) and next(position) >= first_short else tool
        for tool in tools
    ]
    count = len(controls)
    for turn in (head, *turns):
        shortened: list[AnyPart] = []
        for part in turn.parts:
            shortened.append(part if count < first_short else _change_breakpoints(part, _shorten))
            count += sum(cache is not OPAQUE for cache in _iterate_breakpoints(part))
        turn.change(shortened)
    return {**fields, "tools": changed} if tools else fields


def _shorten(cache: CacheMark) -> CacheMark:
    return CacheMark() if cache.ttl == HOUR else cache


def _shorten_tool(tool: Fields) -> Fields:
    control = tool["cache_control"]
    if not isinstance(control, dict):
        return tool
    return {**tool, "cache_control": {name: control[name] for name in control if name != "ttl"}}
