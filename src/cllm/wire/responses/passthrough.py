"""Relays a provider's Responses API to clients of the same API.

Events are unchanged, except for the fields of the response that are the server's own. Events before
the first item are held: until then the engine can call another model.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.wire.errors import UNREADABLE, MalformedError
from cllm.wire.responses.ids import make_relayed_id
from cllm.wire.responses.parts import DIALECT
from cllm.wire.responses.response_decoder import ResponsesStreamDecoder
from cllm.wire.sse import SseDecoder, SseEvent

HELD_EVENTS = ("response.created", "response.in_progress", "response.queued")
FRAME_END = b"\n\n"
NAME_FIELD, DATA_FIELD = b"event: ", b"\ndata: "
RESPONSE_FIELD = b'"response"'
ITEM_EVENT = b"event: response.output_item."
ITEM_ID_FIELD = re.compile(rb'"item_id":\s*"([^"\\]*)"')
SEQUENCE_NUMBER = re.compile(rb'"sequence_number":\s*([0-9]+)')
RawFields = dict[str, msgspec.Raw]


class _EventType(msgspec.Struct):
    type: str = ""


_type_decoder = msgspec.json.Decoder(_EventType)


class ResponsesPassthroughReader:
    def __init__(self, decoder: ResponsesStreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._frames: list[bytes] = []
        self._released = 0
        self.done = False

    def feed(self, chunk: bytes) -> Iterator[ReplyEvent]:
        """Yield the events that this chunk completes: unchanged first, then as reply events."""
        events: list[ReplyEvent] = []
        failure: MalformedError | None = None
        try:
            for event in self._sse.feed(chunk):
                events += self._add(event)
                if self.done:
                    break
        except MalformedError as error:
            failure = error
        if self._released:
            yield Verbatim(dialect=DIALECT, data=b"".join(self._frames[: self._released]))
            del self._frames[: self._released]
            self._released = 0
        yield from events
        if self.done:
            yield Verbatim(dialect=DIALECT, data=b"".join(self._frames), closes=True)
        if failure is not None:
            raise failure

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()

    def _add(self, event: SseEvent) -> list[ReplyEvent]:
        """Hold the events at the start and the one that ends the stream; return reply events."""
        events = self._decoder.decode(event.data)
        self.done = self._decoder.done
        kind = event.name or _read_type(event.data)
        if kind:
            self._frames.append(encode_frame(kind, event.data))
            if kind not in HELD_EVENTS and not self.done:
                self._released = len(self._frames)
        return events


def _read_type(data: bytes) -> str:
    try:
        return _type_decoder.decode(data).type
    except UNREADABLE:
        return ""


def read_sequence_number(frame: bytes) -> int | None:
    """Return the number of an event; None for a comment."""
    match = SEQUENCE_NUMBER.search(frame)
    return None if match is None else int(match[1])


def encode_frame(name: str, data: bytes) -> bytes:
    if b"\n" in data:
        data = data.replace(b"\n", DATA_FIELD)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


class ResponseRewriter:
    """Replaces fields of the response in the events of a provider; counts the events.

    Most events have no response and the right number, and stay as they are. `response_id`: the
    response is stored, and its items get ids by which they are found.
    """

    def __init__(self, fields: Mapping[str, Any], *, response_id: str | None = None) -> None:
        self._fields = fields
        self._response_id = response_id
        self._item_ids: dict[bytes, bytes] = {}
        self.sequence = 0

    def rewrite(self, data: bytes) -> bytes:
        """Return whole events with the fields of this server."""
        if self._response_id is not None:
            return self._rewrite_frames(data)
        last = data.rfind(RESPONSE_FIELD)
        end = 0 if last < 0 else data.index(FRAME_END, last) + len(FRAME_END)
        return self._rewrite_frames(data[:end]) + self._check_numbers(data[end:])

    def _check_numbers(self, data: bytes) -> bytes:
        """Return events without a response; with other numbers if theirs are wrong."""
        numbers = list(map(int, SEQUENCE_NUMBER.findall(data)))
        after = self.sequence + data.count(FRAME_END)
        if numbers != list(range(self.sequence, after)):
            return self._rewrite_frames(data)
        self.sequence = after
        return data

    def _rewrite_frames(self, data: bytes) -> bytes:
        return b"".join(map(self._rewrite_frame, data.split(FRAME_END)[:-1]))

    def _rewrite_frame(self, frame: bytes) -> bytes:
        number = self.sequence
        self.sequence += 1
        if self._response_id is not None:
            frame = ITEM_ID_FIELD.sub(self._replace_item_id, frame, count=1)
            is_changed = RESPONSE_FIELD in frame or frame.startswith(ITEM_EVENT)
            if not is_changed and read_sequence_number(frame) == number:
                return frame + FRAME_END
        head, _, text = frame.partition(DATA_FIELD)
        name = head.removeprefix(NAME_FIELD).decode()
        try:
            fields = msgspec.json.decode(text.replace(DATA_FIELD, b"\n"), type=RawFields)
        except UNREADABLE:
            return frame + FRAME_END
        changed: dict[str, Any] = {**fields, "sequence_number": number}
        if "response" in fields:
            changed["response"] = self.rewrite_response(fields["response"])
        if "item" in fields and self._response_id is not None:
            index = bytes(fields.get("output_index", b"0")).decode()
            changed["item"] = self._rename_item(fields["item"], index)
        return encode_frame(name, msgspec.json.encode(changed))

    def _replace_item_id(self, match: re.Match[bytes]) -> bytes:
        own = self._item_ids.get(match[1])
        return match[0] if own is None else b'"item_id":"%b"' % own

    def _rename_item(self, item: msgspec.Raw, index: int | str) -> Any:
        try:
            fields = msgspec.json.decode(item)
        except UNREADABLE:
            return item
        renamed = rename_item(fields, self._response_id, index)
        if renamed is not fields:
            self._item_ids[fields["id"].encode()] = renamed["id"].encode()
        return renamed

    def rewrite_response(self, response: bytes | msgspec.Raw) -> msgspec.Raw:
        fields = msgspec.json.decode(response, type=RawFields)
        changed: dict[str, Any] = {**fields, **self._fields}
        if self._response_id is not None and bytes(fields.get("output", b"")).startswith(b"["):
            output = msgspec.json.decode(fields["output"], type=list[msgspec.Raw])
            changed["output"] = [self._rename_item(item, n) for n, item in enumerate(output)]
        return msgspec.Raw(msgspec.json.encode(changed))


def rename_item(item: Any, response_id: str | None, index: int | str) -> Any:
    """Return the item of a provider with an id by which it is found in its stored response."""
    item_id = item.get("id") if isinstance(item, dict) else None
    if response_id is None or not isinstance(item_id, str) or not item_id:
        return item
    return {**item, "id": make_relayed_id(item_id, response_id, index)}
