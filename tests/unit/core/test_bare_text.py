"""Messages that are a role and a text are told from all others by their bytes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.bare_text import is_bare_text

HOSTILE = st.text(alphabet='\\"{}:,[] ab\nné\u2028', max_size=12)
VALUES = st.recursive(
    HOSTILE | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(HOSTILE | st.just("content"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(role=st.sampled_from(["user", "assistant"]), text=HOSTILE | st.text())
def test_a_role_and_a_text_are_known_unless_a_backslash_ends_the_text(role: str, text: str):
    raw = msgspec.json.encode({"role": role, "content": text})
    assert is_bare_text(raw) or "\\" in text


@given(role=st.sampled_from(["user", "assistant"]), text=HOSTILE)
def test_they_are_known_as_most_programs_write_them_too(role: str, text: str):
    raw = json.dumps({"role": role, "content": text}).encode()
    assert is_bare_text(raw) or "\\" in text


@given(
    role=st.sampled_from(["user", "assistant"]),
    content=VALUES,
    beside=st.dictionaries(HOSTILE | st.sampled_from(["name", "tool_calls"]), VALUES, max_size=3),
)
def test_nothing_else_is_taken_for_one(role: str, content: object, beside: dict[str, object]):
    fields = {"role": role, "content": content} | beside
    for raw in (msgspec.json.encode(fields), json.dumps(fields).encode()):
        if is_bare_text(raw):
            assert fields.keys() == {"role", "content"}
            assert isinstance(content, str)


@pytest.mark.parametrize(
    "raw",
    [
        rb'{"role":"user","content":"\\","x":"\\"}',
        rb'{"role":"user","content":"\\","\\":1}',
        rb'{"role":"user","content":"\\","\\":"\\"}',
        rb'{"role":"user","content":"a","refusal":"b"}',
        rb'{"role": "user", "content": "a", "refusal": "b"}',
        rb'{"role": "user", "content": "\\", "\\": "\\"}',
        rb'{"role":"user","content":"a","name":null}',
        rb'{"role":"user","content":null}',
        rb'{"role":"user","content":["a"]}',
        rb'{"role":"tool","content":"a"}',
        rb'{"content":"a","role":"user"}',
        b"",
    ],
)
def test_these_are_none(raw: bytes):
    assert not is_bare_text(raw)
