"""Limits on bodies: the memory that they use together, their nesting and their counts."""

import json
import tracemalloc
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.server.http.errors import ApiError
from cllm.server.http.limits import (
    SHORT_BODY_BYTES,
    BodyAllowance,
    BodyQuota,
    check_counts,
    check_depth,
)
from cllm.settings.sections import Limits
from cllm.wire.errors import FieldError

VALUES = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a,:') | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{}"\\a'), inner),
    max_leaves=30,
)


LIMITS = Limits(body_bytes=4 * SHORT_BODY_BYTES, bodies_bytes=16 * SHORT_BODY_BYTES)
MEGABYTE = 2**20
PIECES = st.integers(1, 9)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def deepest_in(body: bytes) -> int:
    """The plain way, byte by byte: how deep it goes, whether it is JSON or not."""
    depth = deepest = 0
    in_string = is_escaped = False
    for letter in body.decode():
        if is_escaped:
            is_escaped = False
        elif letter == "\\":
            is_escaped = True
        elif letter == '"':
            in_string = not in_string
        elif not in_string:
            depth += (letter in "[{") - (letter in "]}")
            deepest = max(depth, deepest)
    return deepest


def is_refused(body: bytes, most: int, piece: int) -> bool:
    try:
        check_depth(body, most, chunk_bytes=piece)
    except FieldError:
        return True
    return False


@given(VALUES, st.integers(1, 6), PIECES)
def test_depth_is_that_of_the_json_whatever_stands_in_its_strings(
    value: object, most: int, piece: int
):
    body = json.dumps(value).encode()

    assert is_refused(body, most, piece) == (depth_of(value) > most)
    assert is_refused(body, most, len(body)) == (depth_of(value) > most)


STRINGS = st.sampled_from([rb"\\", rb"\"", b"[", b"]", b"a"])
JSON_LIKE = st.sampled_from([b"[", b"{", b"]", b"}", b",", b"1"]) | st.lists(STRINGS).map(
    lambda words: b'"' + b"".join(words) + b'"'
)


@given(st.lists(JSON_LIKE).map(b"".join), st.integers(1, 4), PIECES)
def test_it_is_the_same_in_pieces_as_byte_by_byte(body: bytes, most: int, piece: int):
    assert is_refused(body, most, piece) == (deepest_in(body) > most)


@pytest.mark.parametrize("word", [b'"ab",', b'"",', rb'"\"\\",', b"[],"])
def test_looking_takes_less_than_a_body_does(word: bytes):
    body = b"[" + b"[]," * 64 + word * (3 * MEGABYTE // len(word)) + b"1]"

    tracemalloc.start()
    try:
        check_depth(body, 64)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < len(body)


def test_what_is_no_json_is_left_to_the_decoder():
    check_depth(b"]" * 1000, 5)


def test_more_messages_than_there_may_be_are_refused():
    with pytest.raises(ApiError, match="at most 2 messages"):
        check_counts(b"{}", 3, Limits(messages=2))


def test_more_parts_than_there_may_be_are_refused():
    body = json.dumps({"messages": [{"content": [{"type": "text"}] * 3}]}).encode()

    check_counts(body, 1, Limits(parts=3))
    with pytest.raises(ApiError, match="parts"):
        check_counts(body, 1, Limits(parts=2))


def test_a_string_that_never_ends_is_looked_through_once():
    """Looking from each of its quotes to the end would take hours."""
    check_depth(b"[" * 40 + b"]" * 40 + b'["' + rb"\"" * 1_000_000, 64)


def test_long_bodies_have_three_quarters_of_the_room():
    room = BodyQuota(LIMITS)
    with ExitStack() as reading:
        for _ in range(3):
            reading.enter_context(BodyAllowance(room)).grow(4 * SHORT_BODY_BYTES)
        late = reading.enter_context(BodyAllowance(room))
        with pytest.raises(ApiError) as caught:
            late.grow(SHORT_BODY_BYTES + 1)
    assert (caught.value.code, caught.value.status) == ("too_many_bodies", 503)
    assert caught.value.retry_after is not None
    assert (room.short, room.long) == (0, 0)


def test_a_short_body_finds_room_beside_long_ones():
    room = BodyQuota(LIMITS)
    with ExitStack() as reading:
        for _ in range(3):
            reading.enter_context(BodyAllowance(room)).grow(4 * SHORT_BODY_BYTES)
        for _ in range(4):
            reading.enter_context(BodyAllowance(room)).grow(SHORT_BODY_BYTES)
        with pytest.raises(ApiError):
            reading.enter_context(BodyAllowance(room)).grow(1)


def test_a_body_alone_can_be_as_long_as_one_may_be():
    small = Limits(body_bytes=8 * SHORT_BODY_BYTES, bodies_bytes=1)
    room = BodyQuota(small)
    room.check(expected=8 * SHORT_BODY_BYTES)
    with BodyAllowance(room) as share:
        share.grow(8 * SHORT_BODY_BYTES)
        with pytest.raises(ApiError):
            room.check(expected=SHORT_BODY_BYTES + 1)


def test_a_body_that_is_refused_makes_room():
    room = BodyQuota(LIMITS)
    with BodyAllowance(room) as first:
        first.grow(10 * SHORT_BODY_BYTES)
        with pytest.raises(ApiError), BodyAllowance(room) as second:
            second.grow(3 * SHORT_BODY_BYTES)
        first.grow(12 * SHORT_BODY_BYTES)


@given(
    st.lists(st.lists(st.integers(0, 5 * SHORT_BODY_BYTES), max_size=5).map(sorted), max_size=10)
)
def test_the_room_never_holds_more_than_it_may_and_gives_all_back(bodies: list[list[int]]):
    room = BodyQuota(LIMITS)
    with ExitStack() as reading:
        for sizes in bodies:
            share = BodyAllowance(room)
            try:
                for size in sizes:
                    share.grow(size)
            except ApiError:
                share.__exit__()
            else:
                reading.enter_context(share)
            assert room.short + room.long <= LIMITS.bodies_bytes
    assert (room.short, room.long) == (0, 0)
