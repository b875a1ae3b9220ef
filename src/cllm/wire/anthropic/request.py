"""Decodes and encodes request bodies of the Messages API.

Decoding preserves the bytes of every message.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from cllm.core.message import (
    AnyPart,
    Message,
    Role,
    Text,
    ToolResult,
)
from cllm.core.prompt import Original, Prompt, prompt_from_original
from cllm.wire.anthropic.history import (
    MessageDraft,
    arrange_messages,
    filter_system_parts,
    fit_cache_breakpoints,
)
from cllm.wire.anthropic.models import (
    DISABLED,
    Fields,
    NoticeSink,
    drop_idle_tool_choice,
    fit_parameters,
    parse_betas,
)
from cllm.wire.anthropic.options import decode_options, encode_options
from cllm.wire.anthropic.parts import DIALECT, encode_block
from cllm.wire.errors import UNREADABLE
from cllm.wire.messages import (
    Aliases,
    AliasRule,
    EncodedRequest,
    NoticeMerger,
    OutgoingMessage,
    Repair,
    alias_tools,
    apply_aliases,
    field_error,
    list_called_tools,
    no_repair,
    starts_with_thinking,
)

__all__ = [
    "EncodedMessagesRequest",
    "decode_options",
    "decode_request",
    "encode_options",
    "encode_request",
]

NAMES = AliasRule(max_length=128)
IDS = AliasRule(max_length=64)


class EncodedMessagesRequest(EncodedRequest, frozen=True, kw_only=True):
    """A body, and the beta flags that are sent in a header."""

    betas: tuple[str, ...] = ()


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[OutgoingMessage],
    parameters: Fields,
    stream: bool,
    repair: Repair = no_repair,
    system_raw: bytes | None = None,
) -> EncodedMessagesRequest:
    """Encode a request body; equal input gives equal bytes.

    `parameters` are Anthropic's. `system_raw`: the system prompt as an Anthropic message.
    """
    notes = NoticeMerger()
    aliases = Aliases(names=NAMES, ids=IDS)
    arranged, moved = arrange_messages(messages, model, notes)
    repaired = repair(tuple(apply_aliases(arranged, aliases)))
    turns = [_draft_message(message) for message in repaired.messages]
    head = MessageDraft(role="system", parts=tuple(system or ()), raw=system_raw)
    head.change([*filter_system_parts(head.parts, notes), *moved])
    fit_notices = NoticeSink()
    fields = dict(alias_tools(parameters, aliases, "name"))
    fields = fit_parameters(drop_idle_tool_choice(fields, fit_notices), model, fit_notices)
    fields = _add_called_tools(fields, turns, notes)
    fields = _fit_thinking(fields, turns, notes)
    fields = fit_cache_breakpoints(fields, head, turns, notes)
    sent = _without(fields, EXCLUDED_FIELDS)
    body: Fields = {"model": model, **sent}
    if head.parts:
        body["system"] = _encode_system(head)
    body["messages"] = [_encode_turn(turn) for turn in turns]
    if stream:
        body["stream"] = True
    return EncodedMessagesRequest(
        body=msgspec.json.encode(body),
        betas=parse_betas(fields.get("betas")),
        notices=(*fit_notices, *notes.notices(), *repaired.notices),
        names=aliases.names,
        ids=aliases.ids,
        is_unconverted=sent == _without(parameters, ("betas",))
        and _is_unchanged(messages, turns)
        and head.raw is system_raw,
    )


def _draft_message(message: OutgoingMessage) -> MessageDraft:
    return MessageDraft(
        role="user" if message.role == "tool" else message.role,
        parts=message.parts,
        raw=message.raw,
        extra=message.extra,
    )


def is_thread_continuation(parameters: Fields) -> bool:
    """Whether the messages continue a thread that the API stores."""
    thread = parameters.get("thread")
    return isinstance(thread, dict) and thread.get("type") == "continue"


def _without(fields: Fields, names: Iterable[str]) -> Fields:
    """Return the fields without these names; the same object if it has none of them.

    Copying and deleting takes a third of the time of a comprehension over all keys.
    """
    excluded = [name for name in names if name in fields]
    if not excluded:
        return fields
    rest = dict(fields)
    for name in excluded:
        del rest[name]
    return rest


def _is_unchanged(messages: Sequence[OutgoingMessage], turns: Sequence[MessageDraft]) -> bool:
    return len(messages) == len(turns) and all(
        message.raw is not None and message.raw is turn.raw
        for message, turn in zip(messages, turns, strict=True)
    )


def _encode_system(head: MessageDraft) -> str | list[Fields | msgspec.Raw] | msgspec.Raw:
    if head.raw is None:
        return _encode_content(head.parts)
    return _fields_decoder.decode(head.raw)["content"]


def _add_called_tools(
    parameters: Fields, turns: Sequence[MessageDraft], notes: NoticeMerger
) -> Fields:
    if parameters.get("tools"):
        return parameters
    names = list_called_tools(part for turn in turns for part in turn.parts)
    if not names:
        return parameters
    message = "Tools called in the history are described in the request; they cannot be called."
    notes.add("tools_added", "tools", message)
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    return {**parameters, "tools": tools, "tool_choice": {"type": "none"}}


def _fit_thinking(fields: Fields, turns: Sequence[MessageDraft], notes: NoticeMerger) -> Fields:
    """Disable thinking if the reply is prefilled, or an open tool loop started without thinking.

    A model that thinks cannot continue a prefilled answer, and the API requires the thinking of
    an open loop.
    """
    thinking = fields.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") not in ("enabled", "adaptive"):
        return fields
    if turns and _is_prefill(turns[-1]):
        message = "Thinking is disabled: the reply is prefilled."
        notes.add("thinking_disabled", "thinking", message)
        return {**fields, "thinking": DISABLED}
    if thinking["type"] != "enabled" or not _is_open_loop_without_thinking(turns):
        return fields
    message = "Thinking is disabled: the open tool call was made without thinking."
    notes.add("thinking_disabled", "thinking", message)
    return {**fields, "thinking": DISABLED}


def _is_open_loop_without_thinking(turns: Sequence[MessageDraft]) -> bool:
    """Whether the last messages are tool results of a reply that does not start with thinking."""
    roles = [turn.role for turn in turns]
    if "assistant" not in roles:
        return False
    last = len(roles) - 1 - roles[::-1].index("assistant")
    is_loop = any(isinstance(part, ToolResult) for turn in turns[last:] for part in turn.parts)
    while last and roles[last - 1] == "assistant":
        last -= 1
    return is_loop and not starts_with_thinking(turns[last].parts)


def _is_prefill(turn: MessageDraft) -> bool:
    return turn.role == "assistant" and bool(turn.parts) and isinstance(turn.parts[-1], Text)


def _encode_turn(turn: MessageDraft) -> Fields | msgspec.Raw:
    if turn.raw is not None:
        return msgspec.Raw(turn.raw)
    return {"role": turn.role, "content": _encode_content(turn.parts), **turn.extra}


def _encode_content(parts: Sequence[AnyPart]) -> str | list[Fields | msgspec.Raw]:
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text) and not only.extra and only.cache is None:
        return only.text
    return [encode_block(part) for part in parts]


class _TypedBlock(msgspec.Struct):
    type: str


class _WireMessage(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[_TypedBlock]


class _Body(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    system: str | list[_TypedBlock] | None = None
    stream: bool | None = None


BODY_FIELDS = frozenset(_Body.__struct_fields__)
EXCLUDED_FIELDS = BODY_FIELDS | {"betas"}
_body_decoder = msgspec.json.Decoder(_Body)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_message_decoder = msgspec.json.Decoder(_WireMessage)


def decode_request(body: bytes) -> Prompt:
    """Decode a client's request; preserves the bytes of every message."""
    try:
        decoded = _body_decoder.decode(body)
        fields = _fields_decoder.decode(body)
        parameters = {k: msgspec.json.decode(v) for k, v in fields.items() if k not in BODY_FIELDS}
    except UNREADABLE as error:
        raise field_error(error) from error
    prompt = prompt_from_original(
        Original(
            body=body,
            dialect=DIALECT,
            model=decoded.model,
            system=_decode_system(fields["system"]) if decoded.system else None,
            messages=tuple(map(_decode_message, decoded.messages, itertools.count())),
            parameters=parameters,
            stream=bool(decoded.stream),
        )
    )
    # Anthropic refuses a body that contains beta flags.
    return msgspec.structs.replace(prompt, original=None) if "betas" in parameters else prompt


