"""What is found wrong with schemas and replies, in words that a person can use."""

import json

import pytest

from cllm.schemas.checker_process import check_reply, check_schema, json_path, outline

DRAFT_3 = "http://json-schema.org/draft-03/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["object", "null"]},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"$id": "https://example.com/a", "$ref": "b", "$defs": {"b": {"$id": "b"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$schema": DRAFT_7, "definitions": {"a": {}}, "$ref": "#/definitions/a"},
        {"enum": [{"$ref": "https://example.com/only-data"}]},
        {"properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}}},
        {"patternProperties": {"^x-": {}}, "pattern": "^[a-z]+$"},
    ],
)
def test_a_schema_that_replies_can_be_held_against(schema):
    assert check_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "place", "words"),
    [
        ({"type": 12}, "$.type", "12 is not a type"),
        ({"items": {"type": "text"}}, "$.items.type", "'text' is not a type"),
        ({"required": "name"}, "$.required", "must be array, and is string"),
        ({"minLength": -1}, "$.minLength", "-1"),
        ({"$schema": 12}, "$.$schema", "draft"),
        ({"$schema": DRAFT_3, "definitions": 12}, "$", "a part of it is no schema"),
        ({"$schema": "https://example.com/x"}, "$.$schema", "draft"),
        ({"$schema": DRAFT_7, "exclusiveMinimum": True}, "$.exclusiveMinimum", "boolean"),
        ({"$ref": "https://example.com/x"}, "$ref", "never fetched"),
        ({"allOf": [{"not": {"$ref": "other.json"}}]}, "$ref", "'other.json'"),
        ({"$dynamicRef": "https://example.com/x#a"}, "$ref", "never fetched"),
        ({"$ref": "#/a", "a": {"$ref": "https://example.com/x"}}, "$ref", "example.com"),
        ({"$ref": "http://["}, "$ref", "http://["),
        ({"pattern": "["}, "pattern", "'['"),
        ({"pattern": r"\p{L}"}, "pattern", r"\p{L}"),
        ({"pattern": "a{99999999999}"}, "pattern", "a{9"),
        ({"patternProperties": {"(": {}}}, "pattern", "'('"),
        ({"properties": {"a": {"pattern": "x" * 1001}}}, "pattern", "1000 characters"),
    ],
)
def test_what_keeps_a_schema_from_being_used(schema, place, words):
    finding = check_schema(schema)

    assert finding is not None
    assert finding.place == place
    assert words in finding.problem


@pytest.mark.parametrize(
    ("schema", "reply", "place", "words"),
    [
        ({"type": "string"}, "null", "$", "must be string, and is null"),
        ({"type": ["string", "number"]}, "{}", "$", "string or number, and is object"),
        ({"required": ["a", "b"]}, '{"a": 1}', "$", "'b' is missing"),
        ({"additionalProperties": False}, '{"z": 1}', "$", "'z' is not allowed"),
        ({"items": {"enum": ["a"]}}, '["a", "b"]', "$[1]", "must be one of 'a', and is 'b'"),
        ({"const": 3}, "4", "$", "must be 3, and is 4"),
        ({"pattern": "^a$"}, '"b"', "$", "'b' does not match the pattern '^a$'"),
        ({"oneOf": [{"type": "null"}, {"const": 1}]}, "2", "$", "exactly one of the 2"),
        ({"minimum": 5}, "2", "$", "2 does not fit `minimum: 5`"),
        ({"properties": {"a b": {"minimum": 5}}}, '{"a b": 1}', "$['a b']", "minimum"),
        ({"not": {}}, "1", "$", "not"),
        ({}, "", "$", "empty"),
        ({}, "{} {}", "$", "text after the JSON document (line 1, column 4)"),
        ({}, "```json\n{}\n```", "$", "fences"),
        ({}, "Sure! {}", "$", "text before the JSON document"),
        ({}, "NaN", "$", "number"),
        ({}, r'"\ud800"', "$", "half a character"),
        ({}, r'{"\udfff": 1}', "$", "half a character"),
        (
            {"$schema": DRAFT_3, "properties": {"a": {"required": True}}},
            "{}",
            "$.a",
            "it is missing",
        ),
        ({}, "1e999", "$", "number"),
        ({}, "9" * 5000, "$", "number"),
        ({}, "[" * 80 + "]" * 80, "$", "nested"),
    ],
)
def test_what_is_wrong_with_a_reply(schema, reply, place, words):
    finding = check_reply(schema, reply)

    assert finding is not None
    assert finding.place == place
    assert words in finding.problem
    assert not finding.of_schema


@pytest.mark.parametrize("reply", ["{}", ' \n{"a": [1, null]}\n', '{"z": "é"}'])
def test_a_json_document_with_white_space_around_it_fits(reply):
    assert check_reply({"type": "object"}, reply) is None


def test_the_draft_decides_what_a_keyword_means():
    old = {"$schema": DRAFT_7, "items": [{"type": "string"}]}

    assert check_reply(old, "[1]") is not None
    assert check_reply(old, '["a"]') is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/a", "a": {"type": "no type"}},
        {"$ref": "#/a", "a": {"pattern": 12}},
        {"$ref": "https://example.com/x"},
    ],
)
def test_a_schema_that_fails_only_when_it_is_used_is_not_the_replys_fault(schema):
    finding = check_reply(schema, '"hello"')

    assert finding is not None
    assert finding.of_schema


def test_long_values_are_cut_in_the_sentence():
    finding = check_reply({"const": "x" * 5000}, json.dumps("y" * 5000))

    assert finding is not None
    assert len(finding.problem) < 200


def test_many_names_are_counted():
    names = [f"name{number}" for number in range(100)]

    finding = check_reply({"required": names}, "{}")

    assert finding is not None
    assert "'name7', 92 more is missing" in finding.problem


@pytest.mark.parametrize(
    ("path", "shown"),
    [([], "$"), (["a", 0, "b-c"], "$.a[0].b-c"), (["a.b"], "$['a.b']"), ([""], "$['']")],
)
def test_a_place_is_written_as_a_path(path, shown):
    assert json_path(path) == shown


def test_a_summary_says_what_a_person_recognises_a_schema_by():
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}

    assert outline(schema) == {
        "draft": "2020-12",
        "type": "object",
        "properties": ["a", "b"],
        "required": ["a"],
    }
    assert outline({"$schema": DRAFT_7})["draft"] == "07"
