"""Anthropic's stream for a client of Anthropic's: every event as it came, beside what it says.

So an event, a field or a kind of delta that nobody here has heard of reaches the client. What comes
before the answer itself waits for its first piece: until then another model can still be asked.
"""

import msgspec

from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.wire.anthropic_parts import DIALECT
from cllm.wire.anthropic_reply import StreamDecoder
from cllm.wire.sse import SseEvent

BEFORE = ("message_start", "ping")
OPENING = "content_block_start"
ENDING = "message_delta"


PLAIN = ("text", "thinking")


class _Named(msgspec.Struct, frozen=True):
    type: str = ""


class _Opening(msgspec.Struct, frozen=True):
    content_block: _Named = _Named()


_names = msgspec.json.Decoder(_Named)
_openings = msgspec.json.Decoder(_Opening)


class VerbatimDecoder:
    """Decodes one stream with another decoder, and passes its events on."""

    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder
        self._held: list[bytes] | None = []
        self._closes = False

    @property
    def done(self) -> bool:
        return self._decoder.done

    def decode(self, sent: SseEvent) -> list[ReplyEvent]:
        """The event as it came, and then what it says."""
        events = self._decoder.decode(sent.name, sent.data)
        name = sent.name or _names.decode(sent.data).type
        frame = encode_event(name, sent.data)
        if self._held is not None:
            self._held.append(frame)
            if name in BEFORE or (not events and _begins_plainly(name, sent.data)):
                return events
            frame, self._held = b"".join(self._held), None
        if name == ENDING:
            self._closes = True
        return [Verbatim(dialect=DIALECT, data=frame, closes=self._closes), *events]

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()


def _begins_plainly(name: str, data: bytes) -> bool:
    """Whether it opens a block that says nothing before its first piece."""
    return name == OPENING and _openings.decode(data).content_block.type in PLAIN


def encode_event(name: str, data: bytes) -> bytes:
    """One event, on as many lines as its data has."""
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
