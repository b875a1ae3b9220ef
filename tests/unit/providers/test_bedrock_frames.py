"""Frames of AWS event streams, however the network cuts them, as botocore reads them."""

import struct
import zlib
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from cllm.providers.bedrock_frames import FrameReader
from cllm.wire.malformed import MalformedError

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
    reader = FrameReader()
    return [(dict(headers), payload) for piece in pieces for headers, payload in reader.feed(piece)]


@given(frames=FRAMES, data=st.data())
def test_any_cut_of_the_bytes_gives_the_frames_that_botocore_reads(frames, data):
    stream = b"".join(frame(headers, payload) for headers, payload in frames)
    places = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    judge: Any = EventStreamBuffer()
    judge.add_data(stream)

    assert read(*pieces) == [(found.headers, found.payload) for found in judge]


@given(frames=FRAMES, data=st.data())
def test_pieces_that_are_one_frame_are_read_at_once_and_alike(frames, data):
    whole = [frame(headers, payload) for headers, payload in frames]
    pieces = [
        cut for one in whole for cut in data.draw(st.sampled_from([[one], [one[:9], one[9:]]]))
    ]
    reader = FrameReader()
    found: list[tuple[dict[str, Any], bytes]] = []
    for piece in pieces:
        sent = reader.whole(piece)
        more = reader.feed(piece) if sent is None else [sent]
        found += [(dict(headers), payload) for headers, payload in more]

    assert found == frames


@pytest.mark.parametrize("at", [5, 8, -1], ids=["length", "its checksum", "the checksum"])
def test_a_broken_frame_is_refused_also_where_it_is_read_at_once(at):
    broken = bytearray(frame({"a": "b"}, b"one"))
    broken[at] ^= 1

    with pytest.raises(MalformedError):
        FrameReader().whole(bytes(broken))


def test_two_frames_and_half_a_frame_are_not_one():
    one = frame({"a": "b"}, b"one")

    assert FrameReader().whole(one + one) is None
    assert FrameReader().whole(one[:-1]) is None
    assert FrameReader().whole(b"") is None


def test_a_large_frame_in_many_pieces_is_read_once_it_is_whole():
    payload = bytes(3 * 1024 * 1024)
    stream = frame({":event-type": "a"}, payload) + frame({":event-type": "b"}, b"{}")
    pieces = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]

    assert read(*pieces) == [({":event-type": "a"}, payload), ({":event-type": "b"}, b"{}")]


def test_more_kinds_of_headers_than_are_remembered_are_all_read():
    stream = b"".join(frame({"kind": str(number)}, b"") for number in [*range(100), 99, 0])

    assert [headers["kind"] for headers, _ in read(stream)] == [*map(str, range(100)), "99", "0"]


def test_the_frames_before_a_broken_one_are_read():
    reader = FrameReader()
    broken = frame({"a": "b"}, b"two")[:-1] + b"\0"
    frames = reader.feed(frame({"a": "b"}, b"one") + broken)

    assert next(frames) == ({"a": "b"}, b"one")
    with pytest.raises(MalformedError, match="checksum"):
        next(frames)


@pytest.mark.parametrize(
    "packed",
    [b"\x05ab", b"\x01a\x63", b"\x01a\x07\x00", b"\x01\xff\x00", b"\x01a\x00\x01a\x00"],
    ids=["cut name", "unknown type", "cut value", "no text", "twice"],
)
def test_headers_that_cannot_be_read_are_malformed(packed):
    prelude = struct.pack("!II", 16 + len(packed), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed

    with pytest.raises(MalformedError, match="headers"):
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

    with pytest.raises(MalformedError, match="bytes"):
        read(prelude + struct.pack("!I", zlib.crc32(prelude)) + b"\0" * 64)
