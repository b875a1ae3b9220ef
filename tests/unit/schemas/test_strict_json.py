"""Strict JSON: the accepted values, and the problem of each other text."""

import pytest

from cllm.schemas.strict_json import MAX_DEPTH, NotJsonError, decode, shape_problem


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("text", "value"),
    [("{}", {}), (' [1, null, "é"]\n', [1, None, "é"]), ("-0.5", -0.5), ('"😀"', "😀")],
)
def test_json_is_decoded(text, value):
    assert decode(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("  \n", "it is empty"),
        ("```json\n{}\n```", "fences"),
        ("{} x", "text follows the JSON document (line 1, column 4)"),
        ("Sure! {}", "text precedes the JSON document"),
        ("{'a': 1}", "it is not JSON (line 1, column 2)"),
        ("Infinity", "number that JSON does not allow"),
        ("-1e999", "number that JSON does not allow"),
        ("9" * 5000, "too long"),
        (r'{"\ud800": 1}', "lone surrogate"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_other_text_is_refused_with_its_problem(text, problem):
    with pytest.raises(NotJsonError) as caught:
        decode(text)
    assert problem in str(caught.value)


def test_nesting_is_limited():
    assert decode(nested(MAX_DEPTH)) is not None
    with pytest.raises(NotJsonError, match=f"more than {MAX_DEPTH}"):
        decode(nested(MAX_DEPTH + 2))


@pytest.mark.parametrize("value", [{"a": [1, True, None]}, [], "x", 1.5])
def test_a_valid_value_has_no_problem(value):
    assert shape_problem(value) is None


def test_a_value_that_is_not_finite_is_a_problem():
    assert shape_problem({"a": [float("nan")]}) == "it has a number that JSON does not allow"
