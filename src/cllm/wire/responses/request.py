"""Responses API requests. The whole history is sent; the provider stores nothing unless asked."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

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
    replace_parts,
)
from cllm.wire.openai.history import (
    OTHERS,
    PartLocation,
    sendable_document,
    sendable_fields,
    sendable_image,
)
from cllm.wire.openai.options import NO_REASONING, Fields
from cllm.wire.openai.request import check_content, check_head, decode_body
from cllm.wire.responses.options import SENTENCES, decode_options, encode_options
from cllm.wire.responses.parts import DIALECT, Item, decode_parts, encode_items, is_lent, item_kind

__all__ = ["decode_options", "decode_request", "encode_options", "encode_request"]

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
    """Decode a client's request; every item keeps its bytes."""
    fields = decode_body(body)
    model, stream = check_head(fields)
    instructions = fields.get("instructions")
    if not isinstance(instructions, str | None):
        raise FieldError("instructions", "a text is needed")
    return prompt_of(
        Original(
            body=body,
            dialect=DIALECT,
            model=model,
            system=_plain("system", instructions) if instructions else None,
            messages=tuple(_decode_input(body, fields.get("input"))),
            parameters={name: fields[name] for name in fields if name not in BODY},
            stream=stream,
        )
    )


class _Input(msgspec.Struct):
    input: list[msgspec.Raw]


_input_decoder = msgspec.json.Decoder(_Input)


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
    if not isinstance(item, dict):
        raise FieldError(path, "an object is needed")
    kind = item_kind(item)
    if not kind:
        raise FieldError(f"{path}.type", "the kind of an item is needed")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise FieldError(f"{path}.role", f"one of {', '.join(ROLES)} is needed")
        check_content(item.get("content"), f"{path}.content", suffix="_text")
        return ROLES[role]
    if kind in ("function_call", "function_call_output") and not isinstance(
        item.get("call_id"), str
    ):
        raise FieldError(f"{path}.call_id", "the id of the call is needed")
    if kind == "function_call_output":
        check_content(item.get("output"), f"{path}.output", suffix="_text")
    if kind == "function_call" and not isinstance(item.get("name"), str):
        raise FieldError(f"{path}.name", "the name of a tool is needed")
    return "tool" if kind in OUTPUTS else "assistant"


NAMES = AliasRule(longest=64)
IDS = AliasRule(allowed=None, longest=64)
SEALED_REASONING = "reasoning.encrypted_content"
# Fields with the same name in all of OpenAI's blocks.
SHARED = frozenset({"prompt_cache_breakpoint"})


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[OutgoingMessage],
    parameters: Fields,
    stream: bool,
    repair: Repair = no_repair,
    own_names: bool = False,
) -> EncodedRequest:
    """Encode a request body; equal input gives equal bytes.

    `own_names` keeps tool names unchanged.
    """
    notes = NoticeMerger(SENTENCES)
    aliases = Aliases(names=None if own_names else NAMES, ids=IDS)
    own: Fields = {"model": model}
    items: list[Item] = []
    said = _translated(system or (), PartLocation("system", "system", notes))
    if len(said) == 1 and isinstance(said[0], Text) and not said[0].extra:
        own["instructions"] = said[0].text
    elif said:
        items.extend(encode_items("system", said))
    home = [_at_home(message, notes) for message in messages]
    mended = repair(tuple(apply_aliases(home, aliases)))
    for message in mended.messages:
        items.extend(_encode_message(message))
    own["input"] = items
    body = own | dict(alias_tools(parameters, aliases, "name")) | own
    _keep_nothing_there(body, model)
    body.pop("stream", None)
    if stream:
        body["stream"] = True
    else:
        body.pop("stream_options", None)
    return EncodedRequest(
        body=msgspec.json.encode(body),
        notices=(*notes.notices(), *mended.notices),
        names=aliases.names,
        ids=aliases.ids,
    )


def _keep_nothing_there(body: Fields, model: str) -> None:
    if body.setdefault("store", False) is not False or NO_REASONING.match(model):
        return
    chosen = body.get("include")
    included = chosen if isinstance(chosen, list) else []
    body["include"] = [*included, *({SEALED_REASONING} - set(map(str, included)))]


class _Items(msgspec.Struct):
    content: str | list[msgspec.Raw]


_items_decoder = msgspec.json.Decoder(_Items)


def _encode_message(message: OutgoingMessage) -> Iterator[Item]:
    if message.raw is None:
        yield from encode_items("user" if message.role == "tool" else message.role, message.parts)
        return
    items = _items_decoder.decode(message.raw).content
    if message.role not in ("assistant", "tool") or isinstance(items, str):
        yield msgspec.Raw(message.raw)
    else:
        yield from items


def _at_home(message: OutgoingMessage, notes: NoticeMerger) -> OutgoingMessage:
    role: Role = "user" if message.role == "tool" else message.role
    has_files = message.dialect not in OTHERS
    location = PartLocation(role, f"messages[{message.prompt_index}].content", notes, has_files)
    if message.raw is None:
        return replace_parts(message, _translated(message.parts, location))
    items = msgspec.json.decode(message.raw).get("content")
    if role != "assistant" or not isinstance(items, list):
        return message
    fitted = _fitted_items(items, location)
    if fitted == items:
        return message
    raw = msgspec.json.encode({"role": role, "content": fitted})
    parts = decode_parts(Message(role=role, raw=raw, dialect=DIALECT))
    return msgspec.structs.replace(message, parts=parts, raw=raw)


