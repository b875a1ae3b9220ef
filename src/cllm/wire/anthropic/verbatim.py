"""Anthropic's stream for a client of Anthropic's: every event as it came, beside what it says.

So an event, a field or a kind of delta that nobody here has heard of reaches the client. What comes
before the answer itself waits for its first piece: until then another model can still be asked.
Events that came together go on together, and pieces of one text among them are told as one.
"""

from collections.abc import Iterator

import msgspec

from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.wire.anthropic.parts import DIALECT, UNREADABLE
from cllm.wire.anthropic.response_decoder import StreamDecoder
from cllm.wire.malformed import MalformedError
from cllm.wire.sse import DATA, MAX_EVENT_BYTES, NAME, SseDecoder

BEFORE = ("message_start", "ping")
OPENING = "content_block_start"
DELTA = "content_block_delta"
ENDING = "message_delta"
PLAIN = ("text", "thinking")
END = b"\n\n"
DELTA_LINE = b"event: content_block_delta\ndata: "
MOST_RUNS = 4
"""Runs of texts looked for in a piece: for each, all that is left of it is gone through."""


class _Named(msgspec.Struct, frozen=True):
    type: str = ""


class _Opening(msgspec.Struct, frozen=True):
    content_block: _Named = _Named()


class _Text(msgspec.Struct, tag_field="type", tag="text_delta"):
    text: str


class _TextDelta(msgspec.Struct, tag_field="type", tag=DELTA):
    index: int
    delta: _Text


_names = msgspec.json.Decoder(_Named)
_openings = msgspec.json.Decoder(_Opening)
_text_deltas = msgspec.json.Decoder(_TextDelta)
_text_runs = msgspec.json.Decoder(list[_TextDelta])


