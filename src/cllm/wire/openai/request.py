"""Chat Completions requests: decodes those of clients, encodes prompts of other protocols."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Message, Role
from cllm.core.prompt import Original, Prompt, prompt_from_original
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
from cllm.wire.openai.history import IDS, build_system_message, convert_messages, encode_history
from cllm.wire.openai.options import SENTENCES, Fields, decode_options, encode_options
from cllm.wire.reasoning import TAKES_NONE, ReasoningRule

__all__ = ["decode_options", "decode_request", "encode_options", "encode_request"]

NAMES = AliasRule(max_length=64)
CALLS = b'"tool_calls"'
CONTENT = b'"content"'
DEVELOPER = b'"developer"'
FUNCTION = b'"function"'
NULL = b"null"
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
    keep_names: bool = False,
    system_raw: bytes | None = None,
    reasoning: ReasoningRule = TAKES_NONE,
) -> EncodedRequest:
    """Encode a request body; equal input gives equal bytes.

    `keep_names` sends tool names without aliases. `system_raw` is the system prompt as an OpenAI
    message. `reasoning` defines which past reasoning the server accepts; OpenAI messages
    follow it already.
    """
    notes = NoticeMerger(SENTENCES)
    aliases = Aliases(names=None if keep_names else NAMES, ids=IDS, keep_own_ids=True)
    first = build_system_message(system or (), system_raw, notes)
    converted = tuple(convert_messages(messages, notes, reasoning))
    repaired = repair((*first, *apply_aliases(converted, aliases)))
    required: Fields = {"model": model, "messages": encode_history(repaired.messages, reasoning)}
    body = required | dict(alias_tools(parameters, aliases, "function", "name")) | required
    body.pop("stream", None)
    if stream:
        options = parameters.get("stream_options")
        usage = {"include_usage": True, **(options if isinstance(options, dict) else {})}
        body |= {"stream": True, "stream_options": usage}
    else:
        body.pop("stream_options", None)
    return EncodedRequest(
        body=msgspec.json.encode(body),
        notices=(*notes.notices(), *repaired.notices),
        names=aliases.names,
        ids=aliases.ids,
    )


def decode_request(body: bytes) -> Prompt:
    """Decode a client's request; the bytes of each message are preserved."""
    fields = decode_body(body)
    if not isinstance(fields.get("messages"), list):
        raise FieldError("messages", "must be a list of messages")
    model, stream = decode_model_and_stream(fields)
    raws = _lists.decode(_bodies.decode(body).messages)
    messages = tuple(
        Message(role=check_message(message, f"messages[{index}]"), raw=bytes(raw))
        for index, (message, raw) in enumerate(zip(fields["messages"], raws, strict=True))
    )
    return prompt_from_original(
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
    """Decode all fields, so that invalid JSON fails here and not later."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FieldError("", f"The body is not valid JSON ({error})") from error
    if not isinstance(fields, dict):
        raise FieldError("", "The body must be a JSON object")
    return fields


def decode_model_and_stream(fields: Fields) -> tuple[str, bool]:
    model, stream = fields.get("model"), fields.get("stream")
    if not isinstance(model, str) or not model.strip():
        raise FieldError("model", "must be the name of a model")
    if not isinstance(stream, bool | None):
        raise FieldError("stream", "must be true or false")
    return model, bool(stream)


class _Body(msgspec.Struct):
    messages: msgspec.Raw


_bodies = msgspec.json.Decoder(_Body)
_lists = msgspec.json.Decoder(list[msgspec.Raw])


def check_message(message: Any, path: str) -> Role:
    """Return the role of a valid message, or raise FieldError."""
    if not isinstance(message, dict):
        raise FieldError(path, "must be an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise FieldError(f"{path}.role", f"must be one of {', '.join(ROLES)}")
    content = message.get("content")
    if content is not None and type(content) is not str:
        check_content(content, f"{path}.content")
    if message.get("tool_calls") is not None:
        _check_calls(message["tool_calls"], f"{path}.tool_calls")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise FieldError(f"{path}.tool_call_id", "must be the id of the tool call of this result")
    return ROLES[role]


def check_content(content: Any, path: str, *, suffix: str | None = None) -> None:
    """Check the types in `content`; blocks of type `text`, or with the suffix, need a text."""
    if not isinstance(content, str | list):
        raise FieldError(path, "must be a string or a list of parts")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise FieldError(f"{path}[{index}]", "must be an object with a type")
        kind = block["type"]
        has_text = kind == "text" if suffix is None else kind.endswith(suffix)
        if has_text and not isinstance(block.get("text"), str):
            raise FieldError(f"{path}[{index}].text", "must be a string")


def _check_calls(calls: Any, path: str) -> None:
    if not isinstance(calls, list):
        raise FieldError(path, "must be a list of calls")
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            raise FieldError(f"{path}[{index}]", "must be an object")
        if not isinstance(call.get("id"), str):
            raise FieldError(f"{path}[{index}].id", "must be the id of the call")


class _Call(msgspec.Struct):
    id: str


class _Caller(msgspec.Struct):
    tool_calls: list[_Call] | None = None


class _Answer(msgspec.Struct):
    tool_call_id: str


_callers = msgspec.json.Decoder(_Caller)
_answers = msgspec.json.Decoder(_Answer)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_has_content(messages: Sequence[Message]) -> None:
    """Raise FieldError for an OpenAI message without content, which only an assistant may send."""
    for prompt_index, message in enumerate(messages):
        if message.dialect != "openai" or message.role == "assistant":
            continue
        if CONTENT in message.raw and NULL not in message.raw:
            continue
        if _is_without_content(message):
            path = f"messages[{prompt_index}].content"
            raise FieldError(path, "must be a string or a list of parts")


def _is_without_content(message: Message) -> bool:
    try:
        fields = _fields.decode(message.raw)
    except msgspec.MsgspecError:
        return False
    content, role = fields.get("content"), bytes(fields.get("role", b""))
    return role != FUNCTION and (content is None or bytes(content) == NULL)


def has_ordered_tool_results(messages: Sequence[Message]) -> bool:
    """Whether every call is answered immediately, in order and once."""
    pending: list[str] = []
    try:
        for message in messages:
            if message.role == "tool":
                if not pending or _answers.decode(message.raw).tool_call_id != pending.pop():
                    return False
            elif pending:
                return False
            elif CALLS in message.raw:
                pending = [call.id for call in _callers.decode(message.raw).tool_calls or ()]
                if message.role != "assistant" or len(set(pending)) < len(pending):
                    return False
                pending.reverse()
    except msgspec.MsgspecError:
        return False
    return bool(messages) and not pending


def developer_to_system(message: Message) -> Message:
    """Convert a developer message to a system message; others are unchanged."""
    if message.role != "system" or message.dialect != "openai" or DEVELOPER not in message.raw:
        return message
    fields = _fields.decode(message.raw)
    if msgspec.json.decode(fields["role"]) != "developer":
        return message
    raw = msgspec.json.encode({**fields, "role": "system"})
    return Message(role="system", raw=raw)


def splice_request(prompt: Prompt, parameters: Mapping[str, Any]) -> bytes:
    """Build the request body around the bytes of OpenAI's own messages."""
    raws = b",".join([message.raw for message in prompt.all_messages])
    required: dict[str, Any] = {"model": prompt.model, "messages": msgspec.Raw(b"[%b]" % raws)}
    body = {**required, **parameters, **required}
    if prompt.stream:
        options = parameters.get("stream_options")
        sent_options = options if isinstance(options, dict) else {}
        body |= {"stream": True, "stream_options": {"include_usage": True, **sent_options}}
    return msgspec.json.encode(body)


def fill_empty_reply(message: Message) -> Message:
    if message.role != "assistant" or message.dialect != "openai":
        return message
    if CONTENT in message.raw and NULL not in message.raw:
        return message
    fields = message.json()
    if any(value for name, value in fields.items() if name not in ("role", "name")):
        return message
    raw = msgspec.json.encode({**fields, "content": fields.get("content") or ""})
    return Message(role=message.role, raw=raw)
