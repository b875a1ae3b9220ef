"""Errors that report a prompt above the context window, and the texts of msgspec."""

import json
from typing import Annotated, Literal

import msgspec
import pytest

from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.bedrock import response_decoder as bedrock_decoder
from cllm.wire.errors import describe_problem, is_context_overflow

TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"


@pytest.mark.parametrize(
    "message",
    [
        TOO_LONG,
        "The request has 208310 tokens > 200000.",
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, try again",
    ],
)
def test_counts_above_the_context_window_are_recognised(message):
    assert is_context_overflow(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "prompt is too long",
        "max_tokens: 64000 > 8192, which is the maximum for this model",
        "messages.0: at least 1 tokens > 5 wanted",
        f"{'9' * 5000} tokens > 200000 maximum",
        "1 + 1 > 3",
    ],
    ids=["nothing", "only words", "a limit on the answer", "not more", "no count", "a sum"],
)
def test_other_errors_are_not_a_context_overflow(message):
    assert not is_context_overflow(message)


def test_only_an_invalid_anthropic_request_can_be_too_long():
    def too_long(kind: str) -> bool:
        error = {"type": kind, "message": TOO_LONG}
        return anthropic_decoder.decode_error(json.dumps({"error": error}).encode()).too_long

    assert too_long("invalid_request_error")
    assert not too_long("rate_limit_error")


def test_only_an_invalid_bedrock_request_can_be_too_long():
    body = json.dumps({"message": f"The model returned: {TOO_LONG}"}).encode()

    assert bedrock_decoder.decode_error(body, kind="ValidationException").too_long
    assert not bedrock_decoder.decode_error(body, kind="ThrottlingException").too_long


def test_the_error_code_of_anthropic_is_preserved():
    details = {"error_code": "storage_quota_exceeded"}
    error = {"type": "invalid_request_error", "message": "No.", "details": details}

    assert anthropic_decoder.decode_error(json.dumps({"error": error}).encode()).code == (
        "storage_quota_exceeded"
    )


class Body(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    kind: Literal["a", "b"] = "a"
    tags: Annotated[list[str], msgspec.Meta(max_length=1)] = []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "'name' is required"),
        ({"name": "x", "other": 1}, "unknown field 'other'"),
        ({"name": 3}, "must be a string"),
        ({"name": "x", "size": "3"}, "must be an integer or null"),
        ({"name": "x", "size": 0}, "must be an integer >= 1"),
        ({"name": "x", "kind": "c"}, "'c' is not one of the allowed values"),
        ({"name": "x", "tags": ["a", "b"]}, "must be an array of length <= 1"),
    ],
)
def test_a_problem_of_msgspec_is_described_in_plain_words(fields, problem):
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(fields, Body)

    assert describe_problem(str(raised.value).partition(" - at `$")[0]) == problem


def test_another_problem_is_unchanged():
    assert (
        describe_problem("Invalid RFC3339 encoded datetime") == "Invalid RFC3339 encoded datetime"
    )
