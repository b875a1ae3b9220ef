"""Parts of the surface generator: shapes of JSON, and text without values that differ by run."""

from pathlib import Path

import pytest
from tests.surface_generator.shapes import Shape
from tests.surface_generator.text import Normaliser


def test_a_shape_contains_paths_and_types_without_values():
    value = {"id": "a", "items": [{"n": 1, "x": None}, {"n": 2.5}], "open": True, "more": {}}

    assert Shape([value]).lines() == [
        "  id: string",
        "  items: array",
        "  items[]: object",
        "  items[].n: number",
        "  items[].x?: null",
        "  more: object",
        "  open: boolean",
    ]


def test_a_field_of_only_one_value_is_optional():
    assert Shape([{"a": 1}, {"a": "x", "b": []}]).lines() == ["  a: number | string", "  b?: array"]


def test_an_excluded_path_is_not_described():
    assert Shape([{"raw": {"x": 1}}], without=("raw",)).lines() == ["  raw: object"]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("/x/home/file", "<home>/file"),
        ("at 2026-11-15T12:00:00.123456Z", "at <time>"),
        ("2026-11-15 12:00", "<time>"),
        ("on 2026-11-15", "on <day>"),
        ("0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11", "<uuid>"),
        ("c-20261116-002650-46e8", "<automatic id>"),
        ("http://127.0.0.1:36287/v1", "http://127.0.0.1:<port>/v1"),
        ("took 0.1 s", "took <seconds> s"),
        ("a\x00b\x1b", "a\\x00b\\x1b"),
    ],
)
def test_values_that_differ_between_runs_become_placeholders(text: str, normal: str):
    assert Normaliser({"home": Path("/x/home")})(text) == normal
