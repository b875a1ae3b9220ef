"""SSE framing (server-sent events): decodes bytes in pieces of any size to events.

Each `response_encoder.py` encodes SSE events; `server/turns/event_log.py` adds their ids.
"""

import re
from collections.abc import Iterator

import msgspec

from cllm.wire.errors import MalformedError

MAX_EVENT_BYTES = 64 * 1024 * 1024
MAX_IGNORED_LINES = 100_000
"""Comments, unknown fields and blank lines of a whole stream: hours of keep-alives."""
FREE_LINES = 10
"""Ignored lines per event that do not count, such as `id`."""
HIGH_SURROGATE = rb"\\u[dD][89aAbB][0-9a-fA-F]{2}"
LOW_SURROGATE = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
REPLACEMENT_CHARACTER = rb"\ufffd"


class SseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `name` is empty if the stream has none."""

    data: bytes
    name: str = ""


class SseDecoder:
    """Decodes a stream: feed it bytes, it yields each event after its blank line.

    Lines end in LF, CRLF or CR, split anywhere. Comments and an unfinished last event are
    ignored, up to MAX_IGNORED_LINES.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._ignored_lines = 0

    def feed(self, piece: bytes) -> Iterator[SseEvent]:
        for line in self._lines(piece):
            if line:
                self._take(line)
            else:
                if self._data:
                    yield SseEvent(data=b"\n".join(self._data), name=self._name)
                    self._ignored_lines = max(self._ignored_lines - FREE_LINES, 0)
                else:
                    self._ignore_line()
                self._name, self._data, self._data_bytes = "", [], 0
        self._check_size(self._pending_bytes)

    def _lines(self, piece: bytes) -> list[bytes]:
        if not piece:
            return []
        if self._after_cr:
            piece = piece.removeprefix(b"\n")
        self._after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = piece.split(b"\n")
        unfinished = lines.pop()
        if lines and self._pending:
            lines[0] = b"".join((*self._pending, lines[0]))
            self._pending, self._pending_bytes = [], 0
        if unfinished:
            self._pending.append(unfinished)
            self._pending_bytes += len(unfinished)
        return lines

    def _take(self, line: bytes) -> None:
        self._check_size(len(line))
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        elif field == b"event":
            if self._name:
                self._ignore_line()
            self._name = value.decode("utf-8", "replace")
        else:
            self._ignore_line()

    def _ignore_line(self) -> None:
        self._ignored_lines += 1
        if self._ignored_lines > MAX_IGNORED_LINES:
            raise MalformedError(f"more than {MAX_IGNORED_LINES} lines without an event")

    def _check_size(self, more: int) -> None:
        if self._data_bytes + more > self._max:
            raise MalformedError(f"an event of more than {self._max} bytes")


# Matches every escape, so that an escaped backslash starts none. A quotation mark before a
# surrogate opens its string, one after it closes it.
_escapes = re.compile(
    rb"%b%b|(?P<last>%b)(?=\")|(?<=[^\\]\")(?P<first>%b)|(?P<alone>%b|%b)|\\."
    % (HIGH_SURROGATE, LOW_SURROGATE, HIGH_SURROGATE, LOW_SURROGATE, HIGH_SURROGATE, LOW_SURROGATE)
)


class SurrogateJoiner:
    """Joins surrogate pairs that a stream splits between two events.

    A lone surrogate becomes U+FFFD. A first half at the end of an event waits for the
    next event, and is dropped if no second half follows.
    """

    def __init__(self) -> None:
        self._high = b""

    def join(self, data: bytes) -> bytes | None:
        """Return the data with whole characters only, or None if it has no lone surrogate."""
        high, self._high = self._high, b""
        has_half = False

        def whole(match: re.Match[bytes]) -> bytes:
            nonlocal has_half
            kind = match.lastgroup
            if kind is None:
                return match[0]
            has_half = True
            if kind == "last":
                self._high = match[0]
                return b""
            return high + match[0] if kind == "first" and high else REPLACEMENT_CHARACTER

        joined = _escapes.sub(whole, data)
        if not has_half:
            self._high = high
            return None
        return joined
