"""Converse requests: system, messages and parameters as one body. The model's id is in the URL.

Also makes a history one that Converse accepts: what it has no form for leaves with a notice, and
cache points above the limit are removed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
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
from cllm.wire.bedrock.models import BedrockFeatures, find_features
from cllm.wire.bedrock.options import encode_options
from cllm.wire.bedrock.parts import TTLS, Block, encode_blocks, encode_cache_point
from cllm.wire.media import is_base64, normalize_base64
from cllm.wire.messages import (
    INVALID_JSON,
    Aliases,
    AliasRule,
    EncodedRequest,
    NoticeMerger,
    OutgoingMessage,
    Repair,
    alias_field,
    apply_aliases,
    check_not_emptied,
    is_json_object,
    list_called_tools,
    lost_extra_fields,
    no_repair,
    replace_parts,
    starts_with_thinking,
    wrap_arguments,
)

__all__ = ["encode_options", "encode_request"]

EMPTY = "(empty)"
CACHE_POINT = b'{"cachePoint"'
FILES = (Image, Document)
SHARED_FIELDS: dict[type, frozenset[str]] = {Document: frozenset({"context", "citations"})}
"""Fields with the same name and meaning in another protocol."""

_TITLE = re.compile(r"[a-zA-Z0-9()\[\]-]+(?:\s[a-zA-Z0-9()\[\]-]+)*", re.ASCII)
_NOT_TITLE = re.compile(r"[^a-zA-Z0-9\s()\[\]-]+", re.ASCII)
_LONGEST_TITLE = 200
_DATA_URL = re.compile(r"data:([^,]*);base64,")
ATTACHED = "(document attached)"
MAX_CACHE_POINTS = 4
MODEL_FIELDS = "additionalModelRequestFields"
NOT_IN_PARAMETERS = ("messages", "modelId", "stream", "system", "toolConfig")
NAMES = AliasRule(longest=64)
IDS = AliasRule(allowed=r"a-zA-Z0-9_.:-", longest=64)
COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")


class PartConverter:
    """Converts the parts of one request; remembers the document titles it assigned."""

    def __init__(self, known: BedrockFeatures, notes: NoticeMerger) -> None:
        self._known = known
        self._notes = notes
        self._titles: set[str] = set()
        # Title prefix → the highest number that was appended to it.
        self._numbers: dict[str, int] = {}

    def clean(self, part: AnyPart, *, role: Role, path: str, own: bool) -> AnyPart | None:
        """Return the part to send, or None. `own`: it is in Converse's format."""
        part = self._with_mark(part, path)
        if not own:
            part = self._without_foreign(part, path)
            if role == "assistant" and isinstance(part, FILES):
                self._notes.add("part_left_out", path, "Bedrock takes files from the user only")
                return None
        return CLEANERS[type(part)](self, part, path)

    def clean_refusal(self, part: Refusal, path: str) -> Text:
        self._notes.add("refusal_as_text", path, "a refusal is sent as plain text")
        return Text(text=part.text, cache=part.cache)

    def _with_mark(self, part: AnyPart, path: str) -> AnyPart:
        mark = part.cache
        if mark is None:
            return part
        kept = self.clean_mark(mark, path)
        if kept is not None and isinstance(part, Thinking | RedactedThinking):
            self._notes.add("cache_mark_left_out", path, "thinking carries no cache mark")
            kept = None
        return part if kept is mark else msgspec.structs.replace(part, cache=kept)

    def clean_mark(self, mark: CacheMark, path: str) -> CacheMark | None:
        if not self._known.cache:
            self._notes.add("cache_mark_left_out", path, "this model keeps no prompt cache")
            return None
        if mark.ttl is None or (mark.ttl in TTLS and (self._known.cache_hour or mark.ttl == "5m")):
            return mark
        self._notes.add("cache_ttl_left_out", path, f"this model keeps no cache for {mark.ttl}")
        return CacheMark()

    def _without_foreign(self, part: AnyPart, path: str) -> AnyPart:
        if isinstance(part, ToolResult) and any(piece.extra for piece in part.content):
            content = [self._without_foreign(piece, path) for piece in part.content]
            part = msgspec.structs.replace(part, content=tuple(content))
        if not part.extra:
            return part
        shared = SHARED_FIELDS.get(type(part), frozenset())
        for name in sorted(lost_extra_fields(part)):
            if name not in shared:
                self._notes.add("field_left_out", path, f"Bedrock has no field {name} here")
        kept = {name: value for name, value in part.extra.items() if name in shared}
        return msgspec.structs.replace(part, extra=kept)

    def clean_document(self, part: Document, _path: str) -> Document:
        if part.data is not None:
            part = normalize_base64(part, part.data)
        unique = self._unique_title(_title(part.name))
        return part if unique == part.name else msgspec.structs.replace(part, name=unique)

    def _unique_title(self, title: str) -> str:
        unique, beginning = title, title[: _LONGEST_TITLE - 8]
        while unique in self._titles:
            number = self._numbers[beginning] = self._numbers.get(beginning, 1) + 1
            unique = f"{beginning} ({number})"
        self._titles.add(unique)
        return unique

    def clean_call(self, part: ToolCall, path: str) -> ToolCall:
        if not part.arguments or is_json_object(part.arguments):
            return part
        problem = f"a call's arguments were no JSON object, and go as {INVALID_JSON}"
        self._notes.add("arguments_changed", path, problem)
        return msgspec.structs.replace(part, arguments=wrap_arguments(part.arguments))

    def clean_result(self, part: ToolResult, path: str) -> ToolResult:
        """Fill an empty result; a mark inside moves to the whole result."""
        content: list[Any] = []
        mark = part.cache
        for piece in part.content:
            if piece.cache is None and type(piece) is Text and piece.text.strip():
                content.append(piece)
                continue
            marked = self._with_mark(piece, path)
            mark = mark or marked.cache
            if marked.cache is not None:
                marked = msgspec.structs.replace(marked, cache=None)
            kept = CLEANERS[type(marked)](self, marked, path)
            if kept is not None and not (isinstance(kept, Text) and not kept.text.strip()):
                content.append(kept)
        if not content:
            self._notes.add("result_filled", path, "Bedrock takes no empty tool result")
            content.append(Text(text=EMPTY))
        same = len(content) == len(part.content) and all(map(is_, content, part.content))
        if same and mark is part.cache:
            return part
        return msgspec.structs.replace(part, content=tuple(content), cache=mark)

    def clean_thinking(self, part: Thinking, path: str) -> Thinking | None:
        if self._known.thinking != "none":
            return part
        self._notes.add("thinking_left_out", path, "this model takes no thinking")
        return None

    def clean_redacted(self, part: RedactedThinking, path: str) -> RedactedThinking | None:
        if self._known.thinking != "none" and part.data and is_base64(part.data):
            return part
        self._notes.add("thinking_left_out", path, "redacted thinking that cannot be sent here")
        return None

    def clean_unknown(self, part: Unknown, path: str) -> Unknown | None:
        if part.dialect != "bedrock":
            self._notes.add("part_left_out", path, f"a block that only {part.dialect} has")
            return None
        if part.raw.startswith(CACHE_POINT):
            self._notes.add("cache_mark_left_out", path, "a cache point where none may stand")
            return None
        return part


