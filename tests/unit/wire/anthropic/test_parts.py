"""Anthropic messages, decoded to parts and encoded."""

import contextlib
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
)
from cllm.wire.anthropic.parts import decode_block, decode_message, decode_parts, encode_block
from cllm.wire.errors import MalformedError, NotExpressibleError

WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
KNOWN_FIELDS = {
    "cache_control",
    "content",
    "data",
    "id",
    "input",
    "is_error",
    "name",
    "signature",
    "source",
    "text",
    "thinking",
    "title",
    "tool_use_id",
    "type",
}
EXTRA = st.dictionaries(
    (WORDS | st.sampled_from(["citations", "caller", "context", "toolset_name"])).filter(
        lambda name: name not in KNOWN_FIELDS
    ),
    JSON_VALUES,
    max_size=2,
)
MARKS = st.none() | st.builds(CacheMark, ttl=st.none() | st.sampled_from(["5m", "1h"]))
SHARED: dict[str, Any] = {"cache": MARKS, "extra": EXTRA}
TEXTS = st.builds(Text, text=WORDS, **SHARED)
IMAGES = st.builds(Image, media_type=WORDS, data=WORDS, **SHARED) | st.builds(
    Image, url=WORDS, **SHARED
)
DOCUMENTS = st.one_of(
    st.builds(Document, media_type=WORDS, data=WORDS, name=st.none() | WORDS, **SHARED),
    st.builds(Document, media_type=st.just("text/plain"), text=WORDS, **SHARED),
    st.builds(Document, url=WORDS, **SHARED),
    st.builds(Document, file_id=WORDS, name=st.none() | WORDS, **SHARED),
)
UNKNOWN = st.builds(
    lambda kind, rest: Unknown(
        dialect="anthropic", raw=msgspec.json.encode({"type": kind, **rest})
    ),
    st.sampled_from(["server_tool_use", "web_search_tool_result", "search_result", "new"]),
    EXTRA,
)
CALLS = st.builds(
    ToolCall,
    id=WORDS,
    name=WORDS,
    arguments=st.dictionaries(WORDS, JSON_VALUES, max_size=3).map(json.dumps),
    **SHARED,
)
RESULTS = st.builds(
    ToolResult,
    call_id=WORDS,
    content=st.lists(TEXTS | IMAGES | DOCUMENTS | UNKNOWN, max_size=3).map(tuple),
    is_error=st.booleans(),
    **SHARED,
)
THINKING = st.builds(Thinking, text=WORDS, signature=st.none() | WORDS, extra=EXTRA)
REDACTED = st.builds(RedactedThinking, data=WORDS, extra=EXTRA)
PARTS = st.one_of(TEXTS, IMAGES, DOCUMENTS, CALLS, RESULTS, THINKING, REDACTED, UNKNOWN)


def message(content: Any) -> Message:
    raw = msgspec.json.encode({"role": "user", "content": content})
    return Message(role="user", raw=raw, dialect="anthropic")


def only(block: Any) -> AnyPart:
    (part,) = decode_parts(message([block]))
    return part


@given(st.lists(PARTS, max_size=4))
def test_parts_are_equal_after_encoding_and_decoding(parts):
    assert decode_parts(message([encode_block(part) for part in parts])) == tuple(parts)


@given(PARTS)
def test_a_single_block_is_decoded_as_in_a_message(part):
    assert decode_block(msgspec.json.encode(encode_block(part))) == part


@given(JSON_VALUES | st.lists(st.dictionaries(st.sampled_from(sorted(KNOWN_FIELDS)), JSON_VALUES)))
def test_any_content_gives_parts_or_malformed(content):
    try:
        parts = decode_parts(message(content))
    except MalformedError:
        return
    if isinstance(content, list):
        assert len(parts) == len(content)


KINDS = ["text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"]


@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(sorted(KNOWN_FIELDS - {"type"})), JSON_VALUES, max_size=5),
)
def test_a_known_block_keeps_unknown_fields(kind, fields):
    block = {"type": kind, **fields}
    part = only(block)
    if isinstance(part, Unknown):
        assert json.loads(part.raw) == block


@given(st.binary(max_size=40))
def test_bytes_that_are_not_a_message_are_malformed(raw):
    with contextlib.suppress(MalformedError):
        decode_parts(Message(role="user", raw=raw, dialect="anthropic"))


def test_deep_nesting_is_malformed():
    raw = b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(MalformedError):
        decode_parts(Message(role="user", raw=raw, dialect="anthropic"))
    with pytest.raises(MalformedError):
        decode_block(b"{")


def test_string_content_is_one_text_part():
    assert decode_parts(message("hi")) == (Text(text="hi"),)
    assert decode_parts(message("")) == ()
    assert decode_parts(message(None)) == ()
    assert decode_parts(message([])) == ()


def test_citations_stay_with_their_text():
    citation = {"type": "char_location", "cited_text": "x", "document_index": 0}
    part = only({"type": "text", "text": "a", "citations": [citation]})
    assert part == Text(text="a", extra={"citations": [citation]})


def test_cache_control_keeps_its_ttl():
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert only({"type": "text", "text": "a", "cache_control": mark}).cache == CacheMark(ttl="1h")
    odd = {"type": "text", "text": "a", "cache_control": {"type": "new", "x": 1}}
    part = only(odd)
    assert part.cache is None
    assert encode_block(part) == odd


