"""Parts decoded from Responses API items and encoded again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
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
)
from cllm.wire.responses.parts import decode_parts, encode_parts

WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)
NAMES = st.from_regex(r"[a-z]{1,12}/[a-z+.]{1,12}", fullmatch=True)
BASE64 = st.from_regex(r"[A-Za-z0-9+/]{0,24}={0,2}", fullmatch=True)
URLS = st.from_regex(r"https://[a-z]{1,9}/[a-z]{0,9}", fullmatch=True)
VALUES = st.booleans() | st.integers(-1000, 1000) | WORDS | st.lists(WORDS, min_size=1, max_size=2)
EXTRA = st.dictionaries(st.sampled_from(["a", "b", "prompt_cache_breakpoint"]), VALUES, max_size=2)
ANNOTATIONS = st.just({"annotations": [{"type": "file_path", "file_id": "f", "index": 0}]})
TEXTS = st.builds(Text, text=WORDS, extra=EXTRA)
IMAGES = st.one_of(
    st.builds(Image, media_type=NAMES, data=BASE64, extra=EXTRA),
    st.builds(Image, url=URLS, extra=EXTRA | st.just({"image_url": {"detail": "high"}})),
    st.builds(Image, extra=st.just({"file_id": "file-1"})),
)
DOCUMENTS = st.one_of(
    st.builds(Document, media_type=NAMES, data=BASE64, name=st.none() | WORDS, extra=EXTRA),
    st.builds(Document, file_id=WORDS, name=st.none() | WORDS, extra=EXTRA),
    st.builds(Document, url=URLS, extra=EXTRA),
)


def unknown(kinds: list[str], field: str) -> st.SearchStrategy[Unknown]:
    return st.builds(
        lambda kind, number: Unknown(
            dialect="responses",
            raw=json.dumps({"type": kind, "n": number}, separators=(",", ":")).encode(),
            field=field,
        ),
        st.sampled_from(kinds),
        st.integers(),
    )


BLOCKS = unknown(["input_audio", "new"], "content")
OTHER_ITEMS = unknown(["web_search_call", "mcp_call", "custom_tool_call", "new"], "items")
CALLS = st.builds(
    ToolCall,
    id=WORDS,
    name=WORDS,
    arguments=st.sampled_from(['{"city":"Bern"}', "{}", "{broken", ""]) | WORDS,
    extra=EXTRA,
)
THOUGHTS = st.one_of(
    st.builds(
        Thinking,
        text=WORDS,
        signature=st.none() | WORDS,
        extra=st.just({})
        | st.just({"id": "rs_1"})
        | st.just({"id": "rs_1", "status": "completed"}),
    ),
    st.builds(RedactedThinking, data=WORDS, extra=st.just({}) | st.just({"id": "rs_2"})),
)
ASSISTANT = st.lists(
    st.one_of(
        st.builds(Text, text=WORDS, extra=st.just({}) | ANNOTATIONS),
        st.builds(Refusal, text=WORDS, extra=EXTRA),
        BLOCKS,
        CALLS,
        THOUGHTS,
        OTHER_ITEMS,
    ),
    max_size=6,
)
USER = st.lists(TEXTS | IMAGES | DOCUMENTS | BLOCKS, min_size=1, max_size=5)
RESULTS = st.builds(
    ToolResult,
    call_id=WORDS,
    content=st.lists(TEXTS | IMAGES | DOCUMENTS | BLOCKS, max_size=3).map(tuple),
    extra=EXTRA,
)


def message(role: Any, fields: Any) -> Message:
    return Message(role=role, raw=json.dumps(fields).encode(), dialect="responses")


def of_items(*items: Any, role: Any = "assistant") -> Message:
    return message(role, {"role": role, "content": list(items)})


@given(ASSISTANT)
def test_assistant_parts_survive_encoding(parts):
    assert list(decode_parts(encode_parts("assistant", parts))) == parts


@given(USER)
def test_user_parts_survive_encoding(parts):
    assert list(decode_parts(encode_parts("user", parts))) == parts


@given(st.lists(RESULTS, min_size=1, max_size=3))
def test_tool_results_survive_encoding(results):
    assert list(decode_parts(encode_parts("tool", results))) == results


@given(ASSISTANT)
def test_equal_parts_are_encoded_equally(parts):
    assert encode_parts("assistant", parts).raw == encode_parts("assistant", parts).raw


def test_parts_keep_the_order_of_their_items():
    parts = decode_parts(
        of_items(
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "X"},
            {"type": "message", "id": "m", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []},
                         {"type": "refusal", "refusal": "No"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f",
             "arguments": "{}", "status": "completed"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        )
    )  # fmt: skip

    assert parts[:4] == (
        RedactedThinking(data="X", extra={"id": "rs_1"}),
        Text(text="Hi"),
        Refusal(text="No"),
        ToolCall(id="call_1", name="f", arguments="{}"),
    )
    assert isinstance(parts[4], Unknown)
    assert json.loads(parts[4].raw)["type"] == "web_search_call"


def test_the_id_of_a_call_is_its_call_id_not_its_item_id():
    call = {"type": "function_call", "id": "fc_9", "call_id": "call_9", "name": "f"}
    output = {"type": "function_call_output", "id": "x", "call_id": "call_9", "output": "8°"}

    (call_part,) = decode_parts(of_items(call | {"arguments": "{}"}))
    (answered,) = decode_parts(of_items(output, role="tool"))

    assert isinstance(call_part, ToolCall)
    assert isinstance(answered, ToolResult)
    assert call_part.id == answered.call_id == "call_9"
    assert answered.content == (Text(text="8°"),)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"summary": [{"type": "summary_text", "text": "a"}]}, "a"),
        ({"summary": [{"type": "summary_text", "text": t} for t in "ab"]}, "a\n\nb"),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]}, "raw"),
        ({"summary": []}, ""),
    ],
)
def test_reasoning_items_survive_encoding(item, expected):
    item = {"type": "reasoning", "id": "rs_1", **item}

    (part,) = decode_parts(of_items(item))

    assert isinstance(part, Thinking)
    assert part.text == expected
    assert encode_parts("assistant", [part]).json()["content"] == [item]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "input_text", "text": 5},
        {"type": "input_image"},
        {"type": "input_image", "image_url": {"url": "x"}},
        {"type": "input_file", "file_data": "no data URL"},
        {"type": "input_file", "file_id": 7},
        {"type": "refusal"},
        {"type": ["list"]},
        {"no": "type"},
        "text",
        None,
    ],
)
def test_an_invalid_block_is_preserved(block):
    user_message = message("user", {"role": "user", "content": [block]})

    (part,) = decode_parts(user_message)

    assert isinstance(part, Unknown)
    assert encode_parts("user", [part]).json()["content"] == [block]


@pytest.mark.parametrize("item", [None, 5, "text", {}, {"type": 7}, {"type": "function_call"}])
def test_an_unknown_item_is_preserved(item):
    (part,) = decode_parts(of_items(item))

    assert isinstance(part, Unknown)
    assert encode_parts("assistant", [part]).json()["content"] == [item]


def test_the_text_of_an_answer_has_no_thinking():
    parts: list[AnyPart] = [
        Thinking(text="secret thought", signature="s", extra={"content": [{"text": "inner"}]}),
        Text(text="Hello"),
        ToolCall(id="c", name="f", arguments='{"text":"no"}'),
        Text(text="again", extra={"annotations": [{"type": "x"}]}),
    ]

    assert encode_parts("assistant", parts).text == "Hello\nagain"


def test_a_user_message_of_two_items_is_refused():
    with pytest.raises(ValueError, match="one item"):
        encode_parts("user", [Text(text="a"), ToolResult(call_id="c")])
