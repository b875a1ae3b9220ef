"""Relays Anthropic's stream to an Anthropic client unchanged, and decodes its reply events.

Events before the first content are held: until then the engine can call another model.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from cllm.core.reply import (
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    Usage,
    UsageReported,
    Verbatim,
)
from cllm.wire.anthropic.parts import DIALECT
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder
from cllm.wire.errors import MalformedError
from cllm.wire.sse import SseDecoder

HELD_EVENTS = ("message_start", "ping")
BLOCK_START = "content_block_start"
CLOSING_EVENT = "message_delta"
DELTA_BLOCKS = ("text", "thinking")
FRAME_END = b"\n\n"


class _TypedData(msgspec.Struct, frozen=True):
    type: str = ""


class _BlockStartData(msgspec.Struct, frozen=True):
    content_block: _TypedData = _TypedData()


_type_decoder = msgspec.json.Decoder(_TypedData)
_block_start_decoder = msgspec.json.Decoder(_BlockStartData)


class PassthroughReader:
    def __init__(self, decoder: AnthropicStreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._held: list[bytes] | None = []
        self._frames: list[bytes] = []
        self._is_closing = False
        self._usage: Usage | None = None
        self._events: list[ReplyEvent] = []

    @property
    def done(self) -> bool:
        return self._decoder.done

    def feed(self, chunk: bytes) -> Iterator[ReplyEvent]:
        """Yield the events that this chunk completes: unchanged first, then as reply events."""
        failure: MalformedError | None = None
        try:
            for event in self._sse.feed(chunk):
                self._add(event.name, event.data)
                if self.done:
                    break
        except MalformedError as error:
            failure = error
        if not self._is_closing:
            self._insert_frames()
        elif self._frames:
            self._events.append(self._take_frames())
        events, self._events = self._events, []
        usage = self._decoder.reported_usage
        if usage is not None and usage is not self._usage:
            self._usage = usage
            yield UsageReported(usage=usage)
        yield from join_texts(events)
        if failure is not None:
            raise failure

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()

    def _add(self, name: str, data: bytes) -> None:
        events = self._decoder.decode(name, data)
        name = name or _type_decoder.decode(data).type
        frame = encode_frame(name, data)
        if self._held is not None:
            self._held.append(frame)
            # A block of these types has no content before its first delta.
            is_empty_block = (
                name == BLOCK_START
                and _block_start_decoder.decode(data).content_block.type in DELTA_BLOCKS
                and not events
            )
            if name in HELD_EVENTS or is_empty_block:
                return
            frame, self._held = FRAME_END.join(self._held), None
        if name == CLOSING_EVENT and not self._is_closing:
            self._insert_frames()
            self._is_closing = True
        self._frames.append(frame)
        self._events += events

    def _insert_frames(self) -> None:
        if self._frames:
            self._events.insert(0, self._take_frames())

    def _take_frames(self) -> Verbatim:
        data, self._frames = FRAME_END.join((*self._frames, b"")), []
        return Verbatim(dialect=DIALECT, data=data, closes=self._is_closing)


def join_texts(events: Iterable[ReplyEvent]) -> Iterator[ReplyEvent]:
    """Join successive text deltas of one block; the client receives the frames, not the events."""
    for index, group in groupby(events, _text_index):
        if index is None:
            yield from group
        else:
            texts = [event.text for event in group if isinstance(event, TextDelta)]
            yield TextDelta(text="".join(texts), index=index)


def _text_index(event: ReplyEvent) -> int | None:
    return event.index if type(event) is TextDelta else None


def encode_frame(name: str, data: bytes) -> bytes:
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b" % (name.encode(), data)