def _fitted_items(items: list[Any], location: PartLocation) -> list[Any]:
    last = max((n for n, item in enumerate(items) if item_kind(item) != "reasoning"), default=-1)
    lost = {n for n, item in enumerate(items) if not _can_come_back(item, led_on=n < last)}
    for index in sorted(lost):
        location.left_out("thinking", index)
    return [_fitted(item, named=not lost) for n, item in enumerate(items) if n not in lost]


def _can_come_back(item: Any, *, led_on: bool) -> bool:
    """Whether an item can be sent: reasoning needs its content and a following item."""
    if item_kind(item) != "reasoning":
        return True
    return (
        led_on and not is_lent(item) and bool(item.get("encrypted_content") or item.get("content"))
    )


def _fitted(item: Any, *, named: bool) -> Any:
    if not isinstance(item, dict):
        return item
    kind = item_kind(item)
    left = {name for name, value in item.items() if value is None}
    if kind == "reasoning" and item.get("encrypted_content"):
        left.add("content")
    if not named and kind in ("message", "function_call"):
        left.add("id")
    return {name: value for name, value in item.items() if name not in left}


def _translated(parts: Sequence[AnyPart], location: PartLocation) -> list[AnyPart]:
    said: list[AnyPart] = []
    for index, part in enumerate(parts):
        if not isinstance(part, ALLOWED[location.role]):
            location.left_out("part", index, subject=type(part).__name__)
            continue
        translated = TRANSLATORS[type(part)](part, index, location)
        if translated is not None:
            said.append(translated)
    kept = [part for part in said if not isinstance(part, Text) or part.text]
    # The API refuses reasoning that nothing follows.
    while kept and isinstance(kept[-1], Thinking | RedactedThinking):
        kept.pop()
    return kept


def _translate_text(part: Text, index: int, location: PartLocation) -> Text:
    if part.cache is None and not part.extra:
        return part
    known = frozenset({"annotations", "logprobs"}) if location.role == "assistant" else SHARED
    return Text(text=part.text, extra=sendable_fields(part, index, location, known=known))


def _translate_refusal(part: Refusal, index: int, location: PartLocation) -> Refusal:
    sendable_fields(part, index, location, known=SHARED)
    return Refusal(text=part.text)


def _translate_image(part: Image, index: int, location: PartLocation) -> Image | None:
    has_data = part.data is not None and part.media_type is not None
    if part.url is None and not has_data and "file_id" not in part.extra:
        return location.left_out("image", index)
    extra = sendable_fields(part, index, location, known=SHARED | {"file_id", "image_url"})
    return sendable_image(part, extra)


def _translate_document(part: Document, index: int, location: PartLocation) -> AnyPart | None:
    if not any((part.text, part.data, part.file_id and location.has_files, part.url)):
        return location.left_out("document", index)
    extra = sendable_fields(part, index, location, known=SHARED | {"detail"})
    return sendable_document(part, index, location, extra)


def _translate_call(part: ToolCall, index: int, location: PartLocation) -> ToolCall:
    extra = sendable_fields(part, index, location, known=frozenset({"namespace"}))
    return ToolCall(id=part.id, name=part.name, arguments=part.arguments or "{}", extra=extra)


def _translate_result(part: ToolResult, index: int, location: PartLocation) -> ToolResult:
    if part.is_error:
        location.left_out("error_flag", index)
    sendable_fields(part, index, location, known=frozenset({"name"}))
    inner = PartLocation(
        "user", f"{location.path}[{index}].content", location.notes, location.has_files
    )
    content: Any = tuple(_translated(part.content, inner))
    return ToolResult(call_id=part.call_id, content=content)


Thought = Thinking | RedactedThinking


def _translate_thinking(part: Thought, index: int, location: PartLocation) -> Thought | None:
    sealed = part.data if isinstance(part, RedactedThinking) else part.signature
    if not sealed or not isinstance(part.extra.get("id"), str):
        return location.left_out("thinking", index)
    extra = {name: value for name, value in part.extra.items() if name != "content"}
    return msgspec.structs.replace(part, cache=None, extra=extra)


def _translate_unknown(part: Unknown, index: int, location: PartLocation) -> Unknown | None:
    return part if part.dialect == DIALECT else location.left_out("block", index)


TRANSLATORS: dict[type, Callable[[Any, int, PartLocation], AnyPart | None]] = {
    Document: _translate_document,
    Image: _translate_image,
    RedactedThinking: _translate_thinking,
    Refusal: _translate_refusal,
    Text: _translate_text,
    Thinking: _translate_thinking,
    ToolCall: _translate_call,
    ToolResult: _translate_result,
    Unknown: _translate_unknown,
}
ALLOWED: dict[Role, tuple[type, ...]] = {
    "assistant": (Text, Refusal, ToolCall, Thinking, RedactedThinking, Unknown),
    "system": (Text, Unknown),
    "tool": (Text, Image, Document, ToolResult, Unknown),
    "user": (Text, Image, Document, ToolResult, Unknown),
}
