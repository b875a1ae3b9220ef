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
from cllm.wire.responses.parts import DIALECT
from cllm.wire.responses.response_decoder import ResponsesStreamDecoder
from cllm.wire.sse import SseDecoder, SseEvent

HELD_EVENTS = ("response.created", "response.in_progress", "response.queued")
FRAME_END = b"\n\n"
RESPONSE_FIELD = b'"response"'
SEQUENCE_NUMBER = re.compile(rb'"sequence_number":\s*([0-9]+)')


class _EventType(msgspec.Struct):
    type: str = ""


_type_decoder = msgspec.json.Decoder(_EventType)


class ResponsesPassthroughReader:
    def __init__(self, decoder: ResponsesStreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._held: list[bytes] = []
        self._frames: list[bytes] = []
        self.done = False

    def feed(self, chunk: bytes) -> Iterator[ReplyEvent]:
        """Yield the events that this chunk completes: unchanged first, then as reply events."""
        self._frames, events = [], []
        failure: MalformedError | None = None
        try:
            for event in self._sse.feed(chunk):
                events += self._add(event)
                if self.done:
                    break
        except MalformedError as error:
            failure = error
        if self._frames:
            yield Verbatim(dialect=DIALECT, data=b"".join(self._frames))
        yield from events
        if self.done:
            yield Verbatim(dialect=DIALECT, data=b"".join(self._held), closes=True)
        if failure is not None:
            raise failure

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()

    def _add(self, event: SseEvent) -> list[ReplyEvent]:
        """Hold the events at the start and the one that ends the stream; return reply events."""
        events = self._decoder.decode(event.data)
        self.done = self._decoder.done
        kind = event.name or _read_type(event.data)
        if not kind:
            return events
        self._held.append(encode_frame(kind, event.data))
        if kind not in HELD_EVENTS and not self.done:
            self._frames += self._held
            self._held = []
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
        data = data.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


class ResponseRewriter:
    """Replaces fields of the response in the events of a provider; counts the events.

    Most events have no response, and stay as they are.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self._sse = SseDecoder()
        self.sequence = 0

    def rewrite(self, data: bytes) -> bytes:
        """Return whole events with the fields of this server."""
        return b"".join([self._rewrite(frame + FRAME_END) for frame in data.split(FRAME_END)[:-1]])

    def _rewrite(self, frame: bytes) -> bytes:
        number = self.sequence
        self.sequence += 1
        if RESPONSE_FIELD not in frame and read_sequence_number(frame) == number:
            return frame
        return b"".join([self._rewrite_event(event, number) for event in self._sse.feed(frame)])

    def _rewrite_event(self, event: SseEvent, number: int) -> bytes:
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
