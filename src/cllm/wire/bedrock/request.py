"""Encodes Converse request bodies. The model's id is in the URL.

Also converts a history to Converse's format: content that it cannot express is removed with a
notice, and so are cache points above the limit.
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
from cllm.wire.media import is_base64
from cllm.wire.messages import (
    Aliases,
    AliasRule,
    EncodedRequest,
    NoticeMerger,
    OutgoingMessage,
    Repair,
    alias_field,
    apply_aliases,
    check_not_emptied,
    find_stray_system,
    list_called_tools,
    lost_extra_fields,
    no_repair,
    replace_parts,
    starts_with_thinking,
)
from cllm.wire.tool_arguments import wrap_invalid_arguments

__all__ = ["encode_options", "encode_request"]

EMPTY_RESULT_TEXT = "(empty)"
CACHE_POINT = b'{"cachePoint"'
SHARED_FIELDS: dict[type, frozenset[str]] = {Document: frozenset({"context", "citations"})}
"""Extra fields with the same name and meaning in another protocol."""

_TITLE = re.compile(r"[a-zA-Z0-9()\[\]-]+(?:\s[a-zA-Z0-9()\[\]-]+)*", re.ASCII)
_NOT_TITLE = re.compile(r"[^a-zA-Z0-9\s()\[\]-]+", re.ASCII)
_MAX_TITLE_LENGTH = 200
ATTACHED_TEXT = "(document attached)"
MAX_CACHE_POINTS = 4
MODEL_FIELDS = "additionalModelRequestFields"
EXCLUDED_PARAMETERS = ("messages", "modelId", "stream", "system", "toolConfig")
NAMES = AliasRule(max_length=64)
IDS = AliasRule(allowed=r"a-zA-Z0-9_.:-", max_length=64)
COUNTED_FIELDS = ("messages", "system", "toolConfig", "additionalModelRequestFields")


class PartConverter:
    """Converts the parts of one request, with unique document titles."""

    def __init__(self, features: BedrockFeatures, notes: NoticeMerger) -> None:
        self._features = features
        self._notes = notes
        self._titles: set[str] = set()
        # Title prefix → the highest number that was appended to it.
        self._numbers: dict[str, int] = {}

    def clean(self, part: AnyPart, *, path: str, own: bool) -> AnyPart | None:
        """Return the part to send, or None. `own`: the part is in Converse's format."""
        part = self._clean_part_cache(part, path)
        if not own:
            part = self._drop_foreign_fields(part, path)
        return CLEANERS[type(part)](self, part, path)

    def clean_refusal(self, part: Refusal, path: str) -> Text:
        self._notes.add("refusal_as_text", path, "A refusal is sent as plain text.")
        return Text(text=part.text, cache=part.cache)

    def _clean_part_cache(self, part: AnyPart, path: str) -> AnyPart:
        if part.cache is None:
            return part
        cache = self.clean_cache(part.cache, path)
        if cache is not None and isinstance(part, Thinking | RedactedThinking):
            message = "Thinking cannot have a cache point; it is not sent."
            self._notes.add("cache_mark_left_out", path, message)
            cache = None
        return part if cache is part.cache else msgspec.structs.replace(part, cache=cache)

    def clean_cache(self, cache: CacheMark, path: str) -> CacheMark | None:
        if not self._features.cache:
            message = "This model has no prompt cache; the cache point is not sent."
            self._notes.add("cache_mark_left_out", path, message)
            return None
        has_ttl = cache.ttl in TTLS and (self._features.cache_hour or cache.ttl == "5m")
        if cache.ttl is None or has_ttl:
            return cache
        message = f"This model has no cache TTL of {cache.ttl}; the default is sent."
        self._notes.add("cache_ttl_left_out", path, message)
        return CacheMark()

    def _drop_foreign_fields(self, part: AnyPart, path: str) -> AnyPart:
        if isinstance(part, ToolResult) and any(inner.extra for inner in part.content):
            content = [self._drop_foreign_fields(inner, path) for inner in part.content]
            part = msgspec.structs.replace(part, content=tuple(content))
        if not part.extra:
            return part
        shared = SHARED_FIELDS.get(type(part), frozenset())
        for name in sorted(lost_extra_fields(part)):
            if name not in shared:
                message = f"Bedrock has no field {name} here; it is not sent."
                self._notes.add("field_left_out", path, message)
        extra = {name: value for name, value in part.extra.items() if name in shared}
        return msgspec.structs.replace(part, extra=extra)

    def clean_document(self, part: Document, _path: str) -> Document:
        unique = self._make_unique(_clean_title(part.name))
        return part if unique == part.name else msgspec.structs.replace(part, name=unique)

    def _make_unique(self, title: str) -> str:
        unique, prefix = title, title[: _MAX_TITLE_LENGTH - 8]
        while unique in self._titles:
            number = self._numbers[prefix] = self._numbers.get(prefix, 1) + 1
            unique = f"{prefix} ({number})"
        self._titles.add(unique)
        return unique

    def clean_call(self, part: ToolCall, path: str) -> ToolCall:
        return wrap_invalid_arguments(part, path, self._notes)

    def clean_result(self, part: ToolResult, path: str) -> ToolResult:
        """Fill an empty result; a cache point in the content moves to the result."""
        content: list[Any] = []
        cache = part.cache
        for inner in part.content:
            if inner.cache is None and type(inner) is Text and inner.text.strip():
                content.append(inner)
                continue
            candidate = self._clean_part_cache(inner, path)
            cache = cache or candidate.cache
            if candidate.cache is not None:
                candidate = msgspec.structs.replace(candidate, cache=None)
            cleaned = CLEANERS[type(candidate)](self, candidate, path)
            if cleaned is not None and not (isinstance(cleaned, Text) and not cleaned.text.strip()):
                content.append(cleaned)
        if not content:
            message = f"Bedrock does not accept an empty tool result; {EMPTY_RESULT_TEXT} is sent."
            self._notes.add("result_filled", path, message)
            content.append(Text(text=EMPTY_RESULT_TEXT))
        same = len(content) == len(part.content) and all(map(is_, content, part.content))
        if same and cache is part.cache:
            return part
        return msgspec.structs.replace(part, content=tuple(content), cache=cache)

    def clean_thinking(self, part: Thinking, path: str) -> Thinking | None:
        if self._features.thinking != "none":
            return part
        self._notes.add(
            "thinking_left_out", path, "This model does not accept thinking; it is not sent."
        )
        return None

    def clean_redacted(self, part: RedactedThinking, path: str) -> RedactedThinking | None:
        if self._features.thinking != "none" and part.data and is_base64(part.data):
            return part
        message = "This model does not accept this redacted thinking; it is not sent."
        self._notes.add("thinking_left_out", path, message)
        return None

    def clean_unknown(self, part: Unknown, path: str) -> Unknown | None:
        if part.dialect != "bedrock":
            message = f"Only {part.dialect} has this block; it is not sent."
            self._notes.add("part_left_out", path, message)
            return None
        if part.raw.startswith(CACHE_POINT):
            message = "A cache point is not allowed here; it is not sent."
            self._notes.add("cache_mark_left_out", path, message)
            return None
        return part


