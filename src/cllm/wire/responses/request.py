"""Responses API requests. The whole history is sent; the provider stores it only on request."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeGuard

import msgspec

from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
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
    replace_parts,
)
from cllm.wire.openai.history import (
    PartLocation,
    sendable_document,
    sendable_fields,
    sendable_image,
)
from cllm.wire.openai.options import NO_REASONING, Fields
from cllm.wire.openai.request import check_content, decode_body, decode_model_and_stream
from cllm.wire.responses.ids import read_provider_id
from cllm.wire.responses.options import SENTENCES, decode_options, encode_options
from cllm.wire.responses.parts import (
    DIALECT,
    Item,
    decode_parts,
    encode_items,
    has_generated_id,
    item_kind,
)

__all__ = ["decode_items", "decode_options", "decode_request", "encode_options", "encode_request"]

ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
    "user": "user",
}
TOOL_OUTPUTS = frozenset(
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
USER_ITEMS = frozenset({"compaction_trigger"})
"""Items of the client that are neither messages nor results of tools."""
BODY_FIELDS = frozenset({"input", "instructions", "model", "stream"})
REFERENCE = "item_reference"


def decode_request(body: bytes, fields: Fields | None = None) -> Prompt:
    """Decode a client's request; the bytes of each item are preserved.

    `fields`: the body, if it is decoded already.
    """
    fields = decode_body(body) if fields is None else fields
    model, stream = decode_model_and_stream(fields)
    instructions = fields.get("instructions")
    if not isinstance(instructions, str | None):
        raise FieldError("instructions", "must be a string")
    return prompt_from_original(
        Original(
            body=body,
            dialect=DIALECT,
            model=model,
            system=_text_message("system", instructions) if instructions else None,
            messages=tuple(_decode_input(body, fields.get("input"))),
            parameters={name: fields[name] for name in fields if name not in BODY_FIELDS},
            stream=stream,
        )
    )


def has_references(items: Any) -> TypeGuard[list[Any]]:
    return isinstance(items, list) and any(map(is_reference, items))


def is_reference(item: Any) -> bool:
    """Whether it is a reference to a stored item; its type can be omitted or null."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == REFERENCE or (kind is None and "id" in item and item.keys() <= {"id", "type"})


class _Input(msgspec.Struct):
    input: list[msgspec.Raw]


_input_decoder = msgspec.json.Decoder(_Input)


def _text_message(role: Role, text: str) -> Message:
    raw = msgspec.json.encode({"role": role, "content": text})
    return Message(role=role, raw=raw, dialect=DIALECT)


def _decode_input(body: bytes, value: Any) -> Iterator[Message]:
    if isinstance(value, str):
        yield _text_message("user", value)
        return
    if not isinstance(value, list):
        raise FieldError("input", "must be a string or a list of items")
    yield from decode_items(_input_decoder.decode(body).input, value, path="input")


def decode_items(
    raws: Sequence[msgspec.Raw], items: Sequence[Any], *, path: str
) -> Iterator[Message]:
    """Yield the messages of items, which are decoded in `items`; `path` is for errors."""
    roles = [_check_item(item, f"{path}[{index}]") for index, item in enumerate(items)]
    for role, group in groupby(zip(roles, map(bytes, raws), strict=True), key=lambda pair: pair[0]):
        run = [raw for _, raw in group]
        if role == "assistant":
            yield _items_message(role, *run)
        elif role == "tool":
            yield from (_items_message(role, item) for item in run)
        else:
            yield from (Message(role=role, raw=item, dialect=DIALECT) for item in run)


def _items_message(role: Role, *items: bytes) -> Message:
    raw = b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(items))
    return Message(role=role, raw=raw, dialect=DIALECT)


def _check_item(item: Any, path: str) -> Role:
    if not isinstance(item, dict):
        raise FieldError(path, "must be an object")
    kind = item_kind(item)
    if not kind:
        raise FieldError(f"{path}.type", "must be the type of an item")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise FieldError(f"{path}.role", f"must be one of {', '.join(ROLES)}")
        check_content(item.get("content"), f"{path}.content", suffix="_text")
        return ROLES[role]
    if kind in ("function_call", "function_call_output") and not isinstance(
        item.get("call_id"), str
    ):
        raise FieldError(f"{path}.call_id", "must be the id of the call")
    if kind == "function_call_output":
        check_content(item.get("output"), f"{path}.output", suffix="_text")
    if kind == "function_call" and not isinstance(item.get("name"), str):
        raise FieldError(f"{path}.name", "must be the name of a tool")
    if kind in USER_ITEMS:
        return "user"
    return "tool" if kind in TOOL_OUTPUTS else "assistant"


