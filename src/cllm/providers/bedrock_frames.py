"""Frames of AWS event streams: bytes in pieces of any size become headers and payloads.

botocore reads the headers, once for each kind of event: they are the same bytes in nearly every
frame of a stream. What is around them is read here, checksums included, because reading it with
botocore costs more than all else that is done to a piece of an answer. Knows no event's meaning.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.eventstream import EventStreamHeaderParser, ParserError

from cllm.wire.malformed import MalformedError

Headers = Mapping[str, Any]

# The length of a frame, the length of its headers, and the checksum of these two; at its end the
# checksum of all before it.
_prelude = struct.Struct("!III")
_checksum = struct.Struct("!I")
CHECKED = _prelude.size - _checksum.size
FRAME_BYTES = _prelude.size + _checksum.size
MAX_HEADERS_BYTES = 128 * 1024
MAX_PAYLOAD_BYTES = 24 * 1024 * 1024
KINDS_KEPT = 64


class FrameReader:
    """Feed it what the network gave; it yields the headers and payload of each whole frame.

    Each piece is to be read to its end before the next is fed.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._needed = _prelude.size
        self._parser = EventStreamHeaderParser()
        self._known: dict[bytes, Headers] = {}

    def whole(self, piece: bytes) -> tuple[Headers, bytes] | None:
        """The frame that this piece is, if it is one and no more, as most pieces are; else None.

        A piece that gave a frame is not to be fed as well.
        """
        if self._held or len(piece) < FRAME_BYTES:
            return None
        length, headers_length, checksum = _prelude.unpack_from(piece)
        if length != len(piece):
            return None
        _check(piece[:CHECKED], checksum)
        _check_lengths(length, headers_length)
        return self._frame(piece, headers_length)

    def feed(self, piece: bytes) -> Iterator[tuple[Headers, bytes]]:
        data = piece
        if self._held:
            self._hold(piece)
            if self._held_bytes < self._needed:
                return
            data = b"".join(self._held)
            self._held, self._held_bytes, self._needed = [], 0, _prelude.size
        start = 0
        while len(data) - start >= _prelude.size:
            length, headers_length, checksum = _prelude.unpack_from(data, start)
            _check(data[start : start + CHECKED], checksum)
            _check_lengths(length, headers_length)
            if len(data) - start < length:
                self._needed = length
                break
            yield self._frame(data[start : start + length], headers_length)
            start += length
        if start < len(data):
            self._hold(data[start:])

    def _frame(self, frame: bytes, headers_length: int) -> tuple[Headers, bytes]:
        """The headers and the payload of one whole frame."""
        _check(frame[: -_checksum.size], *_checksum.unpack(frame[-_checksum.size :]))
        payload_start = _prelude.size + headers_length
        headers = self._headers(frame[_prelude.size : payload_start])
        return headers, frame[payload_start : -_checksum.size]

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)

    def _headers(self, raw: bytes) -> Headers:
        headers = self._known.get(raw)
        if headers is None:
            headers = self._parse(raw)
            if len(self._known) < KINDS_KEPT:
                self._known[raw] = headers
        return headers

    def _parse(self, raw: bytes) -> Headers:
        try:
            headers: Headers = self._parser.parse(raw)
        except (ParserError, struct.error, KeyError, UnicodeDecodeError) as error:
            raise MalformedError(f"not the headers of an event: {error}") from error
        return headers


def _check(data: bytes, checksum: int) -> None:
    if zlib.crc32(data) != checksum:
        raise MalformedError("a frame of an event stream whose checksum is wrong")


def _check_lengths(length: int, headers_length: int) -> None:
    payload = length - headers_length - FRAME_BYTES
    if payload < 0 or payload > MAX_PAYLOAD_BYTES or headers_length > MAX_HEADERS_BYTES:
        raise MalformedError(f"a frame of an event stream of {length} bytes")
