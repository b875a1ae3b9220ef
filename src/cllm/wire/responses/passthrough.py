"""Relays a provider's Responses API to clients of the same API.

Events are unchanged, except for the fields of the response that are the server's own. Events before
the first item are held: until then the engine can call another model.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.wire.errors import UNREADABLE
from cllm.wire.responses.parts import DIALECT
from cllm.wire.responses.response_decoder import ResponsesStreamDecoder
from cllm.wire.sse import SseDecoder, SseEvent

HELD_EVENTS = ("response.created", "response.in_progress", "response.queued")
CLOSING_EVENTS = ("response.completed", "response.incomplete")


class _EventType(msgspec.Struct):
    type: str = ""


_type_decoder = msgspec.json.Decoder(_EventType)


class ResponsesPassthroughReader:
    def __init__(self, decoder: ResponsesStreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._held: list[bytes] = []
        self.done = False

    def feed(self, chunk: bytes) -> Iterator[ReplyEvent]:
        """Yield each event unchanged, then as reply events."""
        for event in self._sse.feed(chunk):
            decoded = self._decoder.decode(event.data)
            kind = _read_type(event.data)
            if not kind:
                continue
            frame = encode_frame(kind, event.data)
            if kind in HELD_EVENTS and not decoded:
                self._held.append(frame)
                continue
            data, self._held = b"".join((*self._held, frame)), []
            yield Verbatim(dialect=DIALECT, data=data, closes=kind in CLOSING_EVENTS)
            yield from decoded
            self.done = self._decoder.done
            if self.done:
                return

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()


def _read_type(data: bytes) -> str:
    try:
        return _type_decoder.decode(data).type
    except UNREADABLE:
        return ""


def encode_frame(name: str, data: bytes) -> bytes:
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


class ResponseRewriter:
    """Replaces fields of the response in the events of a provider; counts the events."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self._sse = SseDecoder()
        self.sequence = 0

    def rewrite(self, data: bytes) -> bytes:
        """Return whole events with the fields of this server."""
        return b"".join(self._rewrite(event) for event in self._sse.feed(data))

    def _rewrite(self, event: SseEvent) -> bytes:
        number = self.sequence
        self.sequence += 1
        try:
            fields = msgspec.json.decode(event.data, type=dict[str, msgspec.Raw])
        except UNREADABLE:
            return encode_frame(event.name, event.data)
        changed: dict[str, Any] = {**fields, "sequence_number": number}
        if "response" in fields:
            changed["response"] = self.rewrite_response(fields["response"])
        return encode_frame(event.name, msgspec.json.encode(changed))

    def rewrite_response(self, response: bytes | msgspec.Raw) -> msgspec.Raw:
        fields = msgspec.json.decode(response, type=dict[str, msgspec.Raw])
        return msgspec.Raw(msgspec.json.encode({**fields, **self._fields}))
