"""What a status means, and what of a server's words is shown."""

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core import errors
from cllm.providers.http.provider import classify_status, clean_message, parse_retry_after

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
def test_a_status_stands_for_one_error_with_advice(status, kind):
    found, advice = classify_status(status)

    assert found is kind
    assert advice.endswith(".")


@pytest.mark.parametrize(
    ("text", "secret", "expected"),
    [
        ("No.", None, "No."),
        ("  a\n\tb\r\n c ", None, "a b c"),
        ("key sk-1 is bad: sk-1", "sk-1", "key *** is bad: ***"),
        ("nothing", "", "nothing"),
        ("x" * 300, None, "x" * 300),
        ("x" * 301, None, "x" * 299 + "…"),
    ],
)
def test_what_a_server_said_is_one_short_line_without_our_key(text, secret, expected):
    assert clean_message(text, secrets=[secret]) == expected


@given(st.text(max_size=400), st.text(max_size=400))
def test_no_key_is_left_in_a_line_however_long(before, after):
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
def test_the_wait_is_a_number_of_seconds_or_a_date(value, expected):
    assert parse_retry_after({"Retry-After": value}, now=NOW) == expected


def test_without_the_header_there_is_no_wait():
    assert parse_retry_after({}, now=NOW) is None


@given(
    st.text(max_size=40)
    | st.from_regex(r"[A-Z][a-z]{2}, \d{1,2} Nov \d{4} \d\d:\d\d:\d\d [+-]\d{4}")
)
def test_any_header_is_a_wait_or_none(value):
    wait = parse_retry_after({"Retry-After": value}, now=NOW)

    assert wait is None or (wait >= 0 and math.isfinite(wait))
