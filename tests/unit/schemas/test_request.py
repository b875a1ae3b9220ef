"""A schema in the words of a request."""

import pytest

from cllm.schemas.checker import fits_strict_mode, response_format

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Person", "Person"),
        ("A person, or two", "A_person_or_two"),
        ("人", "reply"),
        ("", "reply"),
        (12, "reply"),
        ("x" * 100, "x" * 64),
    ],
)
def test_the_name_is_made_of_the_title(title, name):
    assert response_format({"title": title})["json_schema"]["name"] == name


def test_the_schema_is_sent_as_it_is():
    schema = {"type": "array", "items": {"type": "string"}, "x-mine": 1}

    assert response_format(schema)["json_schema"]["schema"] is schema


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        {**CLOSED, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "X"},
        {**CLOSED, "properties": {"a": {"type": "array", "items": CLOSED}}},
        {**CLOSED, "$defs": {"b": CLOSED}, "properties": {"a": {"$ref": "#/$defs/b"}}},
        {**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}},
    ],
)
def test_a_closed_schema_is_sent_as_strict(schema):
    assert response_format(schema)["json_schema"]["strict"] is True


@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED, "additionalProperties": True},
        {**CLOSED, "required": []},
        {**CLOSED, "allOf": [CLOSED]},
        {**CLOSED, "properties": {"a": {"type": "object"}}},
        {**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object"}}}},
        {**CLOSED, "properties": {"a": {"anyOf": [{"properties": {"b": {}}}]}}},
        {**CLOSED, "properties": {"a": True}},
        {**CLOSED, "$defs": {"b": {"not": {}}}},
        {"type": "array", "items": {"type": "string"}},
        {"type": "string"},
        {"type": "object", "required": True, "additionalProperties": False},
        {"type": "object", "properties": 12, "anyOf": 12, "definitions": 12, "items": 12},
    ],
)
def test_a_schema_that_strict_mode_refuses_is_not_sent_as_strict(schema):
    assert "strict" not in response_format(schema)["json_schema"]


def test_strict_mode_has_no_words_for_a_schema_that_is_no_object():
    assert not fits_strict_mode(True)
