"""Server-sent events: bytes in pieces of any size become events. Knows no protocol above it."""

from collections.abc import Iterator

import msgspec

from cllm.wire.malformed import MalformedError

MAX_EVENT_BYTES = 64 * 1024 * 1024


class SseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `name` is empty when the stream gave none."""

    data: bytes
    name: str = ""


class SseDecoder:
    """Feed it what the network gave; it yields each event once its blank line has come.

    Lines may end in LF, CRLF or CR, split anywhere between two pieces, also inside a character.
    Comments are passed over. What stands unfinished at the end of the stream is no event.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, piece: bytes) -> Iterator[SseEvent]:
        """The events that this piece completes."""
        for line in self._lines(piece):
            event = self._take(line)
            if event is not None:
                yield event

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        if not piece:
            return
        if self._after_cr:
            piece = piece.removeprefix(b"\n")
        self._after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *rest = piece.split(b"\n")
        self._hold(first)
        for following in rest:
            line = b"".join(self._pending)
            self._pending, self._pending_bytes = [], 0
            yield line
            self._hold(following)

    def _hold(self, fragment: bytes) -> None:
        if fragment:
            self._pending.append(fragment)
            self._pending_bytes += len(fragment)
            self._check_size()

    def _take(self, line: bytes) -> SseEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
            self._check_size()
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> SseEvent | None:
        name, data = self._name, self._data
        self._name, self._data, self._data_bytes = "", [], 0
        return SseEvent(data=b"\n".join(data), name=name) if data else None

    def _check_size(self) -> None:
        if self._pending_bytes + self._data_bytes > self._max:
            raise MalformedError(f"an event of more than {self._max} bytes")
