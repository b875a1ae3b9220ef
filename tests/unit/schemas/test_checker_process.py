"""Problems of schemas and replies, with their path and a readable message."""

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
def test_a_valid_schema_has_no_problem(schema):
    assert check_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "path", "text"),
    [
        ({"type": 12}, "$.type", "12 is not a JSON type"),
        ({"items": {"type": "text"}}, "$.items.type", "'text' is not a JSON type"),
        ({"required": "name"}, "$.required", "must be array, but is string"),
        ({"minLength": -1}, "$.minLength", "-1"),
        ({"$schema": 12}, "$.$schema", "draft"),
        ({"$schema": DRAFT_3, "definitions": 12}, "$", "a part of it is not a schema"),
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
def test_an_invalid_schema_is_reported_with_its_path(schema, path, text):
    finding = check_schema(schema)

    assert finding is not None
    assert finding.path == path
    assert text in finding.problem


@pytest.mark.parametrize(
    ("schema", "reply", "path", "text"),
    [
        ({"type": "string"}, "null", "$", "must be string, but is null"),
        ({"type": ["string", "number"]}, "{}", "$", "string or number, but is object"),
        ({"required": ["a", "b"]}, '{"a": 1}', "$", "'b' is missing"),
        ({"additionalProperties": False}, '{"z": 1}', "$", "'z' is not allowed"),
        ({"items": {"enum": ["a"]}}, '["a", "b"]', "$[1]", "must be one of 'a', but is 'b'"),
        ({"const": 3}, "4", "$", "must be 3, but is 4"),
        ({"pattern": "^a$"}, '"b"', "$", "'b' does not match the pattern '^a$'"),
        ({"oneOf": [{"type": "null"}, {"const": 1}]}, "2", "$", "exactly one of the 2"),
        ({"minimum": 5}, "2", "$", "2 does not satisfy `minimum: 5`"),
        ({"properties": {"a b": {"minimum": 5}}}, '{"a b": 1}', "$['a b']", "minimum"),
        ({"not": {}}, "1", "$", "not"),
        ({}, "", "$", "empty"),
        ({}, "{} {}", "$", "text follows the JSON document (line 1, column 4)"),
        ({}, "```json\n{}\n```", "$", "fences"),
        ({}, "Sure! {}", "$", "text precedes the JSON document"),
        ({}, "NaN", "$", "number"),
        ({}, r'"\ud800"', "$", "lone surrogate"),
        ({}, r'{"\udfff": 1}', "$", "lone surrogate"),
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
def test_a_reply_that_violates_the_schema_is_reported(schema, reply, path, text):
    finding = check_reply(schema, reply)

    assert finding is not None
    assert finding.path == path
    assert text in finding.problem
    assert not finding.of_schema


@pytest.mark.parametrize("reply", ["{}", ' \n{"a": [1, null]}\n', '{"z": "é"}'])
def test_white_space_around_a_json_document_is_accepted(reply):
    assert check_reply({"type": "object"}, reply) is None


def test_a_keyword_is_interpreted_by_the_draft_of_the_schema():
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
def test_a_schema_that_fails_only_in_use_is_reported_as_a_schema_problem(schema):
    finding = check_reply(schema, '"hello"')

    assert finding is not None
    assert finding.of_schema


def test_long_values_are_shortened_in_the_message():
    finding = check_reply({"const": "x" * 5000}, json.dumps("y" * 5000))

    assert finding is not None
    assert len(finding.problem) < 200


def test_long_lists_of_names_are_shortened_with_a_count():
    names = [f"name{number}" for number in range(100)]

    finding = check_reply({"required": names}, "{}")

    assert finding is not None
    assert "'name7', 92 more is missing" in finding.problem


@pytest.mark.parametrize(
    ("path", "expected"),
    [([], "$"), (["a", 0, "b-c"], "$.a[0].b-c"), (["a.b"], "$['a.b']"), ([""], "$['']")],
)
def test_a_path_is_written_as_json_path(path, expected):
    assert json_path(path) == expected


def test_an_outline_has_the_draft_type_and_properties():
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}

    assert outline(schema) == {
        "draft": "2020-12",
        "type": "object",
        "properties": ["a", "b"],
        "required": ["a"],
    }
    assert outline({"$schema": DRAFT_7})["draft"] == "07"
