"""Prompts in OpenAI's own protocol: whether their bytes can be sent unchanged, and how."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.wire.malformed import FieldError

CALLS = b'"tool_calls"'
CONTENT = b'"content"'
DEVELOPER = b'"developer"'
FUNCTION = b'"function"'
NULL = b"null"


class _Call(msgspec.Struct):
    id: str


class _Caller(msgspec.Struct):
    tool_calls: list[_Call] | None = None


class _Answer(msgspec.Struct):
    tool_call_id: str


_callers = msgspec.json.Decoder(_Caller)
_answers = msgspec.json.Decoder(_Answer)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_contents(messages: Sequence[Message]) -> None:
    """Raise FieldError for an OpenAI message without content, which only an assistant may send."""
    for place, message in enumerate(messages):
        if message.dialect != "openai" or message.role == "assistant":
            continue
        if CONTENT in message.raw and NULL not in message.raw:
            continue
        if _is_without_content(message):
            path = f"messages[{place}].content"
            raise FieldError(path, "a text or a list of parts is needed")


def _is_without_content(message: Message) -> bool:
    try:
        fields = _fields.decode(message.raw)
    except msgspec.MsgspecError:
        return False
    content, role = fields.get("content"), bytes(fields.get("role", b""))
    return role != FUNCTION and (content is None or bytes(content) == NULL)


def is_ordinary(messages: Sequence[Message]) -> bool:
    """Whether every call is answered immediately, in order and once."""
    waiting: list[str] = []
    try:
        for message in messages:
            if message.role == "tool":
                if not waiting or _answers.decode(message.raw).tool_call_id != waiting.pop():
                    return False
            elif waiting:
                return False
            elif CALLS in message.raw:
                waiting = [call.id for call in _callers.decode(message.raw).tool_calls or ()]
                if message.role != "assistant" or len(set(waiting)) < len(waiting):
                    return False
                waiting.reverse()
    except msgspec.MsgspecError:
        return False
    return bool(messages) and not waiting


def without_developer(message: Message) -> Message:
    """Return a developer message as a system message; others unchanged."""
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
    own: dict[str, Any] = {"model": prompt.model, "messages": msgspec.Raw(b"[%b]" % raws)}
    body = {**own, **parameters, **own}
    if prompt.stream:
        options = parameters.get("stream_options")
        chosen = options if isinstance(options, dict) else {}
        body |= {"stream": True, "stream_options": {"include_usage": True, **chosen}}
    return msgspec.json.encode(body)
