"""Arguments of tool calls that arrive in pieces."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.wire.tool_arguments import ObjectScanner, is_json_object

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('"\\{}[]a ', max_size=6),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=6,
)
_SCRAPS = st.text('{}[]"\\:,a1 \n', max_size=12)
_TEXTS = st.one_of(
    st.builds(json.dumps, _VALUES),
    st.builds("".join, st.lists(st.builds(json.dumps, _VALUES) | _SCRAPS, max_size=3)),
)


@given(
    text=_TEXTS, cuts=st.lists(st.integers(0, 40), max_size=8), checked=st.sets(st.integers(0, 9))
)
def test_pieces_are_an_object_if_their_text_is(text: str, cuts: list[int], checked: set[int]):
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces: list[str] = []
    scanner = ObjectScanner(pieces)
    for number, (begin, end) in enumerate(pairwise(places)):
        pieces.append(text[begin:end])
        if number not in checked:
            assert scanner.is_object() == is_json_object("".join(pieces))

    assert scanner.is_object() == is_json_object(text)


@pytest.mark.parametrize("text", ['{"a": "}"}', '{"\\"": {"b": [1]}}', ' {"a": "\\\\"}\n', "{}"])
def test_single_characters_are_scanned(text: str):
    pieces: list[str] = []
    scanner = ObjectScanner(pieces)
    for letter in text:
        pieces.append(letter)
        assert scanner.is_object() == is_json_object("".join(pieces))

    assert scanner.is_object()
    pieces.append("x")
    assert not scanner.is_object()