def _clean_title(name: str | None) -> str:
    if name and len(name) <= _MAX_TITLE_LENGTH and _TITLE.fullmatch(name):
        return name
    plain = " ".join(_NOT_TITLE.sub("-", name or "").split())[:_MAX_TITLE_LENGTH].strip()
    return plain if plain.strip("- ") else "document"


CLEANERS: dict[type, Callable[[PartConverter, Any, str], AnyPart | None]] = {
    Document: PartConverter.clean_document,
    Image: lambda _converter, part, _path: part,
    RedactedThinking: PartConverter.clean_redacted,
    Refusal: PartConverter.clean_refusal,
    Text: lambda _converter, part, _path: part,
    Thinking: PartConverter.clean_thinking,
    ToolCall: PartConverter.clean_call,
    ToolResult: PartConverter.clean_result,
    Unknown: PartConverter.clean_unknown,
}


class BedrockMessage(msgspec.Struct, kw_only=True):
    """A message to send: its blocks, and its original bytes if nothing changed."""

    role: Role
    blocks: list[Block]
    raw: bytes | None = None


def clean_history(
    messages: Sequence[OutgoingMessage], converter: PartConverter
) -> Iterator[OutgoingMessage]:
    """Yield the messages in Converse's format, without those of the system prompt."""
    stray = find_stray_system(messages)
    for index, message in enumerate(messages):
        if message.role != "system" or index in stray:
            cleaned = clean_message(message, f"messages[{message.prompt_index}]", converter)
            if index == len(messages) - 1:
                check_not_emptied(message, cleaned, "Bedrock")
            yield cleaned


def clean_message(message: OutgoingMessage, path: str, converter: PartConverter) -> OutgoingMessage:
    parts: list[AnyPart] = []
    same = True
    own = message.is_own("bedrock")
    for part in message.parts:
        cleaned = converter.clean(part, path=path, own=own)
        same = same and cleaned is part
        if cleaned is not None:
            parts.append(cleaned)
        elif part.cache is not None and parts and _can_have_cache_point(parts[-1]):
            cache = converter.clean_cache(part.cache, path)
            parts[-1] = msgspec.structs.replace(parts[-1], cache=cache)
    return message if same else replace_parts(message, parts)