NAMES = AliasRule(max_length=64)
IDS = AliasRule(allowed=None, max_length=64)
ENCRYPTED_REASONING = "reasoning.encrypted_content"
# What `_fit_items` changes: nulls, ids and reasoning.
CHANGED_FIELDS = (b"null", b'"id"', b'"reasoning"')
ID_FIELDS = (b'"id"',)
# Fields with the same name in all of OpenAI's blocks.
SHARED_BLOCK_FIELDS = frozenset({"prompt_cache_breakpoint"})


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[OutgoingMessage],
    parameters: Fields,
    stream: bool,
    repair: Repair = no_repair,
    keep_names: bool = False,
) -> EncodedRequest:
    """Encode a request body; equal input gives equal bytes.

    `keep_names` sends tool names without aliases.
    """
    notes = NoticeMerger(SENTENCES)
    aliases = Aliases(names=None if keep_names else NAMES, ids=IDS)
    required: Fields = {"model": model}
    items: list[Item] = []
    instructions = _convert_parts(system or (), PartLocation("system", "system", notes))
    if len(instructions) == 1 and isinstance(instructions[0], Text) and not instructions[0].extra:
        required["instructions"] = instructions[0].text
    elif instructions:
        items.extend(encode_items("system", instructions))
    converted = [_convert_message(message, notes) for message in messages]
    repaired = repair(tuple(apply_aliases(converted, aliases)))
    raws = [message.raw for message in repaired.messages]
    is_unchanged = None not in raws and raws == [message.raw for message in messages]
    for message in repaired.messages:
        items.extend(_encode_message(message))
    required["input"] = items
    fields = dict(alias_tools(parameters, aliases, "name"))
    _set_storage(fields, model)
    if not stream:
        fields.pop("stream_options", None)
    body = required | fields | required
    body.pop("stream", None)
    if stream:
        body["stream"] = True
    return EncodedRequest(
        body=msgspec.json.encode(body),
        notices=(*notes.notices(), *repaired.notices),
        names=aliases.names,
        ids=aliases.ids,
        is_unconverted=is_unchanged
        and fields == parameters
        and (system is None or "instructions" in required),
    )


def _set_storage(body: Fields, model: str) -> None:
    if body.setdefault("store", False) is not False or NO_REASONING.match(model):
        return
    include = body.get("include")
    included = include if isinstance(include, list) else []
    body["include"] = [*included, *({ENCRYPTED_REASONING} - set(map(str, included)))]


def simplify_body(body: Fields) -> Fields:
    """Return a body in one form: a leading system item is `instructions`, and nulls are absent."""
    result = {name: value for name, value in body.items() if value is not None}
    items = result.get("input")
    if not isinstance(items, list):
        return result
    if items and "instructions" not in result:
        text = _read_system_text(items[0])
        if text is not None:
            result["instructions"], items = text, items[1:]
    result["input"] = [_remove_nulls(item) for item in items]
    return result


def _read_system_text(item: Any) -> str | None:
    """Return the text of a system item with one text; None for other items."""
    if item_kind(item) != "message" or ROLES.get(item.get("role")) != "system":
        return None
    content = item.get("content")
    if isinstance(content, str):
        return content
    [block, *more] = content or [None]
    return block.get("text") if isinstance(block, dict) and not more else None


def _remove_nulls(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in item.items() if value is not None}


class _Items(msgspec.Struct):
    content: str | list[msgspec.Raw]


_items_decoder = msgspec.json.Decoder(_Items)


def _encode_message(message: OutgoingMessage) -> Iterator[Item]:
    if message.raw is None:
        yield from encode_items("user" if message.role == "tool" else message.role, message.parts)
    elif message.role not in ("assistant", "tool"):
        yield msgspec.Raw(message.raw)
    else:
        items = _items_decoder.decode(message.raw).content
        yield from [msgspec.Raw(message.raw)] if isinstance(items, str) else items


def _convert_message(message: OutgoingMessage, notes: NoticeMerger) -> OutgoingMessage:
    role: Role = "user" if message.role == "tool" else message.role
    raw = message.raw
    changed = CHANGED_FIELDS if role == "assistant" else ID_FIELDS
    if raw is not None and not any(field in raw for field in changed):
        return message
    location = PartLocation(role, f"messages[{message.prompt_index}].content", notes)
    if raw is None:
        return replace_parts(message, _convert_parts(message.parts, location))
    fields = msgspec.json.decode(raw)
    items = fields.get("content")
    if message.role not in ("assistant", "tool"):
        fitted = _restore_id(fields)
    elif not isinstance(items, list):
        return message
    elif message.role == "tool":
        fitted = {**fields, "content": [_restore_id(item) for item in items]}
    else:
        fitted = {**fields, "content": _fit_items(items, location)}
    if fitted == fields:
        return message
    raw = msgspec.json.encode(fitted)
    parts = decode_parts(Message(role=message.role, raw=raw, dialect=DIALECT))
    return msgspec.structs.replace(message, parts=parts, raw=raw)


