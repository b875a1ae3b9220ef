"""Frames of AWS event streams, however the network splits them."""

import struct
import zlib
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from cllm.providers.bedrock import FrameDecoder
from cllm.wire.errors import MalformedError

NAMES = st.text("abc:-", min_size=1, max_size=12)
FRAMES = st.lists(
    st.tuples(st.dictionaries(NAMES, st.text(max_size=20), max_size=4), st.binary(max_size=60)),
    max_size=5,
)


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(raw)) + raw
        for name, raw in ((name, value.encode()) for name, value in headers.items())
    )
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


def read(*pieces: bytes) -> list[tuple[dict[str, Any], bytes]]:
    decoder = FrameDecoder()
    return [(found.headers, found.payload) for piece in pieces for found in decoder.feed(piece)]


@given(frames=FRAMES, data=st.data())
def test_any_cut_of_the_bytes_gives_the_frames_that_botocore_reads(frames, data):
    stream = b"".join(frame(headers, payload) for headers, payload in frames)
    places = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    judge: Any = EventStreamBuffer()
    judge.add_data(stream)

    assert read(*pieces) == [(found.headers, found.payload) for found in judge]


def test_a_large_frame_in_many_pieces_is_read_once_it_is_whole():
    payload = bytes(3 * 1024 * 1024)
    stream = frame({":event-type": "a"}, payload) + frame({":event-type": "b"}, b"{}")
    pieces = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]

    assert read(*pieces) == [({":event-type": "a"}, payload), ({":event-type": "b"}, b"{}")]


def test_each_byte_of_a_long_frame_is_copied_a_few_times_only(monkeypatch):
    stream = frame({":event-type": "a"}, bytes(1024 * 1024)) * 2
    copied = 0

    class CountingBuffer(EventStreamBuffer):  # type: ignore[misc]
        def add_data(self, data: bytes) -> None:
            nonlocal copied
            copied += len(self._data) + len(data)
            super().add_data(data)

    monkeypatch.setattr("cllm.providers.bedrock.EventStreamBuffer", CountingBuffer)
    found = read(*(stream[at : at + 64] for at in range(0, len(stream), 64)))

    assert len(found) == 2
    assert copied < 2 * len(stream)


def test_the_frames_before_a_broken_one_are_read():
    decoder = FrameDecoder()
    broken = frame({"a": "b"}, b"two")[:-1] + b"\0"
    frames = decoder.feed(frame({"a": "b"}, b"one") + broken)

    assert next(frames).payload == b"one"
    with pytest.raises(MalformedError, match="Checksum"):
        next(frames)


@pytest.mark.parametrize(
    "packed",
    [b"\x05ab", b"\x01a\x63", b"\x01a\x07\x00", b"\x01\xff\x00", b"\x01a\x00\x01a\x00"],
    ids=["cut name", "unknown type", "cut value", "no text", "twice"],
)
def test_headers_that_cannot_be_read_are_malformed(packed):
    prelude = struct.pack("!II", 16 + len(packed), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed

    with pytest.raises(MalformedError, match="invalid frame"):
        read(message + struct.pack("!I", zlib.crc32(message)))


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_frame_with_a_changed_byte_is_never_read(place, change):
    whole = bytearray(frame({":event-type": "messageStop"}, b'{"stopReason":"end_turn"}'))
    whole[place % len(whole)] ^= change

    with pytest.raises(MalformedError):
        read(bytes(whole) + b"\0" * 16)


@pytest.mark.parametrize(("length", "headers"), [(15, 0), (16, 1), (2**32 - 1, 0), (2**31, 2**30)])
def test_a_frame_of_an_impossible_length_is_malformed(length, headers):
    prelude = struct.pack("!II", length, headers)

    with pytest.raises(MalformedError):
        read(prelude + struct.pack("!I", zlib.crc32(prelude)))


def test_a_wrong_checksum_of_the_lengths_is_found_before_the_frame_is_complete():
    with pytest.raises(MalformedError, match="Checksum"):
        read(struct.pack("!III", 5_000, 100, 7))
