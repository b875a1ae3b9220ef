import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.transfer import json_stream
from cllm.transfer.json_stream import DamagedFileError, decode_object, iter_lines, iter_objects

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\[]{}:,é\n'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='ab"\\[{', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def read(data: bytes, **options: Any) -> list[Any]:
    return [json.loads(one) for one in iter_objects(io.BytesIO(data), **options)]


@pytest.fixture(params=[1, 7, 1024])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", request.param)
    size: int = request.param
    return size


@given(
    objects=st.lists(OBJECTS, max_size=4), size=st.integers(1, 9), indent=st.sampled_from([None, 2])
)
def test_the_objects_of_an_array_are_read_one_by_one(
    objects: list[dict[str, Any]], size: int, indent: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK_BYTES", size)
        assert read(json.dumps(objects, indent=indent).encode()) == objects
        named = json.dumps({"a": [{"b": 1}], "all": objects, "z": [{}]}, indent=indent)
        assert read(named.encode(), field="all") == objects


def test_a_single_object_is_read(chunk: int) -> None:
    assert chunk
    assert read(b'\xef\xbb\xbf {"a": [{"b": "]"}]} ') == [{"a": [{"b": "]"}]}]


@pytest.mark.parametrize("end", [b"", b", ", b', {"c": "', b', {"c": [1', b', {"c": "\\"'])
def test_an_incomplete_file_yields_its_whole_objects(chunk: int, end: bytes) -> None:
    assert chunk
    objects = iter_objects(io.BytesIO(b'[{"a": 1}, {"b": "x"}' + end))
    assert [next(objects), next(objects)] == [b'{"a": 1}', b'{"b": "x"}']
    with pytest.raises(DamagedFileError, match="incomplete"):
        next(objects)


@pytest.mark.parametrize("data", [b"]", b"hello", b'[{"a": 1}]]'])
def test_a_file_that_is_not_json_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedFileError):
        read(data)


def test_an_object_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", 4)
    monkeypatch.setattr(json_stream, "MAX_OBJECT_BYTES", 10)
    with pytest.raises(DamagedFileError, match="more than 10 bytes"):
        read(b'[{"a": "' + b"x" * 50 + b'"}]')


def test_lone_surrogates_are_replaced() -> None:
    assert decode_object(b'{"a": "\\ud800x"}') == {"a": "?x"}


@pytest.mark.parametrize(
    "data", [b"[1]", b'{"a": nan}', b"{", b'{"a":' * 5000 + b"1" + b"}" * 5000]
)
def test_what_is_no_object_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedFileError):
        decode_object(data)


def test_blank_lines_are_left_out() -> None:
    assert list(iter_lines(io.BytesIO(b'\xef\xbb\xbf{"a":1}\r\n\n {"b":2}'))) == [
        b'{"a":1}',
        b'{"b":2}',
    ]


def test_a_line_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_LINE_BYTES", 10)
    with pytest.raises(DamagedFileError, match="a line has more than 10 bytes"):
        list(iter_lines(io.BytesIO(b"x" * 11)))


def test_values_that_are_not_json_are_null() -> None:
    assert decode_object(b'{"a": NaN, "b": [-Infinity]}') == {"a": None, "b": [None]}


@pytest.mark.parametrize("kind", ["[]", "{}"])
def test_a_value_can_have_some_depth(kind: str) -> None:
    opened, closed = ('{"a":', "}") if kind == "{}" else ("[", "]")

    def nest(depth: int) -> bytes:
        return f'{{"a": {opened * depth}1{closed * depth}}}'.encode()

    assert decode_object(nest(json_stream.MAX_DEPTH - 1))
    for depth in (json_stream.MAX_DEPTH, 900, 100_000):
        with pytest.raises(DamagedFileError, match="nested too deeply"):
            decode_object(nest(depth))