def _can_have_cache_point(part: AnyPart) -> bool:
    return part.cache is None and not isinstance(part, Thinking | RedactedThinking)


def encode_message(message: OutgoingMessage) -> BedrockMessage:
    role: Role = "assistant" if message.role == "assistant" else "user"
    if Document in map(type, message.parts):
        return _encode_documents(role, message.parts, message.raw)
    blocks: list[Block] = []
    for part in message.parts:
        blocks += encode_blocks(part)
    return BedrockMessage(role=role, blocks=blocks, raw=message.raw)


def _encode_documents(role: Role, parts: Sequence[AnyPart], raw: bytes | None) -> BedrockMessage:
    blocks: list[Block] = []
    pending: CacheMark | None = None
    for part in parts:
        if isinstance(part, Document):
            pending = part.cache or pending
            blocks += encode_blocks(msgspec.structs.replace(part, cache=None))
            raw = raw if part.cache is None else None
            continue
        blocks += encode_blocks(part)
        if pending is not None and _can_have_cache_point(part):
            blocks.append(encode_cache_point(pending))
        pending = pending if isinstance(part, Thinking | RedactedThinking) else None
    if pending is not None or not any(isinstance(p, Text) and not p.extra for p in parts):
        blocks.append({"text": ATTACHED_TEXT})
        raw = None
    if pending is not None:
        blocks.append(encode_cache_point(pending))
    return BedrockMessage(role=role, blocks=blocks, raw=raw)


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[OutgoingMessage],
    parameters: dict[str, Any],
    repair: Repair = no_repair,
) -> EncodedRequest:
    """Encode a request body; `parameters` are Converse's."""
    notes = NoticeMerger()
    features = find_features(model)
    converter = PartConverter(features, notes)
    aliases = Aliases(names=NAMES, ids=IDS)
    system_blocks = _encode_system(system or (), messages, converter, notes)
    repaired = repair(tuple(apply_aliases(tuple(clean_history(messages, converter)), aliases)))
    encoded = [encode_message(message) for message in repaired.messages]
    called = list_called_tools(part for message in repaired.messages for part in message.parts)
    config = _clean_tool_config(parameters.get("toolConfig"), called, converter, features, notes)
    tools: list[Block] = []
    if config:
        tools = [alias_field(tool, aliases, "toolSpec", "name") for tool in config["tools"]]
        config = alias_field(config, aliases, "toolChoice", "tool", "name")
    tools, system_blocks = _limit_cache_points(tools, system_blocks, encoded, notes)
    _order_cache_points(tools, system_blocks, encoded)
    body: Block = {}
    if config:
        body["toolConfig"] = {**config, "tools": tools}
    if system_blocks:
        body["system"] = system_blocks
    body["messages"] = [_join_blocks(message) for message in encoded]
    body |= {name: value for name, value in parameters.items() if name not in EXCLUDED_PARAMETERS}
    if MODEL_FIELDS in body:
        body[MODEL_FIELDS] = alias_field(body[MODEL_FIELDS], aliases, "tool_choice", "name")
    _fit_thinking(body, repaired.messages, notes)
    return EncodedRequest(
        body=msgspec.json.encode(body),
        notices=(*notes.notices(), *repaired.notices),
        names=aliases.names,
        ids=aliases.ids,
    )


def _join_blocks(message: BedrockMessage) -> Block | msgspec.Raw:
    if message.raw is not None:
        return msgspec.Raw(message.raw)
    return {"role": message.role, "content": message.blocks}


def _encode_system(
    system: Sequence[AnyPart],
    messages: Sequence[OutgoingMessage],
    converter: PartConverter,
    notes: NoticeMerger,
) -> list[Block]:
    blocks = _encode_system_parts(system, "system", converter, notes)
    started = False
    stray = find_stray_system(messages)
    for index, message in enumerate(messages):
        if message.role == "system" and index not in stray:
            path = f"messages[{message.prompt_index}]"
            blocks += _encode_system_parts(message.parts, path, converter, notes)
            if started:
                notes.add(
                    "system_moved",
                    path,
                    "A system message in the history is sent with the system prompt.",
                )
        started = started or message.role != "system"
    return blocks


def _encode_system_parts(
    parts: Sequence[AnyPart], path: str, converter: PartConverter, notes: NoticeMerger
) -> list[Block]:
    blocks: list[Block] = []
    for part in parts:
        own = isinstance(part, Unknown) and part.dialect == "bedrock"
        if not own and not isinstance(part, Text):
            kind = type(part).__name__
            message = f"A system prompt cannot contain a {kind}; it is not sent."
            notes.add("part_left_out", path, message)
            continue
        cleaned = converter.clean(part, path=path, own=own)
        is_blank = isinstance(cleaned, Text) and not cleaned.text.strip()
        if cleaned is not None and not is_blank:
            blocks += encode_blocks(cleaned)
    return blocks