def _decode_system(system: msgspec.Raw) -> Message:
    raw = b'{"role":"system","content":' + bytes(system).strip() + b"}"
    return Message(role="system", raw=raw, dialect=DIALECT)


def _decode_message(raw: msgspec.Raw, index: int) -> Message:
    try:
        role: Role = _message_decoder.decode(raw).role
    except UNREADABLE as error:
        raise field_error(error, f"messages[{index}]") from error
    return Message(role=role, raw=bytes(raw), dialect=DIALECT)


UNCOUNTED_FIELDS = frozenset(
    (
        "container",
        "inference_geo",
        "max_tokens",
        "metadata",
        "service_tier",
        "stop_sequences",
        "stream",
        "temperature",
        "top_k",
        "top_p",
    )
)


def encode_count(body: bytes, prompt: Prompt) -> bytes:
    """Convert a request body to a token count body; the client's own body if it is equal."""
    fields = {
        name: raw
        for name, raw in _fields_decoder.decode(body).items()
        if name not in UNCOUNTED_FIELDS
    }
    original = prompt.original
    if original is None or original.model != prompt.model:
        return msgspec.json.encode(fields)
    sent = _fields_decoder.decode(original.body)
    is_equal = sent.keys() == fields.keys() and all(
        bytes(sent[k]) == bytes(fields[k]) for k in sent
    )
    return original.body if is_equal else msgspec.json.encode(fields)
