"""Anthropic's error bodies, and citations converted from Converse."""

import json
from typing import Any

import pytest

from cllm.core.message import Text
from cllm.wire.anthropic.events import (
    convert_citation,
    decode_error,
    get_citations,
    wrap_citation,
)

SOURCE = [{"text": "It "}, {"text": "rains."}]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("rate_limit_error", 429), ("overloaded_error", 529), ("new_error", None)],
)
def test_the_type_of_an_error_has_a_status(kind, status):
    details = decode_error(json.dumps({"error": {"type": kind, "message": "No."}}).encode())

    assert (details.type, details.message, details.status) == (kind, "No.", status)


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", True),
        ("invalid_request_error", "max_tokens: 5 is too low", False),
        ("api_error", "210000 tokens > 200000", False),
    ],
)
def test_only_an_invalid_request_with_token_counts_is_too_long(kind, message, expected):
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()

    assert decode_error(body).too_long is expected


def test_the_details_of_an_error_are_decoded():
    error = {"type": "api_error", "message": "No.", "details": {"error_code": "x", "n": 1}}
    details = decode_error(json.dumps({"error": error}).encode())

    assert (details.code, details.data) == ("x", {"error_code": "x", "n": 1})


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (
            {"documentChar": {"start": 1, "end": 9, "documentIndex": 2}},
            {
                "type": "char_location",
                "start_char_index": 1,
                "end_char_index": 9,
                "document_index": 2,
                "document_title": "Weather",
            },
        ),
        (
            {"documentPage": {"start": 1, "end": 2}},
            {
                "type": "page_location",
                "start_page_number": 1,
                "end_page_number": 2,
                "document_index": 0,
                "document_title": "Weather",
            },
        ),
        (
            {"searchResultLocation": {"start": 0, "end": 1, "searchResultIndex": 3}},
            {
                "type": "search_result_location",
                "start_block_index": 0,
                "end_block_index": 1,
                "search_result_index": 3,
                "source": "https://x.test",
                "title": "Weather",
            },
        ),
    ],
)
def test_a_citation_of_converse_is_converted(location, expected):
    citation = {
        "location": location,
        "title": "Weather",
        "source": "https://x.test",
        "sourceContent": SOURCE,
    }

    assert convert_citation(citation) == {"cited_text": "It rains.", **expected}


@pytest.mark.parametrize(
    "citation",
    [None, {}, {"location": {"web": {}}}, {"location": {"documentChar": {"start": "a"}}}],
)
def test_a_citation_with_another_location_is_none(citation):
    assert convert_citation(citation) is None


@pytest.mark.parametrize(
    ("extra", "count"),
    [
        ({}, 0),
        ({"citations": None}, 0),
        ({"citations": [{"type": "page_location"}]}, 1),
        ({"citationsContent": {"citations": "?"}}, 0),
        ({"citationsContent": {"citations": [{"location": {"documentPage": {}}}]}}, 0),
        (
            {
                "citationsContent": {
                    "citations": [{"location": {"documentPage": {"start": 1, "end": 2}}}]
                }
            },
            1,
        ),
    ],
)
def test_the_citations_of_a_text_come_from_either_protocol(extra: dict[str, Any], count: int):
    assert len(get_citations(Text(text="a", extra=extra))) == count


def test_a_wrapped_citation_is_the_citation_of_an_empty_text():
    citation = {"type": "page_location"}
    part = wrap_citation(citation)

    assert part.text == ""
    assert get_citations(part) == [citation]