def _clean_image(_cleaner: PartConverter, part: Image, _path: str) -> Image:
    found = _DATA_URL.match(part.url or "") if part.data is None else None
    if found is not None and part.url is not None:
        part = msgspec.structs.replace(
            part, url=None, media_type=found.group(1), data=part.url[found.end() :]
        )
    return part if part.data is None else normalize_base64(part, part.data)


def _title(name: str | None) -> str:
    if name and len(name) <= _LONGEST_TITLE and _TITLE.fullmatch(name):
        return name
    plain = " ".join(_NOT_TITLE.sub("-", name or "").split())[:_LONGEST_TITLE].strip()
    return plain if plain.strip("- ") else "document"


CLEANERS: dict[type, Callable[[PartConverter, Any, str], AnyPart | None]] = {
    Document: PartConverter.clean_document,
    Image: _clean_image,
    RedactedThinking: PartConverter.clean_redacted,
    Refusal: PartConverter.clean_refusal,
    Text: lambda _cleaner, part, _path: part,
    Thinking: PartConverter.clean_thinking,
    ToolCall: PartConverter.clean_call,
    ToolResult: PartConverter.clean_result,
    Unknown: PartConverter.clean_unknown,
}


class BedrockMessage(msgspec.Struct, kw_only=True):
    """A message to send: its blocks, and its own bytes if nothing changed."""

    role: Role
    blocks: list[Block]
    raw: bytes | None = None


def clean_history(
    messages: Sequence[OutgoingMessage], cleaner: PartConverter
) -> Iterator[OutgoingMessage]:
    """Yield the messages in Converse's format, without system messages."""
    for number, spoken in enumerate(messages, start=1):
        if spoken.role != "system":
            cleaned = clean_message(spoken, f"messages[{spoken.prompt_index}]", cleaner)
            if number == len(messages):
                check_not_emptied(spoken, cleaned, "Bedrock")
            yield cleaned


