"""Requests in OpenAI's words: read at our own door, written for conversations of other protocols.

Reading keeps every message's bytes. Writing sends a message that is already OpenAI's as it is and
translates the others part by part; what OpenAI cannot be told is named in a notice, one for each
kind of thing. It sends nothing, makes up no text, and never chooses a system prompt.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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
from cllm.core.prompt import Prompt
from cllm.wire.malformed import FieldError
from cllm.wire.openai_options import MAX_CALL_ID, Fields, Notes, decode_options, encode_options
from cllm.wire.openai_parts import encode_parts
from cllm.wire.reasoning import without_reasoning
from cllm.wire.spoken import Encoded, Spoken

__all__ = [
    "decode_options",
    "decode_request",
    "encode_options",
    "encode_request",
]

KEPT_OF_ID = 23
MEDIA = (Image, Document)
WORDS = (Text, Unknown)
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
    messages: Sequence[Spoken],
    parameters: Fields,
    stream: bool,
) -> Encoded:
    """The body that asks for the answer to these messages; the same in gives the same bytes."""
    notes = Notes()
    encoded: list[Writable] = []
    if system is not None:
        said = _translated(enumerate(system), _Place("system", "system", notes))
        encoded.extend([_written("system", said)] if said else [])
    for caller, followers in _exchanges(messages):
        encoded.extend(_encode_exchange(caller, followers, notes))
    own: Fields = {"model": model, "messages": encoded}
    body = own | parameters | own
    body.pop("stream", None)
    if stream:
        chosen = parameters.get("stream_options")
        usage = {"include_usage": True, **(chosen if isinstance(chosen, dict) else {})}
        body |= {"stream": True, "stream_options": usage}
    else:
        body.pop("stream_options", None)
    return Encoded(body=msgspec.json.encode(body), notices=notes.notices())


class _Plain(msgspec.Struct):
    """A message of one text, which most are."""

    role: str
    content: str


Writable = msgspec.Raw | _Plain


class _Place(NamedTuple):
    """Where a part stands: whose words they are, the path to them, and the notes about them."""

    role: Role
    path: str
    notes: Notes

    def left_out(self, code: str, index: int, *, subject: str = "") -> None:
        self.notes.add(code, f"{self.path}[{index}]", subject=subject)


Numbered = tuple[int, Spoken]


def _exchanges(messages: Sequence[Spoken]) -> Iterator[tuple[Numbered | None, list[Numbered]]]:
    """The messages, cut before each of the assistant's: who may have called, what came after."""
    caller: Numbered | None = None
    followers: list[Numbered] = []
    for numbered in enumerate(messages):
        if numbered[1].role != "assistant":
            followers.append(numbered)
            continue
        if caller is not None or followers:
            yield caller, followers
        caller, followers = numbered, []
    yield caller, followers


def _encode_exchange(
    caller: Numbered | None, followers: list[Numbered], notes: Notes
) -> Iterator[Writable]:
    """An assistant's message, the results of its calls in their order, and what else was said."""
    calls: list[str] = []
    aliases: dict[str, str] = {}
    if caller is not None:
        calls = [part.id for part in caller[1].parts if isinstance(part, ToolCall)]
        if caller[1].raw is None:
            aliases = {call: alias for call in calls if (alias := _call_id(call)) != call}
        yield _encode_message(caller, notes)
    if not any(_has_result(message) for _, message in followers):
        yield from (_encode_message(numbered, notes) for numbered in followers)
        return
    order = {call: place for place, call in reversed(list(enumerate(calls)))}
    results: list[tuple[int, Writable]] = []
    rest: list[Writable] = []
    for numbered in followers:
        if not _has_result(numbered[1]):
            rest.append(_encode_message(numbered, notes))
            continue
        for call_id, encoded in _encode_answering(numbered, aliases, notes):
            if call_id is None or caller is None:
                rest.append(encoded)
            else:
                results.append((order.get(call_id, len(order)), encoded))
    results.sort(key=lambda result: result[0])
    yield from (encoded for _, encoded in results)
    yield from rest


def _has_result(message: Spoken) -> bool:
    return ToolResult in map(type, message.parts)


