"""A whole Converse request: system, messages and parameters as one body.

The same input gives the same bytes. The model's id is not in the body: it is in the path, and
here only says what the model can be told. Nothing is fetched, and no message is changed but on
its way out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cllm.core.message import AnyPart, CacheMark, Text, Unknown
from cllm.wire.bedrock_blocks import Block, encode_blocks, encode_mark
from cllm.wire.bedrock_clean import Cleaner
from cllm.wire.bedrock_history import Sent, encode_history
from cllm.wire.bedrock_models import Features, features
from cllm.wire.bedrock_options import Notes, encode_options
from cllm.wire.bedrock_parameters import decode_options
from cllm.wire.malformed import NotExpressibleError
from cllm.wire.spoken import Encoded, Spoken

__all__ = [
    "Aliases",
    "EncodedConverse",
    "NotExpressibleError",
    "decode_options",
    "encode_options",
    "encode_request",
]

MOST_MARKS = 4
MODEL_FIELDS = "additionalModelRequestFields"
NOT_IN_BODY = ("messages", "modelId", "stream", "system")


class Aliases(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent under another name: the name sent, and the client's own."""

    names: dict[str, str] = msgspec.field(default_factory=dict)
    ids: dict[str, str] = msgspec.field(default_factory=dict)


class EncodedConverse(Encoded, frozen=True, kw_only=True):
    """A Converse request; a reply's tool calls are given back under the client's names."""

    aliases: Aliases = msgspec.field(default_factory=Aliases)


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[Spoken],
    parameters: dict[str, Any],
) -> EncodedConverse:
    """The request's body. `parameters` are Converse's own, as `encode_options` gives them."""
    notes = Notes()
    known = features(model)
    cleaner = Cleaner(known, notes)
    if not any(spoken.role != "system" for spoken in messages):
        raise NotExpressibleError("Bedrock needs at least one message beside the system prompt.")
    prompt = _encode_system(system or (), messages, cleaner, notes)
    sent = encode_history(messages, cleaner, known, notes)
    config = _tool_config(parameters.get("toolConfig"), sent, cleaner, known, notes)
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
    if _is_open_loop_without_thinking(sent):
        _stop_thinking(body, notes)
    return EncodedConverse(
        body=msgspec.json.encode(body),
        notices=notes.all(),
        aliases=Aliases(names=cleaner.aliases.names, ids=cleaner.aliases.ids),
    )


def _message(sent: Sent) -> Any:
    if sent.raw is not None:
        return msgspec.Raw(sent.raw)
    return {"role": sent.role, "content": sent.blocks}


def _encode_system(
    system: Sequence[AnyPart], messages: Sequence[Spoken], cleaner: Cleaner, notes: Notes
) -> list[Block]:
    """The system prompt; instructions among the messages are added to its end."""
    blocks = _system_blocks(system, "system", cleaner, notes)
    begun = False
    for place, spoken in enumerate(messages):
        if spoken.role == "system":
            path = f"messages[{place}]"
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
            notes.add("part_dropped", path, f"a system prompt on Bedrock holds no {kind}")
            continue
        kept = cleaner.clean(part, role="system", path=path, own=own)
        if kept is not None:
            blocks += encode_blocks(kept)
    return blocks


def _tool_config(
    given: Any, sent: list[Sent], cleaner: Cleaner, known: Features, notes: Notes
) -> Block | None:
    """The tools under names that Bedrock takes; those of the history if the request has none."""
    if not isinstance(given, dict) or not isinstance(given.get("tools"), list | tuple):
        given = {}
    tools = [tool for tool in given.get("tools", ()) if isinstance(tool, dict)]
    if not any("cachePoint" not in tool for tool in tools):
        schema = {"json": {"type": "object"}}
        names = dict.fromkeys(_called(sent))
        known_tools = [{"toolSpec": {"name": name, "inputSchema": schema}} for name in names]
        return {"tools": known_tools} if known_tools else None
    config = dict(given)
    config["tools"] = list(_encode_tools(tools, cleaner, known, notes))
    choice = config.get("toolChoice")
    if isinstance(choice, dict):
        config["toolChoice"] = _named(choice, "tool", cleaner)
    return config


def _encode_tools(
    tools: list[Block], cleaner: Cleaner, known: Features, notes: Notes
) -> Iterator[Block]:
    for tool in tools:
        point = tool.get("cachePoint")
        if not isinstance(point, dict):
            yield _named(tool, "toolSpec", cleaner)
        elif known.cache_tools:
            mark = cleaner.clean_mark(CacheMark(ttl=point.get("ttl")), "tools")
            yield encode_mark(mark or CacheMark())
        else:
            notes.add("cache_mark_dropped", "tools", "this model keeps no cache of its tools")


def _is_open_loop_without_thinking(sent: list[Sent]) -> bool:
    """Whether the results at the end answer calls that no thinking went before."""
    if len(sent) == 1 or "toolResult" not in _first(sent[-1]):
        return False
    return "reasoningContent" not in _first(sent[-2])


def _first(message: Sent) -> Block:
    return message.blocks[0] if isinstance(message.blocks[0], dict) else {}


def _stop_thinking(body: Block, notes: Notes) -> None:
    """Claude refuses to think in the middle of a loop that it began without thinking."""
    fields = body.get(MODEL_FIELDS)
    fields = fields if isinstance(fields, dict) else {}
    thinking = fields.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        notes.add("thinking_disabled", "thinking", "thinking is off: the open calls have none")
        body[MODEL_FIELDS] = {name: fields[name] for name in fields if name != "thinking"}


def _named(holder: Block, field: str, cleaner: Cleaner) -> Block:
    """The same with its name as Bedrock takes it."""
    inner = holder.get(field)
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        return holder
    name = cleaner.aliases.name(inner["name"])
    return holder if name == inner["name"] else {**holder, field: {**inner, "name": name}}


def _called(sent: list[Sent]) -> list[str]:
    blocks = (block for message in sent for block in message.blocks)
    return [
        block["toolUse"]["name"]
        for block in blocks
        if isinstance(block, dict) and "toolUse" in block
    ]


def _limit_marks(
    tools: list[Block], prompt: list[Block], sent: list[Sent], notes: Notes
) -> tuple[list[Block], list[Block]]:
    """At most four cache points: those of the fixed beginning, and the newest of the messages."""
    fixed = _marks(tools) + _marks(prompt)
    moving = [mark for message in sent for mark in _marks(message.blocks)]
    if len(fixed) + len(moving) <= MOST_MARKS:
        return tools, prompt
    notes.add("cache_mark_dropped", "messages", f"Bedrock takes {MOST_MARKS} cache points")
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
    """An hour's cache points stand before those of five minutes; a later one becomes such."""
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