def clean_message(spoken: OutgoingMessage, path: str, cleaner: PartConverter) -> OutgoingMessage:
    parts: list[AnyPart] = []
    same = True
    own = spoken.is_own("bedrock")
    for part in spoken.parts:
        kept = cleaner.clean(part, role=spoken.role, path=path, own=own)
        same = same and kept is part
        if kept is not None:
            parts.append(kept)
        elif part.cache is not None and parts and _can_be_marked(parts[-1]):
            mark = cleaner.clean_mark(part.cache, path)
            parts[-1] = msgspec.structs.replace(parts[-1], cache=mark)
    return spoken if same else replace_parts(spoken, parts)


def _can_be_marked(part: AnyPart) -> bool:
    return part.cache is None and not isinstance(part, Thinking | RedactedThinking)


def encode_message(spoken: OutgoingMessage) -> BedrockMessage:
    role: Role = "assistant" if spoken.role == "assistant" else "user"
    if Document in map(type, spoken.parts):
        return _encode_documents(role, spoken.parts, spoken.raw)
    blocks: list[Block] = []
    for part in spoken.parts:
        blocks += encode_blocks(part)
    return BedrockMessage(role=role, blocks=blocks, raw=spoken.raw)


def _encode_documents(role: Role, parts: Sequence[AnyPart], raw: bytes | None) -> BedrockMessage:
    blocks: list[Block] = []
    waiting: CacheMark | None = None
    for part in parts:
        if isinstance(part, Document):
            waiting = part.cache or waiting
            blocks += encode_blocks(msgspec.structs.replace(part, cache=None))
            raw = raw if part.cache is None else None
            continue
        blocks += encode_blocks(part)
        if waiting is not None and _can_be_marked(part):
            blocks.append(encode_cache_point(waiting))
        waiting = waiting if isinstance(part, Thinking | RedactedThinking) else None
    if waiting is not None or not any(isinstance(p, Text) and not p.extra for p in parts):
        blocks.append({"text": ATTACHED})
        raw = None
    if waiting is not None:
        blocks.append(encode_cache_point(waiting))
    return BedrockMessage(role=role, blocks=blocks, raw=raw)


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[OutgoingMessage],
    parameters: dict[str, Any],
    repair: Repair = no_repair,
) -> EncodedRequest:
    """Encode a request body; `parameters` are Converse's own."""
    notes = NoticeMerger()
    known = find_features(model)
    cleaner = PartConverter(known, notes)
    aliases = Aliases(names=NAMES, ids=IDS)
    prompt = _encode_system(system or (), messages, cleaner, notes)
    mended = repair(tuple(apply_aliases(tuple(clean_history(messages, cleaner)), aliases)))
    sent = [encode_message(spoken) for spoken in mended.messages]
    called = list_called_tools(part for spoken in mended.messages for part in spoken.parts)
    config = _tool_config(parameters.get("toolConfig"), called, cleaner, known, notes)
    tools: list[Block] = []
    if config:
        tools = [alias_field(tool, aliases, "toolSpec", "name") for tool in config["tools"]]
        config = alias_field(config, aliases, "toolChoice", "tool", "name")
    kept = _limit_marks(tools, prompt, sent, notes)
    _order_marks(*kept, sent)
    body: Block = {}
    if config:
        body["toolConfig"] = {**config, "tools": kept[0]}
    if prompt:
        body["system"] = kept[1]
    body["messages"] = [
        {"role": message.role, "content": message.blocks}
        if message.raw is None
        else msgspec.Raw(message.raw)
        for message in sent
    ]
    body |= {name: value for name, value in parameters.items() if name not in NOT_IN_PARAMETERS}
    if _is_open_loop_without_thinking(mended.messages):
        _stop_thinking(body, "thinking is off: the open calls have none", notes)
    elif mended.messages and mended.messages[-1].role == "assistant":
        _stop_thinking(body, "thinking is off: the beginning of the answer was given", notes)
    return EncodedRequest(
        body=msgspec.json.encode(body),
        notices=(*notes.notices(), *mended.notices),
        names=aliases.names,
        ids=aliases.ids,
    )


def _encode_system(
    system: Sequence[AnyPart],
    messages: Sequence[OutgoingMessage],
    cleaner: PartConverter,
    notes: NoticeMerger,
) -> list[Block]:
    blocks = _system_blocks(system, "system", cleaner, notes)
    begun = False
    for spoken in messages:
        if spoken.role == "system":
            path = f"messages[{spoken.prompt_index}]"
            blocks += _system_blocks(spoken.parts, path, cleaner, notes)
            if begun:
                notes.add("system_moved", path, "Bedrock has one place for system messages")
        begun = begun or spoken.role != "system"
    return blocks


