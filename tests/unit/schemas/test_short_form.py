"""The short form of a JSON schema."""

import pytest

from cllm.core.errors import UsageError
from cllm.schemas.short_form import parse_short_schema


def test_every_type():
    schema = parse_short_schema("a, b str, c int, d float, e bool, f int[]")
    assert schema["properties"] == {
        "a": {"type": "string"},
        "b": {"type": "string"},
        "c": {"type": "integer"},
        "d": {"type": "number"},
        "e": {"type": "boolean"},
        "f": {"type": "array", "items": {"type": "integer"}},
    }
    assert schema["required"] == list("abcdef")
    assert schema["additionalProperties"] is False


def test_lines_can_have_descriptions_with_commas():
    schema = parse_short_schema("\nname: the name, as written\nage int: in years,\n")
    assert schema["properties"] == {
        "name": {"type": "string", "description": "the name, as written"},
        "age": {"type": "integer", "description": "in years"},
    }


@pytest.mark.parametrize("text", ["", " , ", "a b c", "a, a", "a int[", "ä", "a: b, c d e"])
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError):
        parse_short_schema(text)
