"""Query parameters and JSON bodies: valid values, and the field that an error names."""

from datetime import UTC, datetime

import pytest
from starlette.requests import Request

from cllm.server.http.errors import ApiError
from cllm.server.http.parameters import (
    BranchBody,
    ChangeBody,
    ListQuery,
    SearchQuery,
    decode,
    read_query,
    read_sequence,
    read_timestamp,
)
from cllm.wire.errors import FieldError


def make_request(query: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


def test_missing_parameters_have_defaults():
    assert read_query(make_request(""), ListQuery) == ListQuery()


def test_parameters_are_converted_to_their_types():
    query = read_query(make_request("limit=7&offset=3&store=files"), ListQuery)

    assert (query.limit, query.offset, query.store) == (7, 3, "files")


@pytest.mark.parametrize(
    ("query", "path", "message"),
    [
        ("limit=1&limit=2", "limit", "more than once"),
        ("cursor=null", "cursor", "omit it"),
        ("limit=0", "limit", "must be an integer >= 1"),
        ("limit=x", "limit", "must be an integer"),
    ],
)
def test_an_invalid_parameter_is_named(query: str, path: str, message: str):
    with pytest.raises(FieldError, match=message) as raised:
        read_query(make_request(query), ListQuery)

    assert raised.value.path == path


def test_a_required_parameter_is_named():
    with pytest.raises(FieldError, match="q: is required") as raised:
        read_query(make_request(""), SearchQuery)

    assert raised.value.path == "q"


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        (b'{"branch_at_sequence": "x"}', "branch_at_sequence", "must be an integer"),
        (b'{"other": 1}', "other", "other: unknown field"),
        (b"{", "", "not valid JSON"),
        (b'"\xff"', "", "not UTF-8"),
    ],
)
def test_an_invalid_body_is_a_field_error(body: bytes, path: str, message: str):
    with pytest.raises(FieldError, match=message) as raised:
        decode(body, BranchBody)

    assert raised.value.path == path


def test_a_deeply_nested_body_is_a_field_error():
    with pytest.raises(FieldError, match="not valid JSON"):
        decode(b"[" * 100_000, list)


def test_an_empty_change_body_changes_nothing():
    assert decode(b"{}", ChangeBody) == ChangeBody()
    assert decode(b'{"title": null}', ChangeBody) != ChangeBody()


@pytest.mark.parametrize("text", ["0", "-1", "x", "٣", "9" * 30, str(2**31)])
def test_an_invalid_sequence_number_is_rejected(text: str):
    with pytest.raises(ApiError) as raised:
        read_sequence(text)

    assert (raised.value.code, raised.value.param) == ("invalid_sequence_number", "sequence_number")


def test_a_sequence_number_is_an_integer():
    assert read_sequence("12") == 12


@pytest.mark.parametrize(
    ("text", "end", "expected"),
    [
        ("2026-11-15", False, datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15", True, datetime(2026, 11, 16, tzinfo=UTC)),
        ("2026-11-15T12:00:00", True, datetime(2026, 11, 15, 12, tzinfo=UTC)),
        ("2026-11-15T12:00:00 02:00", False, datetime(2026, 11, 15, 10, tzinfo=UTC)),
        (None, False, None),
    ],
)
def test_a_timestamp_is_a_date_or_a_time(text: str | None, end: bool, expected: datetime | None):
    assert read_timestamp(text, field="from", end=end) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30", "9999-12-31"])
def test_an_invalid_timestamp_is_a_field_error(text: str):
    with pytest.raises(FieldError) as raised:
        read_timestamp(text, field="to", end=True)

    assert raised.value.path == "to"
