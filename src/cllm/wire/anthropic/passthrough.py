"""Anthropic's stream for an Anthropic client: every event unchanged, and the reply events in it.

Events before the first piece of the answer are held: until then another model can be called.
"""

from collections.abc import Iterator

import msgspec

from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.wire.anthropic.parts import DIALECT
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder
from cllm.wire.errors import MalformedError
from cllm.wire.sse import SseDecoder

BEFORE = ("message_start", "ping")
OPENING = "content_block_start"
ENDING = "message_delta"
PLAIN = ("text", "thinking")
END = b"\n\n"


class _Named(msgspec.Struct, frozen=True):
    type: str = ""


class _Opening(msgspec.Struct, frozen=True):
    content_block: _Named = _Named()


_names = msgspec.json.Decoder(_Named)
_openings = msgspec.json.Decoder(_Opening)


class PassthroughReader:
    def __init__(self, decoder: AnthropicStreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._held: list[bytes] | None = []
        self._frames: list[bytes] = []
        self._closes = False
        self._events: list[ReplyEvent] = []

    @property
    def done(self) -> bool:
        return self._decoder.done

    def feed(self, piece: bytes) -> Iterator[ReplyEvent]:
        """Yield the events that this piece completes, unchanged first, then as reply events."""
        failure: MalformedError | None = None
        try:
            for sent in self._sse.feed(piece):
                self._take(sent.name, sent.data)
                if self.done:
                    break
        except MalformedError as error:
            failure = error
        if not self._closes:
            self._pass_on()
        elif self._frames:
            self._events.append(self._passed())
        events, self._events = self._events, []
        yield from events
        if failure is not None:
            raise failure

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()

    def _take(self, name: str, data: bytes) -> None:
        events = self._decoder.decode(name, data)
        name = name or _names.decode(data).type
        frame = encode_frame(name, data)
        if self._held is not None:
            self._held.append(frame)
            # A block of these kinds has no content before its first delta.
            opens = name == OPENING and _openings.decode(data).content_block.type in PLAIN
            if name in BEFORE or (opens and not events):
                return
            frame, self._held = END.join(self._held), None
        if name == ENDING and not self._closes:
            self._pass_on()
            self._closes = True
        self._frames.append(frame)
        self._events += events

    def _pass_on(self) -> None:
        if self._frames:
            self._events.insert(0, self._passed())

    def _passed(self) -> Verbatim:
        data, self._frames = END.join((*self._frames, b"")), []
        return Verbatim(dialect=DIALECT, data=data, closes=self._closes)


def encode_frame(name: str, data: bytes) -> bytes:
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b" % (name.encode(), data)
