"""Parts decoded from OpenAI messages and encoded again."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    plain_message,
)
from cllm.wire.openai.parts import decode_message, decode_parts, encode_parts

WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)
NAMES = st.from_regex(r"[a-z]{1,12}/[a-z+.]{1,12}", fullmatch=True)
BASE64 = st.from_regex(r"[A-Za-z0-9+/]{0,24}={0,2}", fullmatch=True)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
MARKS = st.none() | st.builds(CacheMark, ttl=st.none() | st.sampled_from(["5m", "1h"]))
TAKEN = {"cache_control", "file", "function", "id", "image_url", "refusal", "text", "type"}
EXTRA = st.dictionaries(WORDS.filter(lambda name: name not in TAKEN), JSON_VALUES, max_size=2)
SHARED = {"cache": MARKS, "extra": EXTRA}

TEXTS = st.builds(Text, text=WORDS, **SHARED)
IMAGES = st.one_of(
    st.builds(Image, media_type=NAMES, data=BASE64, **SHARED),
    st.builds(Image, url=st.from_regex(r"https://[a-z]{1,9}/[a-z]{0,9}", fullmatch=True), **SHARED),
    st.builds(Image, url=st.just("https://x/y"), extra=st.just({"image_url": {"detail": "high"}})),
)
DOCUMENTS = st.one_of(
    st.builds(Document, media_type=NAMES, data=BASE64, name=st.none() | WORDS, **SHARED),
    st.builds(Document, file_id=WORDS, name=st.none() | WORDS, **SHARED),
)
UNKNOWN = st.builds(
    lambda kind, rest: Unknown(
        dialect="openai", raw=json.dumps({"type": kind, **rest}).replace(" ", "").encode()
    ),
    st.sampled_from(["input_audio", "video_url", "new"]),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(), max_size=2),
)
CALLS = st.builds(
    ToolCall,
    id=WORDS,
    name=WORDS,
    arguments=st.sampled_from(['{"city":"Bern"}', "{}", "{broken", ""]) | WORDS,
    extra=st.dictionaries(WORDS.filter(lambda name: name not in TAKEN), JSON_VALUES, max_size=2),
)
REFUSALS = st.builds(Refusal, text=WORDS, **SHARED)
USER_PARTS = st.lists(TEXTS | IMAGES | DOCUMENTS | UNKNOWN, min_size=1, max_size=5)
RESULTS = st.builds(
    ToolResult,
    call_id=WORDS,
    content=st.lists(TEXTS | IMAGES | UNKNOWN, max_size=3).map(tuple),
    extra=st.dictionaries(st.sampled_from(["name", "status"]), WORDS, max_size=1),
)


@st.composite
def assistant_parts(draw: st.DrawFn) -> list[AnyPart]:
    """What an assistant's message can say, in the order in which it says it."""
    thinking = draw(st.lists(st.builds(Thinking, text=WORDS), max_size=1))
    value = draw(st.lists(TEXTS | REFUSALS | UNKNOWN, max_size=3))
    return [*thinking, *value, *draw(st.lists(CALLS, max_size=3))]


TEXT_BLOCKS = st.text(max_size=3).map(lambda text: {"type": "text", "text": text})
CALL_FIELDS = st.text(max_size=3).map(
    lambda value: {"id": value, "type": "function", "function": {"name": value, "arguments": value}}
)


def message(role: Any = "user", **fields: Any) -> Message:
    return Message(role=role, raw=json.dumps({"role": role, **fields}).encode())


@given(USER_PARTS)
def test_user_parts_survive_encoding(parts):
    assert decode_parts(encode_parts("user", parts)) == tuple(parts)


@given(assistant_parts())
def test_assistant_parts_survive_encoding(parts):
    assert decode_parts(encode_parts("assistant", parts)) == tuple(parts)


@given(RESULTS)
def test_a_tool_result_survives_encoding(result):
    encoded = encode_parts("tool", [result])

    assert encoded.role == "tool"
    assert decode_parts(encoded) == (result,)


@given(st.lists(UNKNOWN, min_size=1, max_size=3))
def test_unknown_blocks_survive_byte_for_byte(parts):
    encoded = encode_parts("user", parts)

    assert encoded.json()["content"] == [json.loads(part.raw) for part in parts]
    assert all(part.raw in encoded.raw for part in parts)


