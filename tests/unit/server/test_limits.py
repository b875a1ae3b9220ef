"""Limits that are looked at before a body is decoded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.server.limits import check_counts, check_depth
from cllm.server.refusal import RefusedError
from cllm.settings.server import Limits
from cllm.wire.malformed import FieldError

VALUES = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a,:') | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{}"\\a'), inner),
    max_leaves=30,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(VALUES, st.integers(1, 6))
def test_depth_is_that_of_the_json_whatever_stands_in_its_strings(value: object, most: int):
    body = json.dumps(value).encode()

    if depth_of(value) > most:
        with pytest.raises(FieldError, match="deeper"):
            check_depth(body, most)
    else:
        check_depth(body, most)


def test_what_is_no_json_is_left_to_the_decoder():
    check_depth(b"]" * 1000, 5)


def test_more_messages_than_there_may_be_are_refused():
    with pytest.raises(RefusedError, match="at most 2 messages"):
        check_counts(b"{}", 3, Limits(messages=2))


def test_more_parts_than_there_may_be_are_refused():
    body = json.dumps({"messages": [{"content": [{"type": "text"}] * 3}]}).encode()

    check_counts(body, 1, Limits(parts=3))
    with pytest.raises(RefusedError, match="parts"):
        check_counts(body, 1, Limits(parts=2))


def test_a_string_that_never_ends_is_looked_through_once():
    """Looking from each of its quotes to the end would take hours."""
    check_depth(b"[" * 40 + b"]" * 40 + b'["' + rb"\"" * 1_000_000, 64)
