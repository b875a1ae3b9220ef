"""Limits on bodies: total memory, nesting depth, numbers of messages and parts."""

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
CHUNK_SIZES = st.integers(1, 9)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def measure_depth(body: bytes) -> int:
    """Return the depth by the simple algorithm, byte by byte, also of invalid JSON."""
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


def is_rejected(body: bytes, max_depth: int, chunk_bytes: int) -> bool:
    try:
        check_depth(body, max_depth, chunk_bytes=chunk_bytes)
    except FieldError:
        return True
    return False


@given(VALUES, st.integers(1, 6), CHUNK_SIZES)
def test_brackets_in_strings_do_not_count(value: object, max_depth: int, chunk_bytes: int):
    body = json.dumps(value).encode()

    assert is_rejected(body, max_depth, chunk_bytes) == (depth_of(value) > max_depth)
    assert is_rejected(body, max_depth, len(body)) == (depth_of(value) > max_depth)


STRINGS = st.sampled_from([rb"\\", rb"\"", b"[", b"]", b"a"])
JSON_LIKE = st.sampled_from([b"[", b"{", b"]", b"}", b",", b"1"]) | st.lists(STRINGS).map(
    lambda words: b'"' + b"".join(words) + b'"'
)


@given(st.lists(JSON_LIKE).map(b"".join), st.integers(1, 4), CHUNK_SIZES)
def test_chunks_do_not_change_the_depth(body: bytes, max_depth: int, chunk_bytes: int):
    assert is_rejected(body, max_depth, chunk_bytes) == (measure_depth(body) > max_depth)


@pytest.mark.parametrize("word", [b'"ab",', b'"",', rb'"\"\\",', b"[],"])
def test_the_check_needs_less_memory_than_the_body(word: bytes):
    body = b"[" + b"[]," * 64 + word * (3 * MEGABYTE // len(word)) + b"1]"

    tracemalloc.start()
    try:
        check_depth(body, 64)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < len(body)


def test_invalid_json_is_left_to_the_decoder():
    check_depth(b"]" * 1000, 5)


def test_too_many_messages_are_rejected():
    with pytest.raises(ApiError, match="at most 2 messages"):
        check_counts(b"{}", 3, Limits(messages=2))


def test_too_many_parts_are_rejected():
    body = json.dumps({"messages": [{"content": [{"type": "text"}] * 3}]}).encode()

    check_counts(body, 1, Limits(parts=3))
    with pytest.raises(ApiError, match="parts"):
        check_counts(body, 1, Limits(parts=2))


def test_an_unterminated_string_is_scanned_once():
    """A scan from each quote to the end would take hours."""
    check_depth(b"[" * 40 + b"]" * 40 + b'["' + rb"\"" * 1_000_000, 64)


def test_long_bodies_can_use_three_quarters_of_the_memory():
    quota = BodyQuota(LIMITS)
    with ExitStack() as reading:
        for _ in range(3):
            reading.enter_context(BodyAllowance(quota)).grow(4 * SHORT_BODY_BYTES)
        late = reading.enter_context(BodyAllowance(quota))
        with pytest.raises(ApiError) as caught:
            late.grow(SHORT_BODY_BYTES + 1)
    assert (caught.value.code, caught.value.status) == ("too_many_bodies", 503)
    assert caught.value.retry_after is not None
    assert (quota.short, quota.long) == (0, 0)


def test_short_bodies_fit_when_long_ones_use_their_share():
    quota = BodyQuota(LIMITS)
    with ExitStack() as reading:
        for _ in range(3):
            reading.enter_context(BodyAllowance(quota)).grow(4 * SHORT_BODY_BYTES)
        for _ in range(4):
            reading.enter_context(BodyAllowance(quota)).grow(SHORT_BODY_BYTES)
        with pytest.raises(ApiError):
            reading.enter_context(BodyAllowance(quota)).grow(1)


def test_one_body_of_the_maximum_size_always_fits():
    small = Limits(body_bytes=8 * SHORT_BODY_BYTES, bodies_bytes=1)
    quota = BodyQuota(small)
    quota.check(expected=8 * SHORT_BODY_BYTES)
    with BodyAllowance(quota) as allowance:
        allowance.grow(8 * SHORT_BODY_BYTES)
        with pytest.raises(ApiError):
            quota.check(expected=SHORT_BODY_BYTES + 1)


def test_a_rejected_body_releases_its_memory():
    quota = BodyQuota(LIMITS)
    with BodyAllowance(quota) as first:
        first.grow(10 * SHORT_BODY_BYTES)
        with pytest.raises(ApiError), BodyAllowance(quota) as second:
            second.grow(3 * SHORT_BODY_BYTES)
        first.grow(12 * SHORT_BODY_BYTES)


@given(
    st.lists(st.lists(st.integers(0, 5 * SHORT_BODY_BYTES), max_size=5).map(sorted), max_size=10)
)
def test_the_total_stays_within_the_limit_and_returns_to_zero(bodies: list[list[int]]):
    quota = BodyQuota(LIMITS)
    with ExitStack() as reading:
        for sizes in bodies:
            allowance = BodyAllowance(quota)
            try:
                for size in sizes:
                    allowance.grow(size)
            except ApiError:
                allowance.__exit__()
            else:
                reading.enter_context(allowance)
            assert quota.short + quota.long <= LIMITS.bodies_bytes
    assert (quota.short, quota.long) == (0, 0)
