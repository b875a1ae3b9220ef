"""Replies of any provider as Responses API bodies and events.

In a stream the pieces are repeated whole when an item is done, and again at the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, assert_never

import msgspec

from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.reply import (
    Noticed,
    PartAdded,
    RefusalDelta,
    ReplyDelta,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    Verbatim,
)
from cllm.wire.messages import to_delta
from cllm.wire.openai.fields import encode_usage as encode_chat_usage
from cllm.wire.openai.options import Fields
from cllm.wire.responses.parts import (
    DIALECT,
    ITEMS,
    LENT_NAME,
    Item,
    encode_block,
    encode_item,
    is_word,
)

Status = Literal["completed", "incomplete"]
NO_ARGUMENTS = "{}"
PREFIX = "resp_"
TEXT_FIELDS = frozenset({"annotations", "logprobs"})
# Request parameters that an answer repeats, with their defaults.
ECHOED: Fields = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


class ResponseFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an answer beside its output; `asked` are the client's parameters."""

    id: str
    model: str
    created: int
    asked: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def item_id(self, prefix: str, place: int) -> str:
        return f"{prefix}_{self.id.removeprefix(PREFIX)}_{place}"

    def response(self, status: str, **fields: Any) -> Fields:
        """Return the response object; `fields` are output, usage and error."""
        said = {
            name: default if self.asked.get(name) is None else self.asked[name]
            for name, default in ECHOED.items()
        }
        head = {"id": self.id, "object": "response", "created_at": self.created, "status": status}
        nothing: Fields = {"error": None, "incomplete_details": None, "output": [], "usage": None}
        return {**head, "model": self.model, **said, **nothing, **fields}


def ending(stop_reason: StopReason, *, refused: bool) -> tuple[Status, Fields | None]:
    """Return status and details; a refusal with text is complete, one without was filtered."""
    if stop_reason in ("end", "stop_sequence", "tool_calls"):
        return "completed", None
    if stop_reason == "refusal" and refused:
        return "completed", None
    filtered = stop_reason in ("content_filter", "refusal")
    return "incomplete", {"reason": "content_filter" if filtered else "max_output_tokens"}


def encode_usage(usage: Usage | None) -> Fields | None:
    """Encode token counts; OpenAI's totals include the details."""
    if usage is None:
        return None
    chat = encode_chat_usage(usage)
    return {
        "input_tokens": chat["prompt_tokens"],
        "input_tokens_details": chat["prompt_tokens_details"],
        "output_tokens": chat["completion_tokens"],
        "output_tokens_details": chat["completion_tokens_details"],
        "total_tokens": chat["total_tokens"],
    }


def encode_answer(
    parts: Sequence[AnyPart],
    *,
    stop_reason: StopReason,
    usage: Usage | None,
    heading: ResponseFields,
) -> bytes:
    """Encode a whole answer, without parts that are not `shown`."""
    refused = any(isinstance(part, Refusal) for part in parts)
    status, details = ending(stop_reason, refused=refused)
    output = list(encode_output(parts, heading, status))
    fields = {"incomplete_details": details, "output": output, "usage": encode_usage(usage)}
    return msgspec.json.encode(heading.response(status, **fields))


def encode_output(
    parts: Sequence[AnyPart], heading: ResponseFields, status: Status
) -> Iterator[Item]:
    """Yield the output items, at least one; adjacent texts are one message."""
    runs: list[list[AnyPart]] = []
    for part in map(shown, parts):
        if part is not None and runs and is_word(part) and is_word(runs[-1][0]):
            runs[-1].append(part)
        elif part is not None:
            runs.append([part])
    runs = runs or [[Text(text="")]]
    for place, run in enumerate(runs):
        ended: Status = status if place == len(runs) - 1 else "completed"
        yield _output_item(run, place, heading, ended)


def shown(part: AnyPart) -> AnyPart | None:
    """Return the part as clients of this API receive it, or None."""
    match part:
        case Text():
            extra = {name: part.extra[name] for name in part.extra if name in TEXT_FIELDS}
            return Text(text=part.text, extra=extra)
        case Refusal():
            return Refusal(text=part.text)
        case ToolCall():
            return ToolCall(id=part.id, name=part.name, arguments=part.arguments or NO_ARGUMENTS)
        case Thinking() | RedactedThinking():
            extra = part.extra if "id" in part.extra else {}
            return msgspec.structs.replace(part, extra=extra, cache=None)
        case Unknown():
            return part if part.dialect == DIALECT and part.field == ITEMS else None
        case _:
            return None


