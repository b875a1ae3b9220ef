"""The outline that `--validate-schema` prints."""

import pytest

from cllm.cli.schema import MAX_NAMES, _outline_text
from cllm.schemas.checker import SchemaOutline


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"type": None}, "any JSON"),
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string or null"),
        (
            {"type": "object", "properties": ["a", "b"], "required": ["b"]},
            "object with a, b (required)",
        ),
    ],
)
def test_the_outline_of_a_schema(fields, expected):
    defaults = {"draft": "2020-12", "properties": [], "required": []}

    assert _outline_text(SchemaOutline(**{**defaults, **fields})) == expected


def test_many_properties_are_counted():
    names = [f"p{number}" for number in range(MAX_NAMES + 2)]
    outline = SchemaOutline(draft="2020-12", type="object", properties=names, required=[])

    assert _outline_text(outline).endswith(f"p{MAX_NAMES - 1} and 2 more")
