"""A history in Anthropic's format: parts converted, system messages moved, cache marks limited.

An unchanged message keeps its bytes. The order of messages is not checked here.
"""

import base64
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
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
from cllm.wire.errors import NotExpressibleError
from cllm.wire.media import IMAGE_FORMATS, normalize_base64, normalize_media_type
from cllm.wire.messages import (
    EMPTY,
    INVALID_JSON,
    NoticeMerger,
    OutgoingMessage,
    check_not_emptied,
    is_json_object,
    lost_extra_fields,
    replace_parts,
    wrap_arguments,
)

MAX_CACHE_BREAKPOINTS = 4
HOUR = "1h"
EMPTY_CONTENT = re.compile(rb'"content"\s*:\s*(""|\[\s*\])')
CACHE_CONTROL = re.compile(rb'"cache_control"\s*:\s*\{')
PDF = "application/pdf"
SYSTEM_MESSAGES_SINCE = (4, 8)


class MessageDraft(msgspec.Struct):
    """A message to send, with its own bytes until something changes."""

    role: Role
    parts: Sequence[AnyPart]
    raw: bytes | None = None
    extra: Mapping[str, Any] = EMPTY

    def change(self, parts: Sequence[AnyPart]) -> None:
        """Set other parts; drops the bytes if the parts differ."""
        same = len(parts) == len(self.parts) and all(map(operator.is_, parts, self.parts))
        if not same:
            self.parts, self.raw = parts, None


def system_parts(parts: Sequence[AnyPart], notes: NoticeMerger) -> Iterator[AnyPart]:
    for part in parts:
        if not isinstance(part, Text):
            notes.add("part_left_out", "system", f"a system prompt has no {type(part).__name__}")
        elif part.text.strip():
            yield part


def arrange_messages(
    messages: Sequence[OutgoingMessage], model: str, notes: NoticeMerger
) -> tuple[list[OutgoingMessage], list[AnyPart]]:
    """Return the messages for Anthropic, and the system messages that may not stay among them."""
    said: list[OutgoingMessage] = []
    moved: list[AnyPart] = []
    begun = False
    for index, spoken in enumerate(messages):
        path = f"messages[{spoken.prompt_index}]"
        cleaned = clean_message(spoken, path, notes)
        if index == len(messages) - 1:
            check_not_emptied(spoken, cleaned, "Anthropic")
        if cleaned.role != "system" or _may_stay(messages, index, model):
            said.append(cleaned)
        else:
            moved += system_parts(cleaned.parts, notes)
            if begun:
                notes.add(
                    "system_moved", path, "a system message in the history, put with the system"
                )
        begun = begun or cleaned.role != "system"
    return said, moved


def _may_stay(messages: Sequence[OutgoingMessage], index: int, model: str) -> bool:
    """Whether a system message may stay: in Anthropic's format, on a model that accepts it."""
    before = messages[index - 1].role if index else "system"
    following = messages[index + 1].role if index + 1 < len(messages) else "assistant"
    own = messages[index].raw is not None
    stands = before in ("user", "tool") and following == "assistant"
    return own and stands and parse_claude_version(model) >= SYSTEM_MESSAGES_SINCE


def clean_message(spoken: OutgoingMessage, path: str, notes: NoticeMerger) -> OutgoingMessage:
    if len(spoken.parts) == 1 and type(spoken.parts[0]) is Text and not spoken.parts[0].extra:
        return spoken
    parts = _clean_parts(spoken.parts, path, notes, foreign=not spoken.is_own(DIALECT))
    same = len(parts) == len(spoken.parts) and all(map(operator.is_, parts, spoken.parts))
    return spoken if same and not _has_empty_result(spoken) else replace_parts(spoken, parts)


def _has_empty_result(spoken: OutgoingMessage) -> bool:
    """Whether a result has an empty content field, which the API refuses."""
    for part in spoken.parts:
        if type(part) is ToolResult and not part.content:
            return EMPTY_CONTENT.search(spoken.raw or b"") is not None
    return False


def _clean_parts(
    parts: Sequence[AnyPart], path: str, notes: NoticeMerger, *, foreign: bool
) -> Sequence[AnyPart]:
    said: list[AnyPart] = []
    for part in parts:
        if type(part) is Text and not (foreign and part.extra):
            said.append(part)
            continue
        clean = CLEANERS.get(type(part))
        cleaned = part if clean is None else clean(part, path, notes)
        if cleaned is not None and foreign:
            cleaned = _naturalise(cleaned, path, notes)
        if cleaned is not None:
            said.append(cleaned)
    return said


def _clean_unknown(part: Unknown, path: str, notes: NoticeMerger) -> AnyPart | None:
    if part.dialect == DIALECT:
        return part
    notes.add("part_left_out", path, f"a block that only {part.dialect} has")
    return None


