"""The filters of `cllm conversations list`."""

from datetime import UTC, datetime, timedelta

import pytest

from cllm.cli.conversations.list import ListOptions, parse_since
from cllm.cli.inputs import OptionError

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30m", timedelta(minutes=30)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("2W", timedelta(weeks=2)),
    ],
)
def test_an_age(text, age):
    assert parse_since(text, NOW) == NOW - age


def test_a_day_and_a_time():
    assert parse_since("2026-11-01", NOW) == datetime(2026, 11, 1).astimezone()
    assert parse_since("2026-11-01T10:00:00Z", NOW) == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert parse_since(None, NOW) is None


def test_today_and_yesterday_start_at_midnight():
    today, yesterday = parse_since("today", NOW), parse_since("yesterday", NOW)

    assert today is not None
    assert yesterday is not None
    assert (today.hour, today.minute) == (yesterday.hour, yesterday.minute) == (0, 0)
    assert yesterday < today <= NOW


@pytest.mark.parametrize("text", ["soon", "7x", "", "d", "999999w", "2026-13-01"])
def test_a_text_that_is_no_time_is_refused(text):
    with pytest.raises(OptionError, match="--since needs a time"):
        parse_since(text, NOW)


def test_a_limit_is_no_filter():
    assert ListOptions(limit=3, side=True).is_empty
    assert not ListOptions(archive_filter="archived").is_empty
