"""Converse requests: system, messages and parameters as one body. The model's id is in the URL."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Text,
    ToolResult,
    Unknown,
)
from cllm.wire.bedrock.history import Cleaner, Sent, clean_history, encode_message
from cllm.wire.bedrock.models import Features, features
from cllm.wire.bedrock.options import decode_options, encode_options
from cllm.wire.bedrock.parts import Block, encode_blocks, encode_mark
from cllm.wire.calls import Aliases, Rule, address, named
from cllm.wire.malformed import NotExpressibleError
from cllm.wire.spoken import (
    Encoded,
    Mend,
    Notes,
    Spoken,
    called_names,
    starts_with_thinking,
    unmended,
)

__all__ = ["NotExpressibleError", "decode_options", "encode_options", "encode_request"]

MOST_MARKS = 4
MODEL_FIELDS = "additionalModelRequestFields"
NOT_IN_BODY = ("messages", "modelId", "stream", "system")


NAMES = Rule(longest=64)
IDS = Rule(allowed=r"a-zA-Z0-9_.:-", longest=64)


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[Spoken],
    parameters: dict[str, Any],
    mend: Mend = unmended,
) -> Encoded:
    """Encode a request body; `parameters` are Converse's own."""
    notes = Notes()
    known = features(model)
    cleaner = Cleaner(known, notes)
    aliases = Aliases(names=NAMES, ids=IDS)
    prompt = _encode_system(system or (), messages, cleaner, notes)
    mended = mend(tuple(address(tuple(clean_history(messages, cleaner)), aliases)))
    sent = [encode_message(spoken) for spoken in mended.messages]
    called = called_names(part for spoken in mended.messages for part in spoken.parts)
    config = _tool_config(parameters.get("toolConfig"), called, cleaner, known, notes)
    config = _under_aliases(config, aliases)
    tools: list[Block] = config["tools"] if config else []
    kept = _limit_marks(tools, prompt, sent, notes)
    _order_marks(*kept, sent)
    body: Block = {}
    if config:
        body["toolConfig"] = config | {"tools": kept[0]}
    if prompt:
        body["system"] = kept[1]
    body["messages"] = [_message(message) for message in sent]
    hidden = (*NOT_IN_BODY, "toolConfig")
    body |= {name: value for name, value in parameters.items() if name not in hidden}
    if _is_open_loop_without_thinking(mended.messages):
        _stop_thinking(body, "thinking is off: the open calls have none", notes)
    elif mended.messages and mended.messages[-1].role == "assistant":
        _stop_thinking(body, "thinking is off: the beginning of the answer was given", notes)
    return Encoded(
        body=msgspec.json.encode(body),
        notices=(*notes.notices(), *mended.notices),
        names=aliases.names,
        ids=aliases.ids,
    )


def _message(sent: Sent) -> Any:
    if sent.raw is not None:
        return msgspec.Raw(sent.raw)
    return {"role": sent.role, "content": sent.blocks}


def _encode_system(
    system: Sequence[AnyPart], messages: Sequence[Spoken], cleaner: Cleaner, notes: Notes
) -> list[Block]:
    """Encode the system prompt, followed by system messages of the history."""
    blocks = _system_blocks(system, "system", cleaner, notes)
    begun = False
    for spoken in messages:
        if spoken.role == "system":
            path = f"messages[{spoken.place}]"
            blocks += _system_blocks(spoken.parts, path, cleaner, notes)
            if begun:
                notes.add("system_moved", path, "Bedrock has one place for system messages")
        begun = begun or spoken.role != "system"
    return blocks


def _system_blocks(
    parts: Sequence[AnyPart], path: str, cleaner: Cleaner, notes: Notes
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
    given: Any, called: Sequence[str], cleaner: Cleaner, known: Features, notes: Notes
) -> Block | None:
    """Return the offered tools, or those that the history calls if there are none."""
    if not isinstance(given, dict) or not isinstance(given.get("tools"), list | tuple):
        given = {}
    tools = [tool for tool in given.get("tools", ()) if isinstance(tool, dict)]
    if not any("cachePoint" not in tool for tool in tools):
        schema = {"json": {"type": "object"}}
        known_tools = [{"toolSpec": {"name": name, "inputSchema": schema}} for name in called]
        if not known_tools:
            return None
        why = "the tools called in the history, which Bedrock wants described: one may be called"
        notes.add("tools_added", "tools", why)
        return {"tools": known_tools}
    config = dict(given)
    config["tools"] = list(_encode_tools(tools, cleaner, known, notes))
    return config


def _under_aliases(config: Block | None, aliases: Aliases) -> Block | None:
    if config is None:
        return None
    tools = [named(tool, aliases, "toolSpec", "name") for tool in config["tools"]]
    under: Block = named(config, aliases, "toolChoice", "tool", "name")
    return under | {"tools": tools}


def _encode_tools(
    tools: list[Block], cleaner: Cleaner, known: Features, notes: Notes
) -> Iterator[Block]:
    for tool in tools:
        point = tool.get("cachePoint")
        if not isinstance(point, dict):
            yield tool
        elif known.cache_tools:
            mark = cleaner.clean_mark(CacheMark(ttl=point.get("ttl")), "tools")
            yield encode_mark(mark or CacheMark())
        else:
            notes.add("cache_mark_left_out", "tools", "this model keeps no cache of its tools")


def _is_open_loop_without_thinking(messages: Sequence[Spoken]) -> bool:
    """Whether the last results answer calls without thinking."""
    if len(messages) <= 1 or not isinstance(next(iter(messages[-1].parts), None), ToolResult):
        return False
    return not starts_with_thinking(messages[-2].parts)


def _stop_thinking(body: Block, why: str, notes: Notes) -> None:
    """Disable thinking: Claude refuses it in a loop or an answer that began without."""
    fields = body.get(MODEL_FIELDS)
    fields = fields if isinstance(fields, dict) else {}
    thinking = fields.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        notes.add("thinking_disabled", "thinking", why)
        body[MODEL_FIELDS] = {name: fields[name] for name in fields if name != "thinking"}


def _limit_marks(
    tools: list[Block], prompt: list[Block], sent: list[Sent], notes: Notes
) -> tuple[list[Block], list[Block]]:
    """Keep at most four cache points: the last of tools and system, the newest of the messages."""
    fixed = _marks(tools) + _marks(prompt)
    moving = [mark for message in sent for mark in _marks(message.blocks)]
    if len(fixed) + len(moving) <= MOST_MARKS:
        return tools, prompt
    notes.add("cache_mark_left_out", "messages", f"Bedrock takes {MOST_MARKS} cache points")
    still = fixed[-(MOST_MARKS - 1) :] if moving else fixed[-MOST_MARKS:]
    newest = moving[-(MOST_MARKS - len(still)) :]
    kept = {id(mark) for mark in (*still, *newest)}
    for message in sent:
        blocks = _without(message.blocks, kept)
        if len(blocks) < len(message.blocks):
            message.blocks = blocks
            message.raw = None
    return _without(tools, kept), _without(prompt, kept)


def _order_marks(tools: list[Block], prompt: list[Block], sent: list[Sent]) -> None:
    """Shorten one-hour cache points after a five-minute one."""
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
    return [
        block
        for block in blocks
        if not (isinstance(block, dict) and "cachePoint" in block) or id(block) in kept
    ]


COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_count(body: bytes) -> bytes:
    """Convert a Converse body to a token count body."""
    fields = _fields.decode(body)
    counted = {name: fields[name] for name in COUNTED if name in fields}
    return msgspec.json.encode({"input": {"converse": counted}})