def _clean_result(part: ToolResult, path: str, notes: NoticeMerger) -> AnyPart | None:
    if Unknown not in map(type, part.content):
        return part
    content: Any = tuple(_clean_parts(part.content, path, notes, foreign=False))
    same = len(content) == len(part.content)
    return part if same else msgspec.structs.replace(part, content=content)


CLEANERS: dict[type, Callable[[Any, str, NoticeMerger], AnyPart | None]] = {
    ToolResult: _clean_result,
    Unknown: _clean_unknown,
}
# Redundant: a call has the tool's name and its own position.
REDUNDANT: dict[type, tuple[str, ...]] = {ToolCall: ("index",), ToolResult: ("name",)}


def _naturalise(part: AnyPart, path: str, notes: NoticeMerger) -> AnyPart | None:
    if part.extra:
        names = ", ".join(sorted(lost_extra_fields(part) - set(REDUNDANT.get(type(part), ()))))
        if names:
            notes.add(
                "field_left_out", path, f"Anthropic has no {names} on a {type(part).__name__}"
            )
        part = msgspec.structs.replace(part, extra={})
    if isinstance(part, Thinking | RedactedThinking) and part.cache is not None:
        return msgspec.structs.replace(part, cache=None)
    change = CONVERTERS.get(type(part))
    return part if change is None else change(part, path, notes)


def _naturalise_image(part: Image, path: str, notes: NoticeMerger) -> AnyPart | None:
    if part.data is None and part.url is None:
        notes.add("part_left_out", path, "an image without data and without a URL")
        return None
    if part.data is None:
        return part
    kind = normalize_media_type(part.media_type)
    if kind not in IMAGE_FORMATS:
        raise NotExpressibleError(
            f"Anthropic takes no image of type {part.media_type}: "
            f"convert it to one of {', '.join(IMAGE_FORMATS.values())}."
        )
    part = normalize_base64(part, part.data)
    same = kind == part.media_type
    return part if same else msgspec.structs.replace(part, media_type=kind)


def _naturalise_document(part: Document, path: str, notes: NoticeMerger) -> AnyPart | None:
    if part.data is not None:
        return _naturalise_data(normalize_base64(part, part.data))
    if part.text is not None or part.url is not None:
        return part
    found = (
        "without content" if part.file_id is None else f"by another provider's id {part.file_id}"
    )
    notes.add("part_left_out", path, f"a document {found}")
    return None


def _naturalise_data(part: Document) -> AnyPart:
    kind = normalize_media_type(part.media_type)
    if kind == PDF:
        return msgspec.structs.replace(part, media_type=kind)
    if not kind.startswith("text/"):
        raise NotExpressibleError(
            f"Anthropic takes no document of type {part.media_type}: give it as PDF or as text."
        )
    try:
        text = base64.b64decode(part.data or "").decode()
    except UnicodeDecodeError as error:
        raise NotExpressibleError(f"a document of type {kind} is not text in UTF-8.") from error
    return msgspec.structs.replace(part, data=None, text=text, media_type="text/plain")


def _naturalise_call(part: ToolCall, path: str, notes: NoticeMerger) -> AnyPart | None:
    if not part.arguments or is_json_object(part.arguments):
        return part
    notes.add("arguments_changed", path, f"arguments that are no JSON object, as {INVALID_JSON}")
    return msgspec.structs.replace(part, arguments=wrap_arguments(part.arguments))


def _naturalise_result(part: ToolResult, path: str, notes: NoticeMerger) -> AnyPart | None:
    content = [_naturalise(inner, path, notes) for inner in part.content]
    if all(map(operator.is_, content, part.content)):
        return part
    kept: Any = tuple(inner for inner in content if inner is not None)
    return msgspec.structs.replace(part, content=kept)


CONVERTERS: dict[type, Callable[[Any, str, NoticeMerger], AnyPart | None]] = {
    Image: _naturalise_image,
    Document: _naturalise_document,
    ToolCall: _naturalise_call,
    ToolResult: _naturalise_result,
}


# Stands for the mark of an unknown block, whose lifetime is not read.
OPAQUE = CacheMark()
# Parts that can contain marks of other parts.
HOLDERS = (ToolResult, Unknown)
ChangeCacheControl = Callable[[CacheMark], CacheMark | None]


def _marks_of(part: AnyPart) -> Iterator[CacheMark]:
    """Yield the marks of a part in order; those in the content of a result come first.

    Of an unknown part only the mark in its bytes is sent, and so counted.
    """
    if type(part) is Unknown:
        if CACHE_CONTROL.search(part.raw) is not None:
            yield OPAQUE
        return
    if type(part) is ToolResult:
        for inner in part.content:
            if inner.cache is not None or type(inner) is Unknown:
                yield from _marks_of(inner)
    if part.cache is not None:
        yield part.cache