def _encode_answering(
    numbered: Numbered, aliases: dict[str, str], notes: Notes
) -> Iterator[tuple[str | None, Writable]]:
    """A message with results: each with the call it answers, then the rest as the user's."""
    index, message = numbered
    place = _Place("user", f"messages[{index}].content", notes)
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if message.raw is not None and not any(part.call_id in aliases for part in results):
        yield results[0].call_id, msgspec.Raw(message.raw)
        return
    rest: list[AnyPart] = []
    for number, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            result, media = _translate_result(part, number, place)
            rest.extend(media)
            alias = aliases.get(part.call_id, part.call_id)
            yield part.call_id, _written("tool", [msgspec.structs.replace(result, call_id=alias)])
    others = (pair for pair in enumerate(message.parts) if not isinstance(pair[1], ToolResult))
    rest.extend(_translated(others, place))
    if rest:
        yield None, _written("user", rest)


def _translate_result(
    result: ToolResult, index: int, place: _Place
) -> tuple[ToolResult, list[AnyPart]]:
    """The result as a tool message can hold it, and what it held beside text."""
    if result.is_error:
        place.left_out("error_flag_left_out", index)
    _note_tail(result, index, place)
    inner = _Place("user", f"{place.path}[{index}].content", place.notes)
    content: list[Text | Image | Document | Unknown] = []
    media: list[AnyPart] = []
    for number, part in enumerate(result.content):
        said = TRANSLATORS[type(part)](part, number, inner)
        if isinstance(said, MEDIA):
            inner.left_out("media_moved", number)
            media.append(said)
        elif isinstance(said, WORDS):
            content.append(said)
    return ToolResult(call_id=result.call_id, content=tuple(content)), media


def _encode_message(numbered: Numbered, notes: Notes) -> Writable:
    index, message = numbered
    if message.raw is not None:
        return msgspec.Raw(without_reasoning(message.raw))
    place = _Place(message.role, f"messages[{index}].content", notes)
    return _written(message.role, _translated(enumerate(message.parts), place))


def _written(role: Role, parts: Sequence[AnyPart]) -> Writable:
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text):
        return _Plain(role, only.text)
    return msgspec.Raw(encode_parts(role, parts).raw)


def _translated(parts: Iterable[tuple[int, AnyPart]], place: _Place) -> list[AnyPart]:
    """The parts as OpenAI takes them from this role."""
    said: list[AnyPart] = []
    allowed = ALLOWED[place.role]
    for index, part in parts:
        translated = TRANSLATORS[type(part)](part, index, place)
        if translated is None:
            continue
        if isinstance(translated, allowed):
            said.append(translated)
        else:
            place.left_out("part_left_out", index, subject=type(part).__name__)
    return _without_blanks(said, place.role)


def _without_blanks(said: list[AnyPart], role: Role) -> list[AnyPart]:
    """Empty text gives way to anything else, white space beside a call or as a prompt too."""
    substance = role == "system" or any(isinstance(part, ToolCall) for part in said)
    kept = [
        part
        for part in said
        if not isinstance(part, Text) or (part.text.strip() if substance else part.text)
    ]
    return kept or ([] if role == "system" else said[:1])


def _note_tail(
    part: AnyPart, index: int, place: _Place, *, known: frozenset[str] = frozenset()
) -> None:
    if part.cache is not None:
        place.left_out("cache_mark_left_out", index)
    for name in part.extra:
        if name not in known:
            place.notes.add("field_left_out", f"{place.path}[{index}].{name}", subject=name)


def _translate_text(part: Text, index: int, place: _Place) -> Text:
    if part.cache is None and not part.extra:
        return part
    _note_tail(part, index, place)
    return Text(text=part.text)


def _translate_refusal(part: Refusal, index: int, place: _Place) -> Refusal:
    _note_tail(part, index, place)
    return Refusal(text=part.text)


def _translate_image(part: Image, index: int, place: _Place) -> Image | None:
    if part.url is None and (part.data is None or part.media_type is None):
        return place.left_out("image_left_out", index)
    _note_tail(part, index, place, known=frozenset({"image_url"}))
    detail = part.extra.get("image_url")
    extra = {"image_url": detail} if isinstance(detail, dict) else {}
    return msgspec.structs.replace(part, cache=None, extra=extra)


def _translate_document(part: Document, index: int, place: _Place) -> Text | Document | None:
    """Plain text as text; data under a name, which OpenAI asks for."""
    if part.text is None and part.data is None and part.file_id is None:
        return place.left_out("document_left_out", index)
    _note_tail(part, index, place)
    if part.text is not None:
        if part.name is not None:
            place.left_out("document_name_left_out", index)
        return Text(text=part.text)
    if part.data is None:
        return Document(file_id=part.file_id, name=part.name)
    media_type = part.media_type or "application/octet-stream"
    name = part.name or f"document.{media_type.rpartition('/')[2]}"
    return Document(media_type=media_type, data=part.data, name=name)