def test_images_with_every_source_are_preserved():
    data = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert only({"type": "image", "source": data}) == Image(media_type="image/png", data="aGk=")
    url = {"type": "url", "url": "https://x/y.png"}
    assert only({"type": "image", "source": url}) == Image(url="https://x/y.png")
    file = {"type": "image", "source": {"type": "file", "file_id": "f1"}}
    assert json.loads(encode(only(file))) == file


def encode(part: AnyPart) -> bytes:
    return msgspec.json.encode(encode_block(part))


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
        {"type": "text", "media_type": "text/plain", "data": "hello"},
        {"type": "url", "url": "https://x/y.pdf"},
        {"type": "file", "file_id": "f1"},
        {"type": "content", "content": [{"type": "text", "text": "hello"}]},
    ],
)
def test_documents_with_every_source_are_preserved(source):
    citations = {"enabled": True}
    block = {"type": "document", "source": source, "title": "T", "citations": citations}
    assert json.loads(encode(only(block))) == block


def test_a_document_of_blocks_becomes_text_in_other_protocols():
    content = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    source = {"type": "content", "content": content}
    part = only({"type": "document", "source": source})
    assert part == Document(media_type="text/plain", text="One.\nTwo.", extra={"source": source})


@pytest.mark.parametrize("content", ["hi", [{"type": "text", "text": "hi"}]])
def test_other_fields_of_a_message_are_returned(content):
    fields = {"role": "user", "content": content, "odd": {"a": 1}, "none": None}
    raw = json.dumps(fields).encode()
    parts, beside = decode_message(Message(role="user", raw=raw, dialect="anthropic"))
    assert parts == (Text(text="hi"),)
    assert beside == {"odd": {"a": 1}}


def test_the_arguments_of_a_call_keep_their_bytes():
    raw = (
        b'{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f",'
        b'"input":{"b": 1.0,  "a":1e2,"u":"\\u00e9"}}]}'
    )
    (call,) = decode_parts(Message(role="assistant", raw=raw, dialect="anthropic"))
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"b": 1.0,  "a":1e2,"u":"\\u00e9"}'
    assert call.arguments.encode() in encode(call)
    extra = raw.replace(b'"name":"f"', b'"name":"f","new":1')
    (call,) = decode_parts(Message(role="assistant", raw=extra, dialect="anthropic"))
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"b": 1.0,  "a":1e2,"u":"\\u00e9"}'
    assert call.extra == {"new": 1}


def test_tool_results_of_every_form_are_preserved():
    base = {"type": "tool_result", "tool_use_id": "t1"}
    assert only(base) == ToolResult(call_id="t1")
    assert only({**base, "content": ""}) == ToolResult(call_id="t1")
    text = ToolResult(call_id="t1", content=(Text(text="x"),), is_error=True)
    assert only({**base, "content": "x", "is_error": True}) == text
    assert only({**base, "content": [{"type": "text", "text": "x"}], "is_error": True}) == text
    assert only({**base, "content": "x", "new": 1}).extra == {"new": 1}
    assert isinstance(only({**base, "content": 3}), Unknown)
    image = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    reference = {"type": "tool_reference", "tool_name": "f"}
    result = only({**base, "content": [image, reference]})
    assert isinstance(result, ToolResult)
    assert result.content[0] == Image(url="https://x")
    assert isinstance(result.content[1], Unknown)
    nested = only({**base, "content": [{"type": "thinking", "thinking": "x"}]})
    assert isinstance(nested, ToolResult)
    assert isinstance(nested.content[0], Unknown)


def test_redacted_thinking_round_trips_with_its_data():
    block = {"type": "redacted_thinking", "data": "EmwKAhgB"}
    assert only(block) == RedactedThinking(data="EmwKAhgB")
    assert encode_block(only(block)) == block


def test_thinking_keeps_its_signature():
    block = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    assert only(block) == Thinking(text="hm", signature="sig==")
    assert encode_block(only(block)) == block
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    assert encode_block(only(marked)) == marked


@pytest.mark.parametrize("kind", ["server_tool_use", "web_search_tool_result", "brand_new"])
def test_an_unknown_block_is_preserved(kind):
    block = {"type": kind, "id": "srv_1", "content": [{"z": 1, "a": None}]}
    part = only(block)
    assert part == Unknown(dialect="anthropic", raw=msgspec.json.encode(block))
    assert encode(part) == msgspec.json.encode(block)


def test_a_refusal_is_encoded_as_text():
    assert encode_block(Refusal(text="no")) == {"type": "text", "text": "no"}


@pytest.mark.parametrize(
    "part",
    [
        Image(),
        Document(),
        Unknown(dialect="openai", raw=b"{}"),
    ],
)
def test_a_part_that_anthropic_cannot_express_is_an_error(part):
    with pytest.raises(NotExpressibleError):
        encode_block(part)


def test_arguments_that_are_not_json_are_wrapped_and_unwrapped():
    call = ToolCall(id="a", name="f", arguments='{"x":"a')
    block = encode_block(call)

    assert json.loads(msgspec.json.encode(block))["input"] == {"INVALID_JSON": '{"x":"a'}
    assert decode_block(msgspec.json.encode(block)) == call


@pytest.mark.parametrize("arguments", ['{"INVALID_JSON":"{}"}', '{"INVALID_JSON":"{","b":1}'])
def test_a_tool_parameter_can_have_the_name_of_the_wrapper(arguments):
    raw = b'{"type":"tool_use","id":"a","name":"f","input":%b}' % arguments.encode()

    assert decode_block(raw) == ToolCall(id="a", name="f", arguments=arguments)


def test_a_call_without_arguments_has_an_empty_object():
    assert b'"input":{}' in encode(ToolCall(id="a", name="f", arguments=""))