def _change_marks(part: AnyPart, change: ChangeCacheControl) -> AnyPart:
    """Return the part with changed marks; the same object if none changes."""
    if isinstance(part, Unknown):
        if CACHE_CONTROL.search(part.raw) is None:
            return part
        fields = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
        if "cache_control" not in fields or change(OPAQUE) is not None:
            return part
        del fields["cache_control"]
        return msgspec.structs.replace(part, raw=msgspec.json.encode(fields))
    if isinstance(part, ToolResult):
        content: Any = tuple(_change_marks(inner, change) for inner in part.content)
        if not all(map(operator.is_, content, part.content)):
            part = msgspec.structs.replace(part, content=content)
    mark = None if part.cache is None else change(part.cache)
    return part if mark is part.cache else msgspec.structs.replace(part, cache=mark)


def _change_turns(turns: Sequence[MessageDraft], change: ChangeCacheControl) -> None:
    for turn in turns:
        if any(part.cache or type(part) in HOLDERS for part in turn.parts):
            turn.change([_change_marks(part, change) for part in turn.parts])


def _drop_first(surplus: int) -> ChangeCacheControl:
    """Return a change that drops this many marks."""
    left = iter(range(surplus))
    return lambda mark: mark if next(left, None) is None else None


def _tools_of(fields: Fields) -> list[Any]:
    tools = fields.get("tools")
    return tools if isinstance(tools, list) else []


def _is_marked(tool: Any) -> bool:
    return isinstance(tool, dict) and bool(tool.get("cache_control"))


def _count(turns: Iterable[MessageDraft]) -> int:
    marks = 0
    for turn in turns:
        for part in turn.parts:
            if part.cache is not None or type(part) in HOLDERS:
                marks += len(list(_marks_of(part)))
    return marks


def count_cache_breakpoints(
    fields: Fields, head: MessageDraft, turns: Sequence[MessageDraft]
) -> int:
    own = 1 if fields.get("cache_control") else 0
    return own + sum(map(_is_marked, _tools_of(fields))) + _count((head, *turns))


def limit_cache_breakpoints(
    fields: Fields, head: MessageDraft, turns: Sequence[MessageDraft], notes: NoticeMerger
) -> Fields:
    """Remove cache marks above the limit, the oldest of the messages first.

    Of tools and system prompt the last three stay if the messages have a mark.
    """
    own = 1 if fields.get("cache_control") else 0
    moving, fixed = _count(turns), count_cache_breakpoints(fields, head, ()) - own
    surplus = own + moving + fixed - MAX_CACHE_BREAKPOINTS
    notes.add(
        "cache_mark_left_out",
        "cache_control",
        f"{surplus} of more than {MAX_CACHE_BREAKPOINTS} cache marks",
    )
    room = MAX_CACHE_BREAKPOINTS - own
    still = min(fixed, room if own or not moving else room - 1)
    _change_turns(turns, _drop_first(moving - min(moving, room - still)))
    surplus = fixed - still
    tools = []
    for tool in _tools_of(fields):
        marked = surplus > 0 and _is_marked(tool)
        tools.append({k: tool[k] for k in tool if k != "cache_control"} if marked else tool)
        surplus -= marked
    _change_turns((head,), _drop_first(surplus))
    return {**fields, "tools": tools} if tools else fields


def order_cache_breakpoints(
    fields: Fields, head: MessageDraft, turns: Sequence[MessageDraft], notes: NoticeMerger
) -> Fields:
    """Shorten one-hour marks after a five-minute mark: the API refuses that order."""
    tools = _tools_of(fields)
    marks = [tool["cache_control"] for tool in tools if _is_marked(tool)]
    ttls = [mark.get("ttl") if isinstance(mark, dict) else None for mark in marks]
    sent = (part for turn in (head, *turns) for part in turn.parts)
    ttls += [mark.ttl for part in sent for mark in _marks_of(part) if mark is not OPAQUE]
    hours = [ttl == HOUR for ttl in ttls]
    if hours == sorted(hours, reverse=True):
        return fields
    notes.add("cache_mark_changed", "cache_control", "a mark of an hour after one of five minutes")
    first_short = hours.index(False)
    position = itertools.count()
    changed = [
        _shortened(tool) if _is_marked(tool) and next(position) >= first_short else tool
        for tool in tools
    ]
    seen = len(marks)
    for turn in (head, *turns):
        parts: list[AnyPart] = []
        for part in turn.parts:
            parts.append(part if seen < first_short else _change_marks(part, _shorten))
            seen += sum(mark is not OPAQUE for mark in _marks_of(part))
        turn.change(parts)
    return {**fields, "tools": changed} if tools else fields


def _shorten(mark: CacheMark) -> CacheMark:
    return CacheMark() if mark.ttl == HOUR else mark


def _shortened(tool: Fields) -> Fields:
    mark = tool["cache_control"]
    if not isinstance(mark, dict):
        return tool
    return {**tool, "cache_control": {name: mark[name] for name in mark if name != "ttl"}}
