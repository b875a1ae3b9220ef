"""Requests in the words of OpenAI's Responses API, read at our own door.

Every item keeps its bytes. What the assistant said in one go is one message; the output of a call,
and what a user said, are messages of their own. Answers nothing, and looks nothing up: an id of an
earlier response stays a parameter.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from cllm.core.message import Message, Role
from cllm.core.prompt import Original, Prompt
from cllm.wire.malformed import FieldError
from cllm.wire.openai_options import Fields
from cllm.wire.responses_parts import DIALECT, item_kind

ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
    "user": "user",
}
OUTPUTS = frozenset(
    {
        "apply_patch_call_output",
        "computer_call_output",
        "custom_tool_call_output",
        "function_call_output",
        "local_shell_call_output",
        "mcp_approval_response",
        "shell_call_output",
    }
)
BODY = frozenset({"input", "instructions", "model", "stream"})


def decode_request(body: bytes) -> Prompt:
    """What a client of this API asks for, in its own words: every item as it came, in order."""
    fields = _decode_body(body)
    model, stream = fields.get("model"), fields.get("stream")
    if not isinstance(model, str) or not model.strip():
        raise FieldError("model", "the name of a model is needed")
    if not isinstance(stream, bool | None):
        raise FieldError("stream", "true or false is needed")
    instructions = fields.get("instructions")
    if not isinstance(instructions, str | None):
        raise FieldError("instructions", "a text is needed")
    return Original(
        body=body,
        dialect=DIALECT,
        model=model,
        system=_plain("system", instructions) if instructions else None,
        messages=tuple(_decode_input(body, fields.get("input"))),
        parameters={name: fields[name] for name in fields if name not in BODY},
        stream=bool(stream),
    ).to_prompt()


class _Input(msgspec.Struct):
    input: list[msgspec.Raw]


_input_decoder = msgspec.json.Decoder(_Input)


def _decode_body(body: bytes) -> Fields:
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FieldError("", f"body: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FieldError("", "body: a JSON object is needed")
    return fields


def _plain(role: Role, text: str) -> Message:
    raw = msgspec.json.encode({"role": role, "content": text})
    return Message(role=role, raw=raw, dialect=DIALECT)


def _decode_input(body: bytes, said: Any) -> Iterator[Message]:
    if isinstance(said, str):
        yield _plain("user", said)
        return
    if not isinstance(said, list):
        raise FieldError("input", "a text or a list of items is needed")
    roles = [_checked_role(item, f"input[{index}]") for index, item in enumerate(said)]
    raws = map(bytes, _input_decoder.decode(body).input)
    for role, group in groupby(zip(roles, raws, strict=True), key=lambda pair: pair[0]):
        items = [raw for _, raw in group]
        if role == "assistant":
            yield _of_items(role, *items)
        elif role == "tool":
            yield from (_of_items(role, item) for item in items)
        else:
            yield from (Message(role=role, raw=item, dialect=DIALECT) for item in items)


def _of_items(role: Role, *items: bytes) -> Message:
    raw = b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(items))
    return Message(role=role, raw=raw, dialect=DIALECT)


def _checked_role(item: Any, path: str) -> Role:
    """Whose an item is, once its fields have the types that its parts are read from."""
    if not isinstance(item, dict):
        raise FieldError(path, "an object is needed")
    kind = item_kind(item)
    if not kind:
        raise FieldError(f"{path}.type", "the kind of an item is needed")
    if kind == "message":
        return _checked_message(item, path)
    if kind in ("function_call", "function_call_output") and not isinstance(
        item.get("call_id"), str
    ):
        raise FieldError(f"{path}.call_id", "the id of the call is needed")
    if kind == "function_call_output":
        _check_content(item.get("output"), f"{path}.output")
    if kind == "function_call" and not isinstance(item.get("name"), str):
        raise FieldError(f"{path}.name", "the name of a tool is needed")
    return "tool" if kind in OUTPUTS else "assistant"


def _checked_message(item: Fields, path: str) -> Role:
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise FieldError(f"{path}.role", f"one of {', '.join(ROLES)} is needed")
    _check_content(item.get("content"), f"{path}.content")
    return ROLES[role]


def _check_content(content: Any, path: str) -> None:
    if not isinstance(content, str | list):
        raise FieldError(path, "a text or a list of parts is needed")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise FieldError(f"{path}[{index}]", "an object with a type is needed")
        if block["type"].endswith("_text") and not isinstance(block.get("text"), str):
            raise FieldError(f"{path}[{index}].text", "a text is needed")
