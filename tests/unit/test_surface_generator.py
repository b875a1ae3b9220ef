"""The parts that the surface is made with: shapes of JSON, text without what differs by run."""

from pathlib import Path

import pytest
from tests.surface_generator.shapes import Shape
from tests.surface_generator.text import Normaliser


def test_a_shape_has_the_paths_and_types_and_no_values():
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


def test_a_field_that_one_of_two_values_has_is_optional():
    assert Shape([{"a": 1}, {"a": "x", "b": []}]).lines() == ["  a: number | string", "  b?: array"]


def test_nothing_is_looked_at_below_a_path_that_is_left_out():
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
def test_what_differs_from_run_to_run_becomes_a_placeholder(text: str, normal: str):
    assert Normaliser({"home": Path("/x/home")})(text) == normal
