"""Encodes replies of any provider as Responses API bodies and SSE events.

A stream repeats the whole text when an item is done, and again at the end.
"""

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

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
    ModelReported,
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
    UsageReported,
    Verbatim,
)
from cllm.wire.messages import to_delta
from cllm.wire.openai.options import Fields
from cllm.wire.responses import custom_tools
from cllm.wire.responses.custom_tools import decode_input
from cllm.wire.responses.ids import GENERATED_REASONING
from cllm.wire.responses.items import (
    ContentBlock,
    StreamedItem,
    custom_call_item,
    message_item,
    summary_text,
)
from cllm.wire.responses.parts import (
    DIALECT,
    ITEMS,
    Item,
    encode_block,
    encode_item,
    is_content_part,
)
from cllm.wire.responses.response_fields import (
    ResponseFields,
    Status,
    encode_usage,
    response_status,
)

NO_ARGUMENTS = "{}"
# A tuple: a union in isinstance() would be built for every event.
UNSENT_EVENTS = (Noticed, UsageReported, ModelReported, Verbatim)
TEXT_FIELDS = frozenset({"annotations", "logprobs"})


def encode_answer(
    parts: Sequence[AnyPart],
    *,
    stop_reason: StopReason,
    usage: Usage | None,
    heading: ResponseFields,
) -> bytes:
    """Encode a whole reply; `visible_part` selects the parts."""
    refused = any(isinstance(part, Refusal) for part in parts)
    status, details = response_status(stop_reason, refused=refused)
    output = list(encode_output(parts, heading, status))
    fields = {"incomplete_details": details, "output": output, "usage": encode_usage(usage)}
    return msgspec.json.encode(heading.response(status, **fields))


def encode_output(
    parts: Sequence[AnyPart], heading: ResponseFields, status: Status
) -> Iterator[Item]:
    """Yield the output items, at least one; adjacent texts are one message."""
    runs: list[list[AnyPart]] = []
    for part in map(visible_part, parts):
        if part is not None and runs and is_content_part(part) and is_content_part(runs[-1][0]):
            runs[-1].append(part)
        elif part is not None:
            runs.append([part])
    runs = runs or [[Text(text="")]]
    numbers = ItemNumbers()
    for index, run in enumerate(runs):
        item_status: Status = status if index == len(runs) - 1 else "completed"
        yield _output_item(run, numbers, heading, item_status)


class ItemNumbers(dict[str, int]):
    """The numbers of items for their IDs, by kind: messages, calls, reasoning.

    A stream can have them in another order than the stored reply.
    """

    def take(self, prefix: str) -> int:
        """Return the number of the next item; calls of functions and custom tools share them."""
        kind = "fc" if prefix == "ctc" else prefix
        self[kind] = self.get(kind, -1) + 1
        return self[kind]


def visible_part(part: AnyPart) -> AnyPart | None:
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
    run: Sequence[AnyPart], numbers: ItemNumbers, heading: ResponseFields, status: Status
) -> Item:
    first = run[0]
    if is_content_part(first):
        blocks = [encode_block(part, "assistant") for part in run]
        return message_item(heading.item_id("msg", numbers.take("msg")), blocks, status)
    item = encode_item(first)
    if isinstance(item, msgspec.Raw):
        return item
    if isinstance(first, ToolCall):
        if first.name in heading.custom_names:
            return custom_call_item(heading.item_id("ctc", numbers.take("ctc")), first)
        return {"id": heading.item_id("fc", numbers.take("fc")), **item, "status": status}
    number = numbers.take(GENERATED_REASONING)
    return {"id": heading.item_id(GENERATED_REASONING, number), **item}


encode_json = msgspec.json.Encoder().encode


