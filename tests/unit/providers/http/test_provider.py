"""The error for an HTTP status, Retry-After, and messages without secrets."""

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core import errors
from cllm.providers.http.provider import (
    check_key,
    classify_status,
    clean_message,
    describe_json_error,
    parse_retry_after,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequestError),
        (401, errors.AuthenticationError),
        (403, errors.PermissionDeniedError),
        (404, errors.InvalidRequestError),
        (408, errors.UpstreamError),
        (413, errors.InvalidRequestError),
        (418, errors.InvalidRequestError),
        (422, errors.InvalidRequestError),
        (429, errors.RateLimitedError),
        (500, errors.UpstreamError),
        (503, errors.UpstreamError),
        (529, errors.UpstreamError),
        (201, errors.BadReplyError),
        (302, errors.BadReplyError),
        (600, errors.BadReplyError),
    ],
)
def test_a_status_maps_to_one_error_with_advice(status, kind):
    error_class, advice = classify_status(status)

    assert error_class is kind
    assert advice.endswith(".")


def test_a_request_that_is_too_large_has_its_own_advice():
    advice = classify_status(413)[1]

    assert advice == "The request is too large; send a shorter prompt or smaller attachments."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[x", "invalid character at byte 1"),
        (b"{} {}", "trailing characters at byte 4"),
        (b"{", "input data was truncated"),
    ],
)
def test_an_error_of_json_is_described_with_its_position(text, expected):
    with pytest.raises(msgspec.DecodeError) as raised:
        msgspec.json.decode(text)

    assert describe_json_error(raised.value) == expected


@pytest.mark.parametrize(
    ("text", "secret", "expected"),
    [
        ("No.", None, "No."),
        ("  a\n\tb\r\n c ", None, "a b c"),
        ("key sk-123 is bad: sk-123", "sk-123", "key *** is bad: ***"),
        ("a short key masks nothing", "a", "a short key masks nothing"),
        ("nothing", "", "nothing"),
        ("x" * 300, None, "x" * 300),
        ("x" * 301, None, "x" * 299 + "…"),
    ],
)
def test_a_servers_message_becomes_one_short_line_without_the_key(text, secret, expected):
    assert clean_message(text, secrets=[secret]) == expected


@given(st.text(max_size=400), st.text(max_size=400))
def test_a_message_of_any_length_contains_no_key(before, after):
    line = clean_message(f"{before}sk-0123456789{after}", secrets=["sk-0123456789"])

    assert "sk-0123456789" not in line
    assert len(line) <= 300
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5", 5.0),
        (" 0.5 ", 0.5),
        ("0", 0.0),
        ("-3", 0.0),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("soon", None),
        ("", None),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("Sun, 15 Nov 2026 12:00:30", 30.0),
        ("Sun, 99 Nov 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(value, expected):
    assert parse_retry_after({"Retry-After": value}, now=NOW) == expected


def test_without_the_header_retry_after_is_none():
    assert parse_retry_after({}, now=NOW) is None


@given(
    st.text(max_size=40)
    | st.from_regex(r"[A-Z][a-z]{2}, \d{1,2} Nov \d{4} \d\d:\d\d:\d\d [+-]\d{4}")
)
def test_any_header_gives_seconds_or_none(value):
    seconds = parse_retry_after({"Retry-After": value}, now=NOW)

    assert seconds is None or (seconds >= 0 and math.isfinite(seconds))


@pytest.mark.parametrize("key", ["sk-\n1", "sk-é", "a\x7fb"])
def test_a_key_that_a_header_cannot_contain_is_refused(key):
    with pytest.raises(errors.AuthenticationError, match="API key of provider 'mine'") as raised:
        check_key(key, provider="mine")
    assert key not in str(raised.value)


@pytest.mark.parametrize("key", [None, "", "sk-1 2"])
def test_a_printable_key_is_accepted(key):
    check_key(key, provider="mine")
