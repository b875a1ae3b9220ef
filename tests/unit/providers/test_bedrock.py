"""Frames of AWS event streams in chunks of any size."""

import struct
import zlib
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from cllm.providers.bedrock import AwsAccount, FrameDecoder, _get_event_name
from cllm.wire.errors import MalformedError, ReportedError

NAMES = st.text("abc:-", min_size=1, max_size=12)
FRAMES = st.lists(
    st.tuples(st.dictionaries(NAMES, st.text(max_size=20), max_size=4), st.binary(max_size=60)),
    max_size=5,
)


def encode_frame(headers: dict[str, str], payload: bytes) -> bytes:
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(raw)) + raw
        for name, raw in ((name, value.encode()) for name, value in headers.items())
    )
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


def decode(*chunks: bytes) -> list[tuple[dict[str, Any], bytes]]:
    decoder = FrameDecoder()
    return [(frame.headers, frame.payload) for chunk in chunks for frame in decoder.feed(chunk)]


@given(frames=FRAMES, data=st.data())
def test_chunks_of_any_size_give_the_frames_that_botocore_reads(frames, data):
    stream = b"".join(encode_frame(headers, payload) for headers, payload in frames)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected: Any = EventStreamBuffer()
    expected.add_data(stream)

    assert decode(*chunks) == [(frame.headers, frame.payload) for frame in expected]


def test_a_large_frame_in_many_chunks_is_decoded():
    payload = bytes(3 * 1024 * 1024)
    stream = encode_frame({":event-type": "a"}, payload) + encode_frame({":event-type": "b"}, b"{}")
    chunks = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]

    assert decode(*chunks) == [({":event-type": "a"}, payload), ({":event-type": "b"}, b"{}")]


def test_each_byte_of_a_long_frame_is_copied_a_few_times_only(monkeypatch):
    stream = encode_frame({":event-type": "a"}, bytes(1024 * 1024)) * 2
    copied = 0

    class CountingBuffer(EventStreamBuffer):  # type: ignore[misc]
        def add_data(self, data: bytes) -> None:
            nonlocal copied
            copied += len(self._data) + len(data)
            super().add_data(data)

    monkeypatch.setattr("cllm.providers.bedrock.EventStreamBuffer", CountingBuffer)
    frames = decode(*(stream[at : at + 64] for at in range(0, len(stream), 64)))

    assert len(frames) == 2
    assert copied < 2 * len(stream)


def test_the_frames_before_a_damaged_one_are_decoded():
    decoder = FrameDecoder()
    damaged = encode_frame({"a": "b"}, b"two")[:-1] + b"\0"
    frames = decoder.feed(encode_frame({"a": "b"}, b"one") + damaged)

    assert next(frames).payload == b"one"
    with pytest.raises(MalformedError, match="Checksum"):
        next(frames)


@pytest.mark.parametrize(
    "packed",
    [b"\x05ab", b"\x01a\x63", b"\x01a\x07\x00", b"\x01\xff\x00", b"\x01a\x00\x01a\x00"],
    ids=["cut name", "unknown type", "cut value", "no text", "twice"],
)
def test_invalid_headers_are_malformed(packed):
    prelude = struct.pack("!II", 16 + len(packed), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed

    with pytest.raises(MalformedError, match="invalid frame"):
        decode(message + struct.pack("!I", zlib.crc32(message)))


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_frame_with_a_changed_byte_is_never_decoded(index, change):
    data = bytearray(encode_frame({":event-type": "messageStop"}, b'{"stopReason":"end_turn"}'))
    data[index % len(data)] ^= change

    with pytest.raises(MalformedError):
        decode(bytes(data) + b"\0" * 16)


@pytest.mark.parametrize(("length", "headers"), [(15, 0), (16, 1), (2**32 - 1, 0), (2**31, 2**30)])
def test_a_frame_of_an_impossible_length_is_malformed(length, headers):
    prelude = struct.pack("!II", length, headers)

    with pytest.raises(MalformedError):
        decode(prelude + struct.pack("!I", zlib.crc32(prelude)))


def test_a_wrong_checksum_of_the_prelude_is_detected_before_the_frame_is_complete():
    with pytest.raises(MalformedError, match="Checksum"):
        decode(struct.pack("!III", 5_000, 100, 7))


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({":event-type": "messageStop", ":message-type": "event"}, "messageStop"),
        ({":exception-type": "throttlingException"}, "throttlingException"),
        ({}, ""),
    ],
)
def test_the_headers_name_the_event(headers, name):
    assert _get_event_name(headers) == name


def test_an_error_message_is_reported_with_its_code():
    headers = {":message-type": "error", ":error-code": "Busy", ":error-message": "Wait."}

    with pytest.raises(ReportedError) as raised:
        _get_event_name(headers)
    assert (raised.value.details.type, raised.value.details.message) == ("Busy", "Wait.")


@pytest.mark.parametrize(
    ("account", "url"),
    [
        (AwsAccount(), "https://bedrock-runtime.us-east-1.amazonaws.com"),
        (AwsAccount(region="eu-west-1"), "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        (AwsAccount(endpoint_url="http://127.0.0.1:1/"), "http://127.0.0.1:1"),
    ],
)
def test_the_region_or_the_endpoint_url_is_the_base_url(account, url):
    assert account.base_url == url