class VerbatimReader:
    """Reads one stream: what the network gave in, its events and what they say out."""

    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._is_usual = True
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._held: list[bytes] | None = []
        self._frames: list[bytes] = []
        self._closes = False
        self._index = 0
        self._text: list[str] = []
        self._events: list[ReplyEvent] = []

    @property
    def done(self) -> bool:
        return self._decoder.done

    def feed(self, piece: bytes) -> Iterator[ReplyEvent]:
        """What this piece completes: the events as they came, and then what they say."""
        if not piece.startswith(DELTA_LINE) or not self._goes_on(piece):
            return self._feed(piece)
        try:
            event = _text_deltas.decode(piece[len(DELTA_LINE) :])
        except UNREADABLE:
            return self._feed(piece)
        self._index = event.index
        said = self._decoder.add_text(event.index, event.delta.text)
        return iter((Verbatim(dialect=DIALECT, data=piece), *said))

    def _goes_on(self, piece: bytes) -> bool:
        """Whether a piece, in the middle of the answer, is one event in the usual form."""
        if self._held is not None or self._closes or self._begun or not self._is_usual:
            return False
        return piece.find(END) == len(piece) - len(END) and b"\r" not in piece

    def _feed(self, piece: bytes) -> Iterator[ReplyEvent]:
        failure: MalformedError | None = None
        try:
            self._read(piece)
        except MalformedError as error:
            # What was said before it in the same piece comes first.
            failure = error
        yield from self._told()
        if failure is not None:
            raise failure

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()

    def _read(self, piece: bytes) -> None:
        """Read by events, or in an unusual stream line by line."""
        if not self._is_usual:
            self._read_lines(piece)
            return
        if self._is_between(piece):
            self._hold(piece)
            return
        begun = b"".join((*self._begun, piece)) if self._begun else piece
        self._begun, self._begun_bytes = [], 0
        if b"\r" in piece:
            self._read_lines(begun)
            return
        at = self._read_events(begun)
        if self.done:
            return
        if not self._is_usual:
            self._read_lines(begun[at:])
        elif at < len(begun):
            self._hold(begun[at:])

    def _is_between(self, piece: bytes) -> bool:
        """Whether an event has begun and does not end here either; a long one is put together once.

        A line's end may be the last thing that came before.
        """
        if not self._begun or b"\r" in piece or END in piece:
            return False
        return not (self._begun[-1].endswith(b"\n") and piece.startswith(b"\n"))

    def _hold(self, piece: bytes) -> None:
        self._begun.append(piece)
        self._begun_bytes += len(piece)
        if self._begun_bytes > MAX_EVENT_BYTES:
            raise MalformedError(f"an event of more than {MAX_EVENT_BYTES} bytes")

    def _read_events(self, begun: bytes) -> int:
        """Read events in the usual form; where the first stands that is not whole, or not usual."""
        at, runs, may_run = 0, 0, True
        while not self.done and (end := begun.find(END, at)) >= 0:
            is_delta = begun.startswith(DELTA_LINE, at)
            if is_delta and may_run and runs < MOST_RUNS and self._held is None:
                # Of those that are not all pieces of one text each is looked at by itself.
                runs, may_run = runs + 1, False
                at = self._take_texts(begun, at)
                continue
            if not self._take_frame(begun[at:end]):
                self._is_usual = False
                break
            at = end + len(END)
            may_run = may_run or not is_delta
        return at

    def _read_lines(self, piece: bytes) -> None:
        self._is_usual = False
        for sent in self._sse.feed(piece):
            self._take(sent.name, sent.data)
            if self.done:
                return

    def _take_texts(self, begun: bytes, at: int) -> int:
        """Take the events from there on that are all pieces of one text, as most are, at once.

        Where the next one stands; nothing is taken if they are not of one text.
        """
        said = _data_of_deltas(begun[at + len(DELTA_LINE) :])
        together = b",".join(said)
        if b"\n" in together:
            said = _up_to_another(said)
            together = b",".join(said)
        try:
            pieces = _text_runs.decode(b"[%b]" % together)
        except UNREADABLE:
            return at
        if not pieces or len(pieces) != len(said) or len({piece.index for piece in pieces}) > 1:
            return at
        if pieces[0].index != self._index:
            self._tell_text()
            self._index = pieces[0].index
        self._text += [piece.delta.text for piece in pieces]
        end = at + len(together) + 1 + len(said) * (len(DELTA_LINE) + len(END) - 1)
        self._frames.append(begun[at : end - len(END)])
        return end

    def _take_frame(self, frame: bytes) -> bool:
        """Take an event in the usual form, a name and one line of data; False if it has another."""
        text = frame.startswith(DELTA_LINE) and self._held is None
        if text and self._take_text(frame[len(DELTA_LINE) :]):
            self._frames.append(frame)
            return True
        name, line, data = frame.partition(b"\n" + DATA)
        if not line or not name.startswith(NAME) or b"\n" in data or b"\n" in name:
            return False
        self._take(name[len(NAME) :].decode("utf-8", "replace"), data)
        return True

    def _take(self, name: str, data: bytes) -> None:
        self._tell_text()
        events = self._decoder.decode(name, data)
        name = name or _names.decode(data).type
        frame = encode_frame(name, data)
        if self._held is not None:
            self._held.append(frame)
            if name in BEFORE or (not events and _begins_plainly(name, data)):
                return
            frame, self._held = END.join(self._held), None
        if name == ENDING and not self._closes:
            self._pass_on()
            self._closes = True
        self._frames.append(frame)
        self._events += events

    def _take_text(self, data: bytes) -> bool:
        """Add a piece to the text that is being told; whether it is one."""
        try:
            event = _text_deltas.decode(data)
        except UNREADABLE:
            return False
        if event.index != self._index:
            self._tell_text()
            self._index = event.index
        self._text.append(event.delta.text)
        return True

    def _tell_text(self) -> None:
        if self._text:
            text, self._text = "".join(self._text), []
            self._events += self._decoder.add_text(self._index, text)

    def _pass_on(self) -> None:
        """Put the events so far before what they say."""
        if self._frames:
            self._events.insert(0, self._passed())

    def _passed(self) -> Verbatim:
        data, self._frames = END.join((*self._frames, b"")), []
        return Verbatim(dialect=DIALECT, data=data, closes=self._closes)

    def _told(self) -> list[ReplyEvent]:
        self._tell_text()
        if not self._closes:
            self._pass_on()
        elif self._frames:
            self._events.append(self._passed())
        events, self._events = self._events, []
        return events


def _data_of_deltas(begun: bytes) -> list[bytes]:
    """The data of whole events of this kind, from that of the first on; with what is between."""
    said = begun.split(END + DELTA_LINE)
    last, is_whole, _ = said.pop().partition(END)
    return [*said, last] if is_whole else said


def _up_to_another(said: list[bytes]) -> list[bytes]:
    """The same up to an event of another kind, or in another form, that stands between them."""
    place = next(place for place, data in enumerate(said) if b"\n" in data)
    return [*said[:place], said[place].partition(END)[0]]


def _begins_plainly(name: str, data: bytes) -> bool:
    """Whether it opens a block that says nothing before its first piece."""
    return name == OPENING and _openings.decode(data).content_block.type in PLAIN


def encode_frame(name: str, data: bytes) -> bytes:
    """One event, on as many lines as its data has, without the blank line at its end."""
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b" % (name.encode(), data)
