"""The child process that holds replies against a schema: real, and stopped when it must be."""

import os

import pytest

from cllm.core.errors import ReplySchemaError, SchemaError
from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, StopReason
from cllm.schemas.checker import SchemaChecker
from cllm.schemas.loader import Schema


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


def test_one_child_checks_any_number_of_replies(open_checker):
    checker = open_checker({"type": "integer"})

    checker.accept(reply("1"))
    with pytest.raises(ReplySchemaError) as caught:
        checker.accept(reply('"one"'))
    checker.accept(reply(" 2\n"))

    assert caught.value.place == "$"
    assert "is string" in caught.value.problem


def test_a_schema_that_is_none_is_known_before_anything_is_asked(open_checker):
    with pytest.raises(SchemaError) as caught:
        open_checker({"type": "text"})

    assert caught.value.source == "x.json"
    assert caught.value.place == "$.type"


def test_a_pattern_without_end_is_stopped_and_the_child_with_it(open_checker):
    checker = open_checker({"pattern": "^(a+)+$"}, seconds=1.0)

    with pytest.raises(SchemaError, match="more than 1 s"):
        checker.accept(reply('"' + "a" * 60 + '!"'))

    assert checker._child.wait(10) != 0
    with pytest.raises(SchemaError):
        checker.accept(reply('"a"'))


def test_a_child_that_is_gone_fails_the_check(open_checker):
    checker = open_checker({})
    checker._child.kill()
    checker._child.wait()

    with pytest.raises(SchemaError, match="failed"):
        checker.accept(reply("1"))


def test_a_large_reply_goes_through_the_pipe(open_checker):
    checker = open_checker({"type": "array", "items": {"type": "integer"}})

    checker.accept(reply("[" + "1," * 100_000 + "1]"))


def test_line_breaks_in_a_reply_do_not_end_it(open_checker):
    checker = open_checker({"type": "object"})

    checker.accept(reply('{\n\n"a": "\u2028"\r\n}'))


def test_a_reply_that_was_cut_is_told_from_one_that_is_wrong(open_checker):
    checker = open_checker({"type": "object"})

    with pytest.raises(ReplySchemaError, match="--max-tokens"):
        checker.accept(reply('{"a": ', stop="length"))


def test_closing_ends_the_child(open_checker):
    with open_checker({}) as checker:
        child = checker._child
        assert child.poll() is None

    assert child.poll() is not None