def test_a_single_plain_text_is_a_string():
    assert encode_parts("user", [Text(text="Hello")]) == plain_message("user", "Hello")


@pytest.mark.parametrize(
    "part",
    [Text(text="Hello", cache=CacheMark()), Text(text="Hello", extra={"annotations": []})],
)
def test_a_text_with_extra_fields_is_a_block(part):
    assert isinstance(encode_parts("user", [part]).json()["content"], list)


@pytest.mark.parametrize(
    ("parts", "fields"),
    [
        ([], {"content": ""}),
        ([ToolCall(id="1", name="f", arguments="{}")], {"content": None}),
        ([Thinking(text="a"), Thinking(text="b")], {"content": "", "reasoning_content": "a\nb"}),
        ([RedactedThinking(data="x"), Text(text="Hi")], {"content": "Hi"}),
        (
            [Text(text="a", cache=CacheMark(ttl="1h"))],
            {
                "content": [
                    {
                        "type": "text",
                        "text": "a",
                        "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    }
                ]
            },
        ),
        (
            [Document(text="notes", name="n.txt"), Text(text="Read it.")],
            {"content": [{"type": "text", "text": "notes"}, {"type": "text", "text": "Read it."}]},
        ),
    ],
)
def test_parts_are_encoded_in_their_fields(parts, fields):
    encoded = encode_parts("assistant", parts).json()

    assert {name: encoded[name] for name in fields} == fields


def test_a_tool_result_among_other_parts_is_refused():
    with pytest.raises(ValueError, match="ToolResult"):
        encode_parts("user", [Text(text="Hello"), ToolResult(call_id="1")])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ()),
        ("", ()),
        ("Hello", (Text(text="Hello"),)),
        ([], ()),
        ([{"type": "text", "text": ""}], (Text(text=""),)),
        (
            [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
            (Image(media_type="image/png", data="AAAA"),),
        ),
        (
            [{"type": "image_url", "image_url": {"url": "data:text/plain,Hi"}}],
            (Image(url="data:text/plain,Hi"),),
        ),
        (
            [{"type": "image_url", "image_url": "data:image/png;base64,AAAA"}],
            (Image(media_type="image/png", data="AAAA"),),
        ),
        (
            [{"type": "file", "file": {"filename": "a.pdf", "file_id": "f-1"}}],
            (Document(name="a.pdf", file_id="f-1"),),
        ),
        (
            [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
            (Text(text="a", cache=CacheMark()),),
        ),
        (
            [{"type": "text", "text": "a", "cache_control": "odd"}],
            (Text(text="a", extra={"cache_control": "odd"}),),
        ),
    ],
)
def test_content_is_decoded_to_parts(content, expected):
    assert decode_parts(message(content=content)) == expected


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": 5},
        {"type": "text"},
        {"type": "refusal", "refusal": None},
        {"type": "image_url", "image_url": ["https://x"]},
        {"type": "image_url", "image_url": {"url": 5}},
        {"type": "file"},
        {"type": "file", "file": {"file_data": "AAAA"}},
        {"type": "file", "file": {"file_id": 5}},
        {"type": "file", "file": {"file_id": "f", "new": "x"}},
        {"type": 5},
        {"no": "type"},
        "loose text",
        5,
        None,
        ["nested"],
    ],
    ids=str,
)
def test_an_invalid_block_is_preserved(block):
    (part,) = decode_parts(message(content=[block]))

    assert isinstance(part, Unknown)
    assert json.loads(part.raw) == block
    assert encode_parts("user", [part]).json()["content"] == [block]


@pytest.mark.parametrize(
    "call",
    [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}, {"function": {}}, "no"],
)
def test_an_unknown_tool_call_is_preserved(call):
    (part,) = decode_parts(message("assistant", content=None, tool_calls=[call]))

    assert isinstance(part, Unknown)
    assert json.loads(part.raw) == call