def _system_blocks(
    parts: Sequence[AnyPart], path: str, cleaner: PartConverter, notes: NoticeMerger
) -> list[Block]:
    blocks: list[Block] = []
    for part in parts:
        own = isinstance(part, Unknown) and part.dialect == "bedrock"
        if not own and not isinstance(part, Text):
            kind = type(part).__name__
            notes.add("part_left_out", path, f"a system prompt on Bedrock holds no {kind}")
            continue
        kept = cleaner.clean(part, role="system", path=path, own=own)
        blank = isinstance(kept, Text) and not kept.text.strip()
        if kept is not None and not blank:
            blocks += encode_blocks(kept)
    return blocks


def _tool_config(
    given: Any,
    called: Sequence[str],
    cleaner: PartConverter,
    known: BedrockFeatures,
    notes: NoticeMerger,
) -> Block | None:
    if not isinstance(given, dict) or not isinstance(given.get("tools"), list | tuple):
        given = {}
    tools = [tool for tool in given.get("tools", ()) if isinstance(tool, dict)]
    if any("cachePoint" not in tool for tool in tools):
        return {**given, "tools": list(_encode_tools(tools, cleaner, known, notes))}
    if not called:
        return None
    why = "the tools called in the history, which Bedrock wants described: one may be called"
    notes.add("tools_added", "tools", why)
    schema = {"json": {"type": "object"}}
    return {"tools": [{"toolSpec": {"name": name, "inputSchema": schema}} for name in called]}


def _encode_tools(
    tools: list[Block], cleaner: PartConverter, known: BedrockFeatures, notes: NoticeMerger
) -> Iterator[Block]:
    for tool in tools:
        point = tool.get("cachePoint")
        if not isinstance(point, dict):
            yield tool
        elif known.cache_tools:
            mark = cleaner.clean_mark(CacheMark(ttl=point.get("ttl")), "tools")
            yield encode_cache_point(mark or CacheMark())
        else:
            notes.add("cache_mark_left_out", "tools", "this model keeps no cache of its tools")


def _is_open_loop_without_thinking(messages: Sequence[OutgoingMessage]) -> bool:
    if len(messages) <= 1 or not isinstance(next(iter(messages[-1].parts), None), ToolResult):
        return False
    return not starts_with_thinking(messages[-2].parts)


def _stop_thinking(body: Block, why: str, notes: NoticeMerger) -> None:
    """Disable thinking: Claude refuses it in a loop or an answer that began without."""
    fields = body.get(MODEL_FIELDS)
    fields = fields if isinstance(fields, dict) else {}
    thinking = fields.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        notes.add("thinking_disabled", "thinking", why)
        body[MODEL_FIELDS] = {name: fields[name] for name in fields if name != "thinking"}


def _limit_marks(
    tools: list[Block], prompt: list[Block], sent: list[BedrockMessage], notes: NoticeMerger
) -> tuple[list[Block], list[Block]]:
    """Keep at most four cache points: the last of tools and system, the newest of the messages."""
    fixed = _marks(tools) + _marks(prompt)
    moving = [mark for message in sent for mark in _marks(message.blocks)]
    if len(fixed) + len(moving) <= MAX_CACHE_POINTS:
        return tools, prompt
    notes.add("cache_mark_left_out", "messages", f"Bedrock takes {MAX_CACHE_POINTS} cache points")
    still = fixed[-(MAX_CACHE_POINTS - 1) :] if moving else fixed[-MAX_CACHE_POINTS:]
    newest = moving[-(MAX_CACHE_POINTS - len(still)) :]
    kept = {id(mark) for mark in (*still, *newest)}
    for message in sent:
        blocks = _without(message.blocks, kept)
        if len(blocks) < len(message.blocks):
            message.blocks = blocks
            message.raw = None
    return _without(tools, kept), _without(prompt, kept)


def _order_marks(tools: list[Block], prompt: list[Block], sent: list[BedrockMessage]) -> None:
    shorter = False
    for message in (None, *sent):
        blocks = message.blocks if message else [*tools, *prompt]
        for mark in _marks(blocks):
            hour = mark["cachePoint"].get("ttl") == "1h"
            if hour and shorter:
                del mark["cachePoint"]["ttl"]
                if message:
                    message.raw = None
            shorter = shorter or not hour


def _marks(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if isinstance(block, dict) and "cachePoint" in block]


def _without(blocks: list[Block], kept: set[int]) -> list[Block]:
    lost = {id(mark) for mark in _marks(blocks)} - kept
    return [block for block in blocks if id(block) not in lost]


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_count(body: bytes) -> bytes:
    """Convert a Converse body to a token count body."""
    fields = _fields.decode(body)
    counted = {name: fields[name] for name in COUNTED if name in fields}
    return msgspec.json.encode({"input": {"converse": counted}})