def _restore_id(item: Any) -> Any:
    """Return the item with the id of its provider, or with none."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return item
    provider_id = read_provider_id(item["id"])
    rest = {name: value for name, value in item.items() if name != "id"}
    return rest if provider_id is None else {**item, "id": provider_id}


def _fit_items(items: list[Any], location: PartLocation) -> list[Any]:
    last = max((n for n, item in enumerate(items) if item_kind(item) != "reasoning"), default=-1)
    dropped = {n for n, item in enumerate(items) if not _can_be_sent(item, is_followed=n < last)}
    for index in sorted(dropped):
        location.report("thinking", index)
    return [
        _fit_item(item, keep_id=not dropped) for n, item in enumerate(items) if n not in dropped
    ]


def _can_be_sent(item: Any, *, is_followed: bool) -> bool:
    """Whether an item can be sent: reasoning needs its content and a following item."""
    if item_kind(item) != "reasoning":
        return True
    return (
        is_followed
        and not has_generated_id(item)
        and bool(item.get("encrypted_content") or item.get("content"))
    )


def _fit_item(item: Any, *, keep_id: bool) -> Any:
    if not isinstance(item, dict):
        return item
    kind = item_kind(item)
    omitted = {name for name, value in item.items() if value is None}
    if kind == "reasoning" and item.get("encrypted_content"):
        omitted.add("content")
    if kind in ("message", "function_call") and not keep_id:
        omitted.add("id")
    kept = {name: value for name, value in item.items() if name not in omitted}
    return _restore_id(kept)


def _convert_parts(parts: Sequence[AnyPart], location: PartLocation) -> list[AnyPart]:
    result: list[AnyPart] = []
    for index, part in enumerate(parts):
        if not isinstance(part, ALLOWED[location.role]):
            location.report("part", index, subject=type(part).__name__)
            continue
        converted = CONVERTERS[type(part)](part, index, location)
        if converted is not None:
            result.append(converted)
    rest = [part for part in result if not isinstance(part, Text) or part.text]
    # The API refuses reasoning that nothing follows.
    while rest and isinstance(rest[-1], Thinking | RedactedThinking):
        rest.pop()
    return rest


def _convert_text(part: Text, index: int, location: PartLocation) -> Text:
    if part.cache is None and not part.extra:
        return part
    is_answer = location.role == "assistant"
    allowed_fields = frozenset({"annotations", "logprobs"}) if is_answer else SHARED_BLOCK_FIELDS
    return Text(
        text=part.text, extra=sendable_fields(part, index, location, allowed_fields=allowed_fields)
    )


def _convert_refusal(part: Refusal, index: int, location: PartLocation) -> Refusal:
    sendable_fields(part, index, location, allowed_fields=SHARED_BLOCK_FIELDS)
    return Refusal(text=part.text)


def _convert_image(part: Image, index: int, location: PartLocation) -> Image:
    extra = sendable_fields(
        part, index, location, allowed_fields=SHARED_BLOCK_FIELDS | {"file_id", "image_url"}
    )
    return sendable_image(part, extra)


def _convert_document(part: Document, index: int, location: PartLocation) -> AnyPart:
    extra = sendable_fields(part, index, location, allowed_fields=SHARED_BLOCK_FIELDS | {"detail"})
    return sendable_document(part, index, location, extra)


def _convert_call(part: ToolCall, index: int, location: PartLocation) -> ToolCall:
    extra = sendable_fields(part, index, location, allowed_fields=frozenset({"namespace"}))
    return ToolCall(id=part.id, name=part.name, arguments=part.arguments or "{}", extra=extra)


def _convert_result(part: ToolResult, index: int, location: PartLocation) -> ToolResult:
    if part.is_error:
        location.report("error_flag", index)
    sendable_fields(part, index, location, allowed_fields=frozenset({"name"}))
    inner = PartLocation("user", f"{location.path}[{index}].content", location.notes)
    content: Any = tuple(_convert_parts(part.content, inner))
    return ToolResult(call_id=part.call_id, content=content)


AnyThinking = Thinking | RedactedThinking


def _convert_thinking(part: AnyThinking, index: int, location: PartLocation) -> AnyThinking | None:
    encrypted = part.data if isinstance(part, RedactedThinking) else part.signature
    if not encrypted or not isinstance(part.extra.get("id"), str):
        return location.report("thinking", index)
    extra = {name: value for name, value in part.extra.items() if name != "content"}
    return msgspec.structs.replace(part, cache=None, extra=extra)


def _convert_unknown(part: Unknown, index: int, location: PartLocation) -> Unknown | None:
    return part if part.dialect == DIALECT else location.report("block", index)


CONVERTERS: dict[type, Callable[[Any, int, PartLocation], AnyPart | None]] = {
    Document: _convert_document,
    Image: _convert_image,
    RedactedThinking: _convert_thinking,
    Refusal: _convert_refusal,
    Text: _convert_text,
    Thinking: _convert_thinking,
    ToolCall: _convert_call,
    ToolResult: _convert_result,
    Unknown: _convert_unknown,
}
ALLOWED: dict[Role, tuple[type, ...]] = {
    "assistant": (Text, Refusal, ToolCall, Thinking, RedactedThinking, Unknown),
    "system": (Text, Unknown),
    "tool": (Text, Image, Document, ToolResult, Unknown),
    "user": (Text, Image, Document, ToolResult, Unknown),
}