class ResponsesStreamEncoder:
    """Encodes one stream: reply events in, bytes of server-sent events out.

    Ends with `response.completed`, `response.incomplete` or `response.failed`.
    """

    def __init__(self, heading: ResponseFields) -> None:
        self._heading = heading
        self.sequence = 0
        self._next_index = 0
        self._numbers = ItemNumbers()
        self._output: dict[int, Any] = {}
        self._current: StreamedItem | None = None
        self._calls: dict[int, StreamedItem] = {}
        self._text_index: int | None = None
        self._refused = False
        self._closed = False

    def encode(self, event: ReplyEvent) -> bytes:
        """Encode one event; empty for events that clients of this API do not receive."""
        item = self._current
        if item is not None and type(event) is TextDelta and event.index == self._text_index:
            return self._append_text(item, event.text)
        if self._closed or isinstance(event, UNSENT_EVENTS):
            return b""
        first = b""
        if not self.sequence:
            started = {"response": self._heading.response("in_progress")}
            first = self._event("response.created", started)
            first += self._event("response.in_progress", started)
        return first + self._encode(event)

    def _encode(self, event: ReplyDelta | ReplyFinished) -> bytes:
        match event:
            case TextDelta():
                return self._add_text(event.text, "output_text", event.index)
            case RefusalDelta():
                return self._add_refusal(event.text, event.index)
            case ThinkingDelta():
                return self._add_thinking(event)
            case ToolCallDelta():
                return self._add_call(event)
            case PartAdded():
                return self._add_part(event)
            case ReplyFinished():
                return self._finish(event)
            case _:
                assert_never(event)

    def error(
        self,
        message: str,
        *,
        type: str,  # noqa: A002
        code: str | None = None,
        response: Fields | None = None,
    ) -> bytes:
        """Encode an error that ends the stream: `error`, then `response.failed`.

        `response` is the stored response, if it has ended. The fields are repeated where OpenAI's
        SDK reads them: otherwise it ignores the error.
        """
        if self._closed:
            return b""
        self._closed, self._text_index = True, None
        details = {"code": code, "message": message, "param": None}
        data = self._event("error", {**details, "error": {"type": type, **details}})
        if response is None:
            response = self._heading.failed_response(message, code=code)
        return data + self._event("response.failed", {"response": response})

    def _event(self, name: str, fields: Fields) -> bytes:
        data = encode_json({"type": name, "sequence_number": self.sequence, **fields})
        self.sequence += 1
        if b"\n" in data or b"\r" in data:
            data = msgspec.json.format(data, indent=-1)
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)

    def _delta(self, item: StreamedItem, piece: str) -> bytes:
        number = self.sequence
        self.sequence += 1
        return b'%b%b,"sequence_number":%d}\n\n' % (item.head, encode_json(piece), number)

    def _open(self, kind: str, prefix: str, index: int, item_id: str | None = None) -> StreamedItem:
        output_index = self._next_index
        self._next_index += 1
        item_id = item_id or self._heading.item_id(prefix, self._numbers.take(prefix))
        return StreamedItem(kind=kind, output_index=output_index, id=item_id, index=index)

    def _item_added(self, item: StreamedItem) -> bytes:
        fields = {"output_index": item.output_index, "item": item.fields("in_progress")}
        return self._event("response.output_item.added", fields)

    def _item_done(self, item: StreamedItem, status: str = "completed") -> bytes:
        self._output[item.output_index] = item.fields(status)
        fields = {"output_index": item.output_index, "item": self._output[item.output_index]}
        return self._event("response.output_item.done", fields)

    def _add_text(self, text: str, kind: str, index: int) -> bytes:
        if not text:
            return b""
        opening, item = self._open_block(kind, index)
        item.blocks[-1].pieces.append(text)
        self._text_index = index if kind == "output_text" else None
        return opening + self._delta(item, text)

    def _append_text(self, item: StreamedItem, text: str) -> bytes:
        if not text:
            return b""
        item.blocks[-1].pieces.append(text)
        return self._delta(item, text)

    def _add_refusal(self, text: str, index: int) -> bytes:
        self._refused = True
        return self._add_text(text, "refusal", index)

    def _open_block(self, kind: str, index: int) -> tuple[bytes, StreamedItem]:
        item, opening = self._current, b""
        if item is None or item.kind != "message":
            opening = self._close()
            item = self._current = self._open("message", "msg", index)
            opening += self._item_added(item)
        last = item.blocks[-1] if item.blocks else None
        if last is not None and (last.kind, last.index) == (kind, index):
            return opening, item
        opening += self._close_block(item)
        block = ContentBlock(kind=kind, index=index)
        item.blocks.append(block)
        more: Fields = {"logprobs": []} if kind == "output_text" else {}
        item.head = _head(f"response.{kind}.delta", {**self._position(item), **more})
        fields = {**self._position(item), "part": block.block()}
        return opening + self._event("response.content_part.added", fields), item

    def _position(self, item: StreamedItem) -> Fields:
        position = {"item_id": item.id, "output_index": item.output_index}
        if item.kind != "message":
            return position
        return position | {"content_index": len(item.blocks) - 1}

    def _close_block(self, item: StreamedItem) -> bytes:
        if not item.blocks:
            return b""
        position, kind, block = self._position(item), item.blocks[-1].kind, item.blocks[-1].block()
        names = ("refusal",) if kind == "refusal" else ("text", "logprobs")
        whole = {name: block[name] for name in names}
        done = self._event(f"response.{kind}.done", {**position, **whole})
        return done + self._event("response.content_part.done", {**position, "part": block})

    def _add_annotations(self, annotations: list[Any], index: int) -> bytes:
        opening, item = self._open_block("output_text", index)
        out = [opening]
        for annotation in annotations:
            block = item.blocks[-1]
            number = {"annotation_index": len(block.annotations), "annotation": annotation}
            block.annotations.append(annotation)
            fields = {**self._position(item), **number}
            out.append(self._event("response.output_text.annotation.added", fields))
        return b"".join(out)

    def _add_thinking(self, event: ThinkingDelta, item_id: str | None = None) -> bytes:
        if not event.text and not event.signature and item_id is None:
            return b""
        out, item = b"", self._current
        if item is None or item.kind != "reasoning" or item.index != event.index:
            out = self._close()
            item = self._current = self._open(
                "reasoning", GENERATED_REASONING, event.index, item_id
            )
            out += self._item_added(item)
            position = {**self._position(item), "summary_index": 0}
            item.head = _head("response.reasoning_summary_text.delta", position)
        if event.signature:
            item.encrypted.append(event.signature)
        if not event.text:
            return out
        if not item.pieces:
            out += self._summary(item, "part.added", {"part": summary_text("")})
        item.pieces.append(event.text)
        return out + self._delta(item, event.text)

    def _summary(self, item: StreamedItem, step: str, fields: Fields) -> bytes:
        position = {**self._position(item), "summary_index": 0}
        return self._event(f"response.reasoning_summary_{step}", {**position, **fields})

    def _add_call(self, event: ToolCallDelta) -> bytes:
        """Encode a piece of a call. Calls stay open to the end, as their pieces may interleave."""
        out, call = b"", self._calls.get(event.index)
        if call is None:
            out = self._close()
            is_custom = event.name in self._heading.custom_names
            kind = (custom_tools.CALL, "ctc") if is_custom else ("function_call", "fc")
            call = self._calls[event.index] = self._open(*kind, event.index)
            call.call_id, call.name = event.id or call.id, event.name or ""
            out += self._item_added(call)
            call.head = _head("response.function_call_arguments.delta", self._position(call))
        if not event.arguments:
            return out
        call.pieces.append(event.arguments)
        # The input of a custom call is known when its arguments are complete.
        return out if call.kind == custom_tools.CALL else out + self._delta(call, event.arguments)

    def _add_part(self, event: PartAdded) -> bytes:
        part, index = event.part, event.index
        match part:
            case Text():
                out = self._add_text(part.text, "output_text", index)
                annotations = part.extra.get("annotations") or []
                return out + self._add_annotations(annotations, index) if annotations else out
            case Thinking():
                delta = ThinkingDelta(text=part.text, signature=part.signature, index=index)
                return self._add_thinking(delta, part.extra.get("id"))
            case RedactedThinking():
                delta = ThinkingDelta(signature=part.data, index=index)
                return self._close() + self._add_thinking(delta, part.extra.get("id"))
            case Unknown():
                return self._add_item(part)
            case Refusal() | ToolCall():
                return self._encode(to_delta(part, index))
            case Image() | Document() | ToolResult():
                return b""
            case _:
                assert_never(part)

    def _add_item(self, part: Unknown) -> bytes:
        if visible_part(part) is None:
            return b""
        out = self._close()
        fields = {"output_index": self._next_index, "item": encode_item(part)}
        self._output[self._next_index] = fields["item"]
        self._next_index += 1
        out += self._event("response.output_item.added", fields)
        return out + self._event("response.output_item.done", fields)

    def _close(self, status: str = "completed") -> bytes:
        item, self._current, self._text_index = self._current, None, None
        if item is None:
            return b""
        out = self._close_block(item)
        if item.kind == "reasoning" and item.pieces:
            text = "".join(item.pieces)
            out += self._summary(item, "text.done", {"text": text})
            out += self._summary(item, "part.done", {"part": summary_text(text)})
        return out + self._item_done(item, status)

    def _close_custom_call(self, call: StreamedItem) -> bytes:
        text = decode_input("".join(call.pieces))
        position, name = self._position(call), f"response.{custom_tools.CALL}_input"
        out = self._event(f"{name}.delta", {**position, "delta": text}) if text else b""
        return (
            out + self._event(f"{name}.done", {**position, "input": text}) + self._item_done(call)
        )

    def _close_call(self, call: StreamedItem, status: str) -> bytes:
        if call.kind == custom_tools.CALL:
            return self._close_custom_call(call)
        out = b""
        if not call.pieces:
            call.pieces.append(NO_ARGUMENTS)
            out = self._delta(call, NO_ARGUMENTS)
        whole = {**self._position(call), "name": call.name, "arguments": "".join(call.pieces)}
        done = self._event("response.function_call_arguments.done", whole)
        return out + done + self._item_done(call, status)

    def _finish(self, event: ReplyFinished) -> bytes:
        status, details = response_status(event.stop_reason, refused=self._refused)
        out = [] if self._next_index else [self._open_block("output_text", 0)[0]]
        last = self._next_index - 1
        if self._current is not None:
            out.append(self._close(status if self._current.output_index == last else "completed"))
        out += [
            self._close_call(call, status if call.output_index == last else "completed")
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