def _clean_tool_config(
    config: Any,
    called: Sequence[str],
    converter: PartConverter,
    features: BedrockFeatures,
    notes: NoticeMerger,
) -> Block | None:
    if not isinstance(config, dict) or not isinstance(config.get("tools"), list | tuple):
        config = {}
    tools = [tool for tool in config.get("tools", ()) if isinstance(tool, dict)]
    if any("cachePoint" not in tool for tool in tools):
        return {**config, "tools": list(_clean_tools(tools, converter, features, notes))}
    if not called:
        return None
    message = "Tools called in the history are described in the request; the model can call them."
    notes.add("tools_added", "tools", message)
    schema = {"json": {"type": "object"}}
    return {"tools": [{"toolSpec": {"name": name, "inputSchema": schema}} for name in called]}


def _clean_tools(
    tools: list[Block], converter: PartConverter, features: BedrockFeatures, notes: NoticeMerger
) -> Iterator[Block]:
    for tool in tools:
        point = tool.get("cachePoint")
        if not isinstance(point, dict):
            yield tool
        elif features.cache_tools:
            cache = converter.clean_cache(CacheMark(ttl=point.get("ttl")), "tools")
            yield encode_cache_point(cache or CacheMark())
        else:
            message = "This model does not cache tools; the cache point is not sent."
            notes.add("cache_mark_left_out", "tools", message)


def _fit_thinking(body: Block, messages: Sequence[OutgoingMessage], notes: NoticeMerger) -> None:
    """Disable thinking where Claude refuses it: in a loop or reply that started without it."""
    if _is_open_loop_without_thinking(messages):
        message = "Thinking is disabled: the open tool call was made without thinking."
        _disable_thinking(body, message, notes)
    elif messages and messages[-1].role == "assistant":
        _disable_thinking(body, "Thinking is disabled: the reply is prefilled.", notes)


def _is_open_loop_without_thinking(messages: Sequence[OutgoingMessage]) -> bool:
    if len(messages) <= 1 or not isinstance(next(iter(messages[-1].parts), None), ToolResult):
        return False
    return not starts_with_thinking(messages[-2].parts)


def _disable_thinking(body: Block, message: str, notes: NoticeMerger) -> None:
    fields = body.get(MODEL_FIELDS)
    fields = fields if isinstance(fields, dict) else {}
    thinking = fields.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        notes.add("thinking_disabled", "thinking", message)
        body[MODEL_FIELDS] = {name: fields[name] for name in fields if name != "thinking"}


def _limit_cache_points(
    tools: list[Block], system: list[Block], messages: list[BedrockMessage], notes: NoticeMerger
) -> tuple[list[Block], list[Block]]:
    """Retain four cache points: the last of tools and system, and the newest of the messages."""
    fixed = _find_cache_points(tools) + _find_cache_points(system)
    moving = [point for message in messages for point in _find_cache_points(message.blocks)]
    if len(fixed) + len(moving) <= MAX_CACHE_POINTS:
        return tools, system
    text = f"Bedrock allows {MAX_CACHE_POINTS} cache points; the others are not sent."
    notes.add("cache_mark_left_out", "messages", text)
    last = fixed[-(MAX_CACHE_POINTS - 1) :] if moving else fixed[-MAX_CACHE_POINTS:]
    newest = moving[-(MAX_CACHE_POINTS - len(last)) :]
    retained = {id(point) for point in (*last, *newest)}
    for message in messages:
        blocks = _drop_cache_points(message.blocks, retained)
        if len(blocks) < len(message.blocks):
            message.blocks = blocks
            message.raw = None
    return _drop_cache_points(tools, retained), _drop_cache_points(system, retained)


def _order_cache_points(
    tools: list[Block], system: list[Block], messages: list[BedrockMessage]
) -> None:
    has_shorter = False
    for message in (None, *messages):
        blocks = message.blocks if message else [*tools, *system]
        for point in _find_cache_points(blocks):
            is_hour = point["cachePoint"].get("ttl") == "1h"
            if is_hour and has_shorter:
                del point["cachePoint"]["ttl"]
                if message:
                    message.raw = None
            has_shorter = has_shorter or not is_hour


def _find_cache_points(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if isinstance(block, dict) and "cachePoint" in block]


def _drop_cache_points(blocks: list[Block], retained: set[int]) -> list[Block]:
    dropped = {id(point) for point in _find_cache_points(blocks)} - retained
    return [block for block in blocks if id(block) not in dropped]


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_count(body: bytes) -> bytes:
    fields = _fields_decoder.decode(body)
    counted = {name: fields[name] for name in COUNTED_FIELDS if name in fields}
    return msgspec.json.encode({"input": {"converse": counted}})
