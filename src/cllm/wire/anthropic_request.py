"""Anthropic's Messages requests: whole bodies, between JSON and values.

Writing puts options and history together and fits the one to the other; reading keeps every message
as the bytes it came as. What cannot be said at all is an error that names it. Carries nothing and
keeps nothing.
"""

import itertools
from collections.abc import Sequence
from typing import Literal

import msgspec

from cllm.core.message import (
    AnyPart,
    Message,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from cllm.core.prompt import Prompt
from cllm.wire.anthropic_history import (
    MAX_MARKS,
    Log,
    Turn,
    arrange,
    count_marks,
    limit_marks,
    pair,
    system_parts,
)
from cllm.wire.anthropic_options import (
    DISABLED,
    Fields,
    Notices,
    decode_options,
    encode_options,
    field_error,
    fit,
)
from cllm.wire.anthropic_parts import DIALECT, UNREADABLE, encode_block
from cllm.wire.spoken import Encoded, Spoken

__all__ = [
    "EncodedRequest",
    "decode_options",
    "decode_request",
    "encode_options",
    "encode_request",
]

LOOP = ("assistant", "user")


class EncodedRequest(Encoded, frozen=True, kw_only=True):
    """A body, and the ids that stand in it for ids the API refuses: alias → the client's own."""

    aliases: dict[str, str] = msgspec.field(default_factory=dict)


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[Spoken],
    parameters: Fields,
    stream: bool,
) -> EncodedRequest:
    """The request body; `parameters` are in Anthropic's words. The same input, the same bytes."""
    log = Log()
    turns, moved = arrange(messages, model, log)
    aliases: dict[str, str] = {}
    pair(turns, aliases, log)
    head = Turn(role="system", parts=[*system_parts(system or (), log), *moved])
    fitted: Notices = []
    fields = _with_tools(fit(parameters, model, fitted), turns, log)
    fields = _fit_thinking(fields, turns, log)
    if count_marks(fields, head, turns) > MAX_MARKS:
        fields = limit_marks(fields, head, turns, log)
    asked = {name: value for name, value in fields.items() if name not in BODY}
    body: Fields = {"model": model, **asked}
    if head.parts:
        body["system"] = _encode_content(head.parts)
    body["messages"] = [_encode_turn(turn) for turn in turns]
    if stream:
        body["stream"] = True
    notices = (*fitted, *log.notices())
    return EncodedRequest(body=msgspec.json.encode(body), notices=notices, aliases=aliases)


def _with_tools(parameters: Fields, turns: Sequence[Turn], log: Log) -> Fields:
    """The parameters; with the tools that the history names, if it has calls and they have none."""
    if parameters.get("tools"):
        return parameters
    called = {part.name for turn in turns for part in turn.parts if isinstance(part, ToolCall)}
    if not called:
        return parameters
    log.add("added_tools", "tools", "the tools called in the history, not to be called again")
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]
    return {**parameters, "tools": tools, "tool_choice": {"type": "none"}}


def _fit_thinking(fields: Fields, turns: Sequence[Turn], log: Log) -> Fields:
    """Without thinking, if an open tool loop began without: the API wants its thinking back."""
    thinking = fields.get("thinking")
    if (
        not isinstance(thinking, dict)
        or thinking.get("type") != "enabled"
        or len(turns) < len(LOOP)
    ):
        return fields
    asked, answered = turns[-2:]
    is_loop = any(isinstance(part, ToolResult) for part in answered.parts)
    thought = isinstance(asked.parts[0], Thinking | RedactedThinking)
    if (asked.role, answered.role) != LOOP or not is_loop or thought:
        return fields
    log.add("thinking_disabled", "thinking", "the open tool call was made without thinking")
    return {**fields, "thinking": DISABLED}


def _encode_turn(turn: Turn) -> Fields | msgspec.Raw:
    if turn.raw is not None:
        return msgspec.Raw(turn.raw)
    return {"role": turn.role, "content": _encode_content(turn.parts)}


def _encode_content(parts: Sequence[AnyPart]) -> str | list[Fields | msgspec.Raw]:
    only = parts[0]
    if len(parts) == 1 and isinstance(only, Text) and not only.extra and only.cache is None:
        return only.text
    return [encode_block(part) for part in parts]


class _Typed(msgspec.Struct):
    type: str


class _WireMessage(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Typed]


class _Body(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    system: str | list[_Typed] | None = None
    stream: bool | None = None


BODY = frozenset(_Body.__struct_fields__)
_bodies = msgspec.json.Decoder(_Body)
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_wire_messages = msgspec.json.Decoder(_WireMessage)


def decode_request(body: bytes) -> Prompt:
    """A client's request: its messages as the bytes they were, all that is not one a parameter."""
    try:
        said = _bodies.decode(body)
        fields = _raw_fields.decode(body)
        parameters = {k: msgspec.json.decode(v) for k, v in fields.items() if k not in BODY}
    except UNREADABLE as error:
        raise field_error(error) from error
    return Prompt(
        model=said.model,
        system=_decode_system(fields["system"]) if said.system else None,
        messages=tuple(map(_decode_message, said.messages, itertools.count())),
        parameters=parameters,
        dialect=DIALECT,
        stream=bool(said.stream),
    )


def _decode_system(system: msgspec.Raw) -> Message:
    raw = b'{"role":"system","content":' + bytes(system).strip() + b"}"
    return Message(role="system", raw=raw, dialect=DIALECT)


def _decode_message(raw: msgspec.Raw, index: int) -> Message:
    try:
        role: Role = _wire_messages.decode(raw).role
    except UNREADABLE as error:
        raise field_error(error, f"messages[{index}]") from error
    return Message(role=role, raw=bytes(raw), dialect=DIALECT)