def _translate_call(part: ToolCall, index: int, place: _Place) -> ToolCall:
    _note_tail(part, index, place)
    call_id = _call_id(part.id)
    if call_id != part.id:
        place.left_out("tool_call_id_changed", index)
    return ToolCall(id=call_id, name=part.name, arguments=part.arguments or "{}")


def _call_id(given: str) -> str:
    """The id itself, or for one too long a shorter one that is always the same."""
    if len(given) <= MAX_CALL_ID:
        return given
    return f"{given[:KEPT_OF_ID]}_{hashlib.sha256(given.encode()).hexdigest()[:16]}"


def _leave_thinking(_: Thinking | RedactedThinking, index: int, place: _Place) -> None:
    place.left_out("thinking_left_out", index)


def _translate_unknown(part: Unknown, index: int, place: _Place) -> Unknown | None:
    if part.dialect == "openai":
        return part
    return place.left_out("block_left_out", index)


def _same(part: ToolResult, _index: int, _place: _Place) -> ToolResult:
    return part


TRANSLATORS: dict[type, Callable[[Any, int, _Place], AnyPart | None]] = {
    Document: _translate_document,
    Image: _translate_image,
    RedactedThinking: _leave_thinking,
    Refusal: _translate_refusal,
    Text: _translate_text,
    Thinking: _leave_thinking,
    ToolCall: _translate_call,
    ToolResult: _same,
    Unknown: _translate_unknown,
}
ALLOWED: dict[Role, tuple[type, ...]] = {
    "assistant": (Text, Refusal, ToolCall, Unknown),
    "system": (Text, Unknown),
    "tool": (Text, Unknown),
    "user": (Text, Image, Document, Unknown),
}


def decode_request(body: bytes) -> Prompt:
    """What a client of OpenAI's asks for, in its own words: every message as it came, in order."""
    fields, raws = _decode_body(body)
    model, stream = fields.get("model"), fields.get("stream")
    if not isinstance(model, str) or not model.strip():
        raise FieldError("model", "the name of a model is needed")
    if not isinstance(stream, bool | None):
        raise FieldError("stream", "true or false is needed")
    said = fields["messages"]
    return Prompt(
        model=model,
        messages=tuple(
            Message(role=_checked_role(message, f"messages[{index}]"), raw=bytes(raw))
            for index, (message, raw) in enumerate(zip(said, raws, strict=True))
        ),
        parameters={k: fields[k] for k in fields if k not in ("model", "messages", "stream")},
        dialect="openai",
        stream=bool(stream),
    )


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def _decode_body(body: bytes) -> tuple[Fields, list[msgspec.Raw]]:
    """The fields, all of them read once so that nothing in them fails later, and the messages."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FieldError("", f"body: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FieldError("", "body: a JSON object is needed")
    if not isinstance(fields.get("messages"), list):
        raise FieldError("messages", "a list of messages is needed")
    return fields, _list_decoder.decode(_fields_decoder.decode(body)["messages"])


def _checked_role(message: Any, path: str) -> Role:
    """The role of a message whose fields have the types that its parts are read from."""
    if not isinstance(message, dict):
        raise FieldError(path, "an object is needed")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise FieldError(f"{path}.role", f"one of {', '.join(ROLES)} is needed")
    _check_content(message.get("content"), f"{path}.content")
    _check_calls(message.get("tool_calls"), f"{path}.tool_calls")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise FieldError(f"{path}.tool_call_id", "the id of the call it answers is needed")
    return ROLES[role]


def _check_content(content: Any, path: str) -> None:
    if not isinstance(content, str | list | None):
        raise FieldError(path, "a text or a list of parts is needed")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise FieldError(f"{path}[{index}]", "an object with a type is needed")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise FieldError(f"{path}[{index}].text", "a text is needed")


def _check_calls(calls: Any, path: str) -> None:
    if not isinstance(calls, list | None):
        raise FieldError(path, "a list of calls is needed")
    for index, call in enumerate(calls or ()):
        if not isinstance(call, dict):
            raise FieldError(f"{path}[{index}]", "an object is needed")
        if not isinstance(call.get("id"), str):
            raise FieldError(f"{path}[{index}].id", "the id of the call is needed")
