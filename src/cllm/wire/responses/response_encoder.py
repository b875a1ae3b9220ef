"""Streams of any provider as Responses API events.

As in that API, pieces are repeated whole when an item is done, and again at the end.
"""

from typing import Any, assert_never

import msgspec

from cllm.core.message import (
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
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Verbatim,
)
from cllm.wire.openai.options import Fields
from cllm.wire.responses.parts import LENT_NAME, encode_item
from cllm.wire.responses.response_body import (
    NO_ARGUMENTS,
    Heading,
    encode_usage,
    ending,
    message_item,
    shown,
)

encode_json = msgspec.json.Encoder().encode


class _Words(msgspec.Struct):
    """A text or a refusal so far, as a block of a message."""

    kind: str
    index: int
    pieces: list[str] = msgspec.field(default_factory=list)
    annotations: list[Any] = msgspec.field(default_factory=list)

    def block(self) -> Fields:
        text = "".join(self.pieces)
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        return {
            "type": "output_text",
            "text": text,
            "annotations": self.annotations,
            "logprobs": [],
        }


class _Item(msgspec.Struct):
    """An open item: a message by its blocks, reasoning or a call by its pieces."""

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
            summary = [{"type": "summary_text", "text": text}] if text else []
            said: Fields = {"id": self.id, "type": "reasoning", "summary": summary}
            sealed = "".join(self.sealed)
            return {**said, "encrypted_content": sealed} if sealed else said
        call = {"id": self.id, "type": "function_call", "status": status}
        return {**call, "arguments": text, "call_id": self.call_id, "name": self.name}


class StreamEncoder:
    """Encodes one stream: reply events in, bytes of server-sent events out.

    Ends with `response.completed`, `response.incomplete` or an error. Nothing follows either.
    """

    def __init__(self, heading: Heading) -> None:
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
        opening = b"" if self._sequence else self._begin()
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
        """Encode a piece after the head that its item has."""
        number = self._sequence
        self._sequence += 1
        return b'%b%b,"sequence_number":%d}\n\n' % (item.head, encode_json(piece), number)

    def _begin(self) -> bytes:
        response = self._heading.response("in_progress")
        return self._event("response.created", {"response": response}) + self._event(
            "response.in_progress", {"response": response}
        )

    def _open(self, kind: str, prefix: str, index: int, item_id: str | None = None) -> _Item:
        place = self._places
        self._places += 1
        return _Item(
            kind=kind,
            place=place,
            id=item_id or self._heading.item_id(prefix, place),
            index=index,
        )

    def _added(self, item: _Item) -> bytes:
        fields = item.fields("in_progress")
        return self._event(
            "response.output_item.added", {"output_index": item.place, "item": fields}
        )

    def _done(self, item: _Item, status: str = "completed") -> bytes:
        fields = self._output[item.place] = item.fields(status)
        return self._event(
            "response.output_item.done", {"output_index": item.place, "item": fields}
        )

    def _say(self, text: str, kind: str, index: int) -> bytes:
        if not text:
            return b""
        opening, item = self._words(kind, index)
        item.blocks[-1].pieces.append(text)
        self._speaking = index if kind == "output_text" else None
        return opening + self._delta(item, text)

    def _say_on(self, item: _Item, text: str) -> bytes:
        """Encode more of the open text, which is most of a stream."""
        if not text:
            return b""
        item.blocks[-1].pieces.append(text)
        return self._delta(item, text)

    def _refuse(self, text: str, index: int) -> bytes:
        self._refused = True
        return self._say(text, "refusal", index)

    def _words(self, kind: str, index: int) -> tuple[bytes, _Item]:
        """Return the bytes that open a text at this index, and its message item."""
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
        item.head = _head(
            f"response.{kind}.delta",
            self._at(item) | ({"logprobs": []} if kind == "output_text" else {}),
        )
        fields = {**self._at(item), "part": block.block()}
        return opening + self._event("response.content_part.added", fields), item

    def _at(self, item: _Item) -> Fields:
        at = {"item_id": item.id, "output_index": item.place}
        return at | {"content_index": len(item.blocks) - 1} if item.kind == "message" else at

    def _close_words(self, item: _Item) -> bytes:
        if not item.blocks:
            return b""
        at, block = self._at(item), item.blocks[-1].block()
        kind = item.blocks[-1].kind
        whole = (
            {"refusal": block["refusal"]}
            if kind == "refusal"
            else {"text": block["text"], "logprobs": []}
        )
        return self._event(f"response.{kind}.done", {**at, **whole}) + self._event(
            "response.content_part.done", {**at, "part": block}
        )

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

    def _part(self, event: PartAdded) -> bytes:  # noqa: PLR0911  one for each kind
        part, index = event.part, event.index
        match part:
            case Text():
                out = self._say(part.text, "output_text", index)
                annotations = part.extra.get("annotations") or []
                return out + self._annotate(annotations, index) if annotations else out
            case Refusal():
                return self._refuse(part.text, index)
            case Thinking():
                delta = ThinkingDelta(text=part.text, signature=part.signature, index=index)
                return self._think(delta, part.extra.get("id"))
            case RedactedThinking():
                delta = ThinkingDelta(signature=part.data, index=index)
                return self._close() + self._think(delta, part.extra.get("id"))
            case ToolCall():
                return self._call(
                    ToolCallDelta(index=index, id=part.id, name=part.name, arguments=part.arguments)
                )
            case Unknown():
                return self._whole(part)
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
        return (
            out
            + self._event("response.output_item.added", fields)
            + self._event("response.output_item.done", fields)
        )

    def _close(self, status: str = "completed") -> bytes:
        """Close the open message or reasoning."""
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
    """Return what precedes the piece in each delta."""
    data = encode_json({"type": name, **fields})
    return b'event: %b\ndata: %b,"delta":' % (name.encode(), data[:-1])


def _summary_text(text: str) -> Fields:
    return {"type": "summary_text", "text": text}
