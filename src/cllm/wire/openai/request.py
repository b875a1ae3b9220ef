"""Chat Completions requests: decoded from clients, encoded for conversations of other protocols."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Message, Role
from cllm.core.prompt import Original, Prompt, prompt_of
from cllm.wire.errors import FieldError
from cllm.wire.messages import (
    Aliases,
    AliasRule,
    EncodedRequest,
    NoticeMerger,
    OutgoingMessage,
    Repair,
    alias_tools,
    apply_aliases,
    no_repair,
)
from cllm.wire.openai.history import IDS, all_at_home, encode_history, head
from cllm.wire.openai.options import SENTENCES, Fields, decode_options, encode_options
from cllm.wire.reasoning import TAKES_NONE, ReasoningRule

__all__ = ["decode_options", "decode_request", "encode_options", "encode_request"]

NAMES = AliasRule(longest=64)
ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "function": "tool",
    "system": "system",
    "tool": "tool",
    "user": "user",
}


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[OutgoingMessage],
    parameters: Fields,
    stream: bool,
    repair: Repair = no_repair,
    own_names: bool = False,
    system_raw: bytes | None = None,
    reasoning: ReasoningRule = TAKES_NONE,
) -> EncodedRequest:
    """Encode a request body; equal input gives equal bytes.

    `own_names` keeps tool names unchanged. `system_raw` is the system prompt as an OpenAI
    message. `reasoning` says which past reasoning the server accepts; OpenAI's own messages are
    fitted already.
    """
    notes = NoticeMerger(SENTENCES)
    aliases = Aliases(names=None if own_names else NAMES, ids=IDS, keeps_own=True)
    first = head(system or (), system_raw, notes)
    home = tuple(all_at_home(messages, notes, reasoning))
    mended = repair((*first, *apply_aliases(home, aliases)))
    own: Fields = {"model": model, "messages": encode_history(mended.messages, reasoning)}
    body = own | dict(alias_tools(parameters, aliases, "function", "name")) | own
    body.pop("stream", None)
    if stream:
        chosen = parameters.get("stream_options")
        usage = {"include_usage": True, **(chosen if isinstance(chosen, dict) else {})}
        body |= {"stream": True, "stream_options": usage}
    else:
        body.pop("stream_options", None)
    return EncodedRequest(
        body=msgspec.json.encode(body),
        notices=(*notes.notices(), *mended.notices),
        names=aliases.names,
        ids=aliases.ids,
    )


def decode_request(body: bytes) -> Prompt:
    """Decode a client's request; every message keeps its bytes."""
    fields = decode_body(body)
    if not isinstance(fields.get("messages"), list):
        raise FieldError("messages", "a list of messages is needed")
    model, stream = check_head(fields)
    raws = _lists.decode(_bodies.decode(body).messages)
    messages = tuple(
        Message(role=_checked_role(message, f"messages[{index}]"), raw=bytes(raw))
        for index, (message, raw) in enumerate(zip(fields["messages"], raws, strict=True))
    )
    return prompt_of(
        Original(
            body=body,
            dialect="openai",
            model=model,
            system=None,
            messages=messages,
            parameters={k: fields[k] for k in fields if k not in ("model", "messages", "stream")},
            stream=stream,
        )
    )


def decode_body(body: bytes) -> Fields:
    """Decode all fields at once, so that none of them fails later."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FieldError("", f"body: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FieldError("", "body: a JSON object is needed")
    return fields


def check_head(fields: Fields) -> tuple[str, bool]:
    """Return the model, and whether to stream."""
    model, stream = fields.get("model"), fields.get("stream")
    if not isinstance(model, str) or not model.strip():
        raise FieldError("model", "the name of a model is needed")
    if not isinstance(stream, bool | None):
        raise FieldError("stream", "true or false is needed")
    return model, bool(stream)


class _Body(msgspec.Struct):
    messages: msgspec.Raw


_bodies = msgspec.json.Decoder(_Body)
_lists = msgspec.json.Decoder(list[msgspec.Raw])


def _checked_role(message: Any, path: str) -> Role:
    if not isinstance(message, dict):
        raise FieldError(path, "an object is needed")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise FieldError(f"{path}.role", f"one of {', '.join(ROLES)} is needed")
    content = message.get("content")
    if content is not None and type(content) is not str:
        check_content(content, f"{path}.content")
    if message.get("tool_calls") is not None:
        _check_calls(message["tool_calls"], f"{path}.tool_calls")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise FieldError(f"{path}.tool_call_id", "the id of the call it answers is needed")
    return ROLES[role]


def check_content(content: Any, path: str, *, suffix: str | None = None) -> None:
    """Check the types of a content; blocks of type `text`, or with the suffix, have a text."""
    if not isinstance(content, str | list):
        raise FieldError(path, "a text or a list of parts is needed")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise FieldError(f"{path}[{index}]", "an object with a type is needed")
        kind = block["type"]
        has_text = kind == "text" if suffix is None else kind.endswith(suffix)
        if has_text and not isinstance(block.get("text"), str):
            raise FieldError(f"{path}[{index}].text", "a text is needed")


def _check_calls(calls: Any, path: str) -> None:
    if not isinstance(calls, list):
        raise FieldError(path, "a list of calls is needed")
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            raise FieldError(f"{path}[{index}]", "an object is needed")
        if not isinstance(call.get("id"), str):
            raise FieldError(f"{path}[{index}].id", "the id of the call is needed")