def _output_item(
    run: Sequence[AnyPart], place: int, heading: ResponseFields, status: Status
) -> Item:
    first = run[0]
    if is_word(first):
        blocks = [encode_block(part, "assistant") for part in run]
        return message_item(heading.item_id("msg", place), blocks, status)
    item = encode_item(first)
    if isinstance(item, msgspec.Raw):
        return item
    if isinstance(first, ToolCall):
        return {"id": heading.item_id("fc", place), **item, "status": status}
    return {"id": heading.item_id(LENT_NAME, place), **item}


def message_item(item_id: str, blocks: list[Any], status: str) -> Fields:
    head = {"id": item_id, "type": "message", "status": status, "role": "assistant"}
    return {**head, "content": blocks}


encode_json = msgspec.json.Encoder().encode


class _Words(msgspec.Struct):
    kind: str
    index: int
    pieces: list[str] = msgspec.field(default_factory=list)
    annotations: list[Any] = msgspec.field(default_factory=list)

    def block(self) -> Fields:
        text = "".join(self.pieces)
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        lists: Fields = {"annotations": self.annotations, "logprobs": []}
        return {"type": "output_text", "text": text, **lists}


class _Item(msgspec.Struct):
    kind: str
    place: int
    id: str
    index: int
    blocks: list[_Words] = msgspec.field(default_factory=list)
    pieces: list[str] = msgspec.field(default_factory=list)
    sealed: list[str] = msgspec.field(default_factory=list)
    call_id: str = ""
    name: str = ""
    head: bytes = b""

    def fields(self, status: str) -> Fields:
        text = "".join(self.pieces)
        if self.kind == "message":
            return message_item(self.id, [block.block() for block in self.blocks], status)
        if self.kind == "reasoning":
            summary = [_summary_text(text)] if text else []
            said: Fields = {"id": self.id, "type": "reasoning", "summary": summary}
            sealed = "".join(self.sealed)
            return {**said, "encrypted_content": sealed} if sealed else said
        call = {"id": self.id, "type": "function_call", "status": status}
        return {**call, "arguments": text, "call_id": self.call_id, "name": self.name}


