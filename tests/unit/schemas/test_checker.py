"""Checks in a real child process, its limits, and the `response_format` of a request."""

import os

import pytest

from cllm.core.errors import ReplySchemaError, SchemaError
from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, StopReason
from cllm.schemas.checker import SchemaChecker, fits_strict_mode, response_format
from cllm.schemas.loader import Schema

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture
def open_checker():
    opened = []

    def start(content, seconds=20.0):
        checker = SchemaChecker(
            Schema(content=content, source="x.json"), os.environ, seconds=seconds
        )
        opened.append(checker)
        return checker

    yield start
    for checker in opened:
        checker.close()


def reply(text: str, stop: StopReason = "end") -> ReplyFinished:
    return ReplyFinished(message=plain_message("assistant", text), stop_reason=stop)


def test_one_child_process_checks_several_replies(open_checker):
    checker = open_checker({"type": "integer"})

    checker.accept(reply("1"))
    with pytest.raises(ReplySchemaError) as caught:
        checker.accept(reply('"one"'))
    checker.accept(reply(" 2\n"))

    assert caught.value.place == "$"
    assert "is string" in caught.value.problem


def test_an_invalid_schema_is_refused_at_the_start(open_checker):
    with pytest.raises(SchemaError) as caught:
        open_checker({"type": "text"})

    assert caught.value.source == "x.json"
    assert caught.value.place == "$.type"


def test_a_pattern_that_runs_too_long_ends_the_child_process(open_checker):
    checker = open_checker({"pattern": "^(a+)+$"}, seconds=1.0)

    with pytest.raises(SchemaError, match="more than 1 s"):
        checker.accept(reply('"' + "a" * 60 + '!"'))

    assert checker._child.wait(10) != 0
    with pytest.raises(SchemaError):
        checker.accept(reply('"a"'))


def test_a_check_fails_if_the_child_process_ended(open_checker):
    checker = open_checker({})
    checker._child.kill()
    checker._child.wait()

    with pytest.raises(SchemaError, match="failed"):
        checker.accept(reply("1"))


def test_a_large_reply_is_checked(open_checker):
    checker = open_checker({"type": "array", "items": {"type": "integer"}})

    checker.accept(reply("[" + "1," * 100_000 + "1]"))


def test_line_breaks_in_a_reply_do_not_end_it(open_checker):
    checker = open_checker({"type": "object"})

    checker.accept(reply('{\n\n"a": "\u2028"\r\n}'))


def test_a_truncated_reply_is_reported_with_the_token_limit(open_checker):
    checker = open_checker({"type": "object"})

    with pytest.raises(ReplySchemaError, match="--max-tokens"):
        checker.accept(reply('{"a": ', stop="length"))


def test_close_ends_the_child_process(open_checker):
    with open_checker({}) as checker:
        child = checker._child
        assert child.poll() is None

    assert child.poll() is not None


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
def test_the_name_is_derived_from_the_title(title, name):
    assert response_format({"title": title})["json_schema"]["name"] == name


def test_the_schema_is_sent_unchanged():
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
def test_a_schema_that_strict_mode_accepts_is_sent_as_strict(schema):
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


def test_strict_mode_refuses_a_boolean_schema():
    assert not fits_strict_mode(True)