def test_an_unknown_tool_call_is_encoded_among_the_tool_calls():
    call = {"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}
    value = message("assistant", content="Wait.", tool_calls=[call])

    assert encode_parts("assistant", decode_parts(value)).json() == value.json()


def test_the_text_of_arguments_is_preserved():
    function = {"name": "f", "arguments": '{"a" :  1.0}'}
    call = {"id": "1", "type": "function", "function": function, "index": 3}

    (part,) = decode_parts(message("assistant", content=None, tool_calls=[call]))

    assert part == ToolCall(id="1", name="f", arguments='{"a" :  1.0}', extra={"index": 3})


def test_arguments_sent_as_an_object_become_json_text():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": None}}}

    (part,) = decode_parts(message("assistant", content=None, tool_calls=[call]))

    assert isinstance(part, ToolCall)
    assert json.loads(part.arguments) == {"a": None}


def test_a_refusal_field_is_a_part():
    value = message("assistant", content=None, refusal="No.")

    assert decode_parts(value) == (Refusal(text="No."),)


def test_a_refusal_in_a_tool_result_is_an_unknown_block():
    block = {"type": "refusal", "refusal": "No."}

    (part,) = decode_parts(message("tool", tool_call_id="1", content=[block]))

    assert isinstance(part, ToolResult)
    (inner,) = part.content
    assert isinstance(inner, Unknown)
    assert json.loads(inner.raw) == block


@given(
    st.sampled_from(["user", "assistant", "tool"]),
    st.dictionaries(
        st.sampled_from(["content", "refusal", "reasoning_content", "tool_calls", "tool_call_id"]),
        JSON_VALUES,
    ),
)
def test_any_message_can_be_decoded(role, fields):
    parts = decode_parts(message(role, **fields))

    assert isinstance(parts, tuple)


USUAL = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | st.text(max_size=3) | st.lists(TEXT_BLOCKS, max_size=2),
        "refusal": st.none() | st.text(max_size=3),
        "tool_calls": st.none() | st.lists(CALL_FIELDS, max_size=2),
    },
)


@given(USUAL, st.sampled_from(["user", "assistant"]))
def test_extra_fields_are_returned_and_do_not_change_the_parts(fields, role):
    usual, nothing = decode_message(message(role, **fields))
    odd, beside = decode_message(message(role, **fields, name="ann", audio=None))

    assert usual == odd
    assert not nothing
    assert beside == {"name": "ann"}


DETAILS = [{"type": "reasoning.text", "text": "2+2"}, {"type": "reasoning.encrypted", "data": "x"}]
BLOCK = {"type": "thinking", "thinking": [{"type": "text", "text": "2"}, {"text": "+2"}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "2+2"},
        {"reasoning": "2+2"},
        {"reasoning_details": DETAILS},
        {"reasoning_content": "2+2", "reasoning": "2+2", "reasoning_details": DETAILS},
    ],
)
def test_reasoning_in_any_field_is_a_thinking_part_and_an_extra_field(fields):
    parts, beside = decode_message(message("assistant", content="4", **fields))

    assert parts == (Thinking(text="2+2"), Text(text="4"))
    assert beside == fields


def test_a_thinking_block_is_a_thinking_part_except_in_a_result():
    content = [BLOCK, {"type": "text", "text": "4"}]

    assert decode_parts(message("assistant", content=content))[0] == Thinking(text="2+2")
    (result,) = decode_parts(message("tool", tool_call_id="c", content=content))
    assert isinstance(result, ToolResult)
    assert isinstance(result.content[0], Unknown)
    assert json.loads(result.content[0].raw) == BLOCK


@pytest.mark.parametrize("thinking", ["2+2", None, 3, {"text": "2+2"}])
def test_a_thinking_block_of_another_form_is_preserved(thinking):
    block = {"type": "thinking", "thinking": thinking}
    (part,) = decode_parts(message("assistant", content=[block]))

    assert isinstance(part, Unknown)
    assert json.loads(part.raw) == block


@given(st.none() | st.text(max_size=3) | st.lists(TEXT_BLOCKS, max_size=2))
def test_extra_fields_of_a_result_are_preserved(content):
    (usual,) = decode_parts(message("tool", tool_call_id="c", content=content))
    (odd,) = decode_parts(message("tool", tool_call_id="c", content=content, name="f"))

    assert odd.extra == {"name": "f"}
    assert msgspec.structs.replace(odd, extra={}) == usual