class ResponsesStreamEncoder:
    """Encodes one stream: reply events in, bytes of server-sent events out.

    Ends with `response.completed`, `response.incomplete` or an error. Nothing follows either.
    """

    def __init__(self, heading: ResponseFields) -> None:
        self._heading = heading
        self._sequence = 0
        self._places = 0
        self._output: dict[int, Any] = {}
        self._said: _Item | None = None
        self._calls: dict[int, _Item] = {}
        self._speaking: int | None = None
        self._refused = False
        self._closed = False

    def encode(self, event: ReplyEvent) -> bytes:
        """Encode one event; empty for events that clients of this API do not receive."""
        item = self._said
        if item is not None and type(event) is TextDelta and event.index == self._speaking:
            return self._say_on(item, event.text)
        if self._closed or isinstance(event, Noticed | Verbatim):
            return b""
        opening = b""
        if not self._sequence:
            begun = {"response": self._heading.response("in_progress")}
            opening = self._event("response.created", begun)
            opening += self._event("response.in_progress", begun)
        return opening + self._encode(event)

    def _encode(self, event: ReplyDelta | ReplyFinished) -> bytes:
        match event:
            case TextDelta():
                return self._say(event.text, "output_text", event.index)
            case RefusalDelta():
                return self._refuse(event.text, event.index)
            case ThinkingDelta():
                return self._think(event)
            case ToolCallDelta():
                return self._call(event)
            case PartAdded():
                return self._part(event)
            case ReplyFinished():
                return self._finish(event)
            case _:
                assert_never(event)

    def comment(self, text: str = "keep-alive") -> bytes:
        """Return a comment that keeps the connection open."""
        return f": {' '.join(text.split())}\n\n".encode()

    def error(self, message: str, *, type: str, code: str | None = None) -> bytes:  # noqa: A002
        """Encode an error that ends the stream.

        The facts are repeated where OpenAI's SDK looks for them: otherwise it ignores the
        error.
        """
        if self._closed:
            return b""
        self._closed, self._speaking = True, None
        facts = {"code": code, "message": message, "param": None}
        return self._event("error", {**facts, "error": {"type": type, **facts}})

    def _event(self, name: str, fields: Fields) -> bytes:
        data = encode_json({"type": name, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        if b"\n" in data or b"\r" in data:
            data = msgspec.json.format(data, indent=-1)
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)

    def _delta(self, item: _Item, piece: str) -> bytes:
        number = self._sequence
        self._sequence += 1
        return b'%b%b,"sequence_number":%d}\n\n' % (item.head, encode_json(piece), number)

    def _open(self, kind: str, prefix: str, index: int, item_id: str | None = None) -> _Item:
        place = self._places
        self._places += 1
        item_id = item_id or self._heading.item_id(prefix, place)
        return _Item(kind=kind, place=place, id=item_id, index=index)

    def _added(self, item: _Item) -> bytes:
        fields = {"output_index": item.place, "item": item.fields("in_progress")}
        return self._event("response.output_item.added", fields)

    def _done(self, item: _Item, status: str = "completed") -> bytes:
        self._output[item.place] = item.fields(status)
        fields = {"output_index": item.place, "item": self._output[item.place]}
        return self._event("response.output_item.done", fields)

    def _say(self, text: str, kind: str, index: int) -> bytes:
        if not text:
            return b""
        opening, item = self._words(kind, index)
        item.blocks[-1].pieces.append(text)
        self._speaking = index if kind == "output_text" else None
        return opening + self._delta(item, text)

    def _say_on(self, item: _Item, text: str) -> bytes:
        if not text:
            return b""
        item.blocks[-1].pieces.append(text)
        return self._delta(item, text)

    def _refuse(self, text: str, index: int) -> bytes:
        self._refused = True
        return self._say(text, "refusal", index)

    def _words(self, kind: str, index: int) -> tuple[bytes, _Item]:
        item, opening = self._said, b""
        if item is None or item.kind != "message":
            opening = self._close()
            item = self._said = self._open("message", "msg", index)
            opening += self._added(item)
        last = item.blocks[-1] if item.blocks else None
        if last is not None and (last.kind, last.index) == (kind, index):
            return opening, item
        opening += self._close_words(item)
        block = _Words(kind=kind, index=index)
        item.blocks.append(block)
        more: Fields = {"logprobs": []} if kind == "output_text" else {}
        item.head = _head(f"response.{kind}.delta", {**self._at(item), **more})
        fields = {**self._at(item), "part": block.block()}
        return opening + self._event("response.content_part.added", fields), item

    def _at(self, item: _Item) -> Fields:
        at = {"item_id": item.id, "output_index": item.place}
        return at | {"content_index": len(item.blocks) - 1} if item.kind == "message" else at

    def _close_words(self, item: _Item) -> bytes:
        if not item.blocks:
            return b""
        at, kind, block = self._at(item), item.blocks[-1].kind, item.blocks[-1].block()
        names = ("refusal",) if kind == "refusal" else ("text", "logprobs")
        whole = {name: block[name] for name in names}
        done = self._event(f"response.{kind}.done", {**at, **whole})
        return done + self._event("response.content_part.done", {**at, "part": block})

    def _annotate(self, annotations: list[Any], index: int) -> bytes:
        opening, item = self._words("output_text", index)
        out = [opening]
        for annotation in annotations:
            block = item.blocks[-1]
            number = {"annotation_index": len(block.annotations), "annotation": annotation}
            block.annotations.append(annotation)
            fields = {**self._at(item), **number}
            out.append(self._event("response.output_text.annotation.added", fields))
        return b"".join(out)

    def _think(self, event: ThinkingDelta, item_id: str | None = None) -> bytes:
        if not event.text and not event.signature and item_id is None:
            return b""
        out, item = b"", self._said
        if item is None or item.kind != "reasoning" or item.index != event.index:
            out = self._close()
            item = self._said = self._open("reasoning", LENT_NAME, event.index, item_id)
            out += self._added(item)
            at = {**self._at(item), "summary_index": 0}
            item.head = _head("response.reasoning_summary_text.delta", at)
        if event.signature:
            item.sealed.append(event.signature)
        if not event.text:
            return out
        if not item.pieces:
            out += self._summary(item, "part.added", {"part": _summary_text("")})
        item.pieces.append(event.text)
        return out + self._delta(item, event.text)

    def _summary(self, item: _Item, step: str, fields: Fields) -> bytes:
        at = {**self._at(item), "summary_index": 0}
        return self._event(f"response.reasoning_summary_{step}", {**at, **fields})

    def _call(self, event: ToolCallDelta) -> bytes:
        """Encode a piece of a call. Calls stay open to the end: their pieces may interleave."""
        out, call = b"", self._calls.get(event.index)
        if call is None:
            out = self._close()
            call = self._calls[event.index] = self._open("function_call", "fc", event.index)
            call.call_id, call.name = event.id or call.id, event.name or ""
            out += self._added(call)
            call.head = _head("response.function_call_arguments.delta", self._at(call))
        if not event.arguments:
            return out
        call.pieces.append(event.arguments)
        return out + self._delta(call, event.arguments)

    def _part(self, event: PartAdded) -> bytes:
        part, index = event.part, event.index
        match part:
            case Text():
                out = self._say(part.text, "output_text", index)
                annotations = part.extra.get("annotations") or []
                return out + self._annotate(annotations, index) if annotations else out
            case Thinking():
                delta = ThinkingDelta(text=part.text, signature=part.signature, index=index)
                return self._think(delta, part.extra.get("id"))
            case RedactedThinking():
                delta = ThinkingDelta(signature=part.data, index=index)
                return self._close() + self._think(delta, part.extra.get("id"))
            case Unknown():
                return self._whole(part)
            case Refusal() | ToolCall():
                return self._encode(to_delta(part, index))
            case Image() | Document() | ToolResult():
                return b""
            case _:
                assert_never(part)

    def _whole(self, part: Unknown) -> bytes:
        if shown(part) is None:
            return b""
        out = self._close()
        fields = {"output_index": self._places, "item": encode_item(part)}
        self._output[self._places] = fields["item"]
        self._places += 1
        out += self._event("response.output_item.added", fields)
        return out + self._event("response.output_item.done", fields)

    def _close(self, status: str = "completed") -> bytes:
        item, self._said, self._speaking = self._said, None, None
        if item is None:
            return b""
        out = self._close_words(item)
        if item.kind == "reasoning" and item.pieces:
            text = "".join(item.pieces)
            out += self._summary(item, "text.done", {"text": text})
            out += self._summary(item, "part.done", {"part": _summary_text(text)})
        return out + self._done(item, status)

    def _close_call(self, call: _Item, status: str) -> bytes:
        out = b""
        if not call.pieces:
            call.pieces.append(NO_ARGUMENTS)
            out = self._delta(call, NO_ARGUMENTS)
        whole = {**self._at(call), "name": call.name, "arguments": "".join(call.pieces)}
        done = self._event("response.function_call_arguments.done", whole)
        return out + done + self._done(call, status)

    def _finish(self, event: ReplyFinished) -> bytes:
        status, details = ending(event.stop_reason, refused=self._refused)
        out = [] if self._places else [self._words("output_text", 0)[0]]
        last = self._places - 1
        if self._said is not None:
            out.append(self._close(status if self._said.place == last else "completed"))
        out += [
            self._close_call(call, status if call.place == last else "completed")
            for call in self._calls.values()
        ]
        output = [item for _, item in sorted(self._output.items())]
        response = self._heading.response(
            status, incomplete_details=details, output=output, usage=encode_usage(event.usage)
        )
        out.append(self._event(f"response.{status}", {"response": response}))
        self._closed = True
        return b"".join(out)


def _head(name: str, fields: Fields) -> bytes:
    data = encode_json({"type": name, **fields})
    return b'event: %b\ndata: %b,"delta":' % (name.encode(), data[:-1])


def _summary_text(text: str) -> Fields:
    return {"type": "summary_text", "text": text}
