"""Converse messages, decoded to parts and encoded."""

import base64
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
from cllm.wire.bedrock.parts import decode_parts, encode_blocks
from cllm.wire.errors import MalformedError, NotExpressibleError
from cllm.wire.media import DOCUMENT_FORMATS, IMAGE_FORMATS

WORDS = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
BASE64 = st.binary(min_size=1, max_size=12).map(base64.b64encode)
DATA = BASE64.map(bytes.decode)
MARKS = st.none() | st.builds(CacheMark, ttl=st.none() | st.sampled_from(["5m", "1h"]))
SHARED = {"cache": MARKS}
S3 = st.just("s3://bucket/key")
OWNER = st.sampled_from([{}, {"bucketOwner": "123456789012"}])
TEXTS = st.builds(Text, text=WORDS, **SHARED)
CITED = st.builds(
    lambda text, cache: Text(
        text=text,
        cache=cache,
        extra={"citationsContent": {"content": [{"text": text}], "citations": [{"title": "t"}]}},
    ),
    WORDS,
    MARKS,
)
IMAGES = st.builds(
    Image, media_type=st.sampled_from(list(IMAGE_FORMATS)), data=DATA, **SHARED
) | st.builds(Image, media_type=st.sampled_from(list(IMAGE_FORMATS)), url=S3, extra=OWNER, **SHARED)
TYPES = st.sampled_from(list(DOCUMENT_FORMATS))
NAMES = WORDS.filter(bool)
CONTENT = st.lists(WORDS, min_size=1, max_size=3).map(
    lambda texts: {
        "text": "\n".join(texts),
        "extra": {"source": {"content": [{"text": text} for text in texts]}},
    }
)
DOCUMENTS = st.one_of(
    st.builds(
        Document,
        media_type=TYPES,
        data=DATA,
        name=NAMES,
        extra=st.sampled_from([{}, {"citations": {"enabled": True}}, {"context": "c"}]),
        **SHARED,
    ),
    st.builds(Document, media_type=st.none() | TYPES, text=WORDS, name=NAMES, **SHARED),
    st.builds(Document, media_type=TYPES, url=S3, name=NAMES, extra=OWNER, **SHARED),
    st.builds(
        lambda more, name: Document(media_type="text/plain", name=name, **more), CONTENT, NAMES
    ),
)
UNKNOWN = st.sampled_from(
    [
        Unknown(dialect="bedrock", raw=b'{"video":{"format":"mp4","source":{"bytes":"AA=="}}}'),
        Unknown(dialect="bedrock", raw=b'{"guardContent":{"text":{"text":"x"}}}'),
        Unknown(dialect="bedrock", raw=b'{"brandNew":[1,2]}'),
        Unknown(dialect="bedrock", raw=b"7"),
    ]
)
CALLS = st.builds(
    ToolCall,
    id=WORDS,
    name=WORDS,
    arguments=st.sampled_from(['{"city": "Bern", "n":1.50}', "{}", "{broken", "[1]"]),
    extra=st.sampled_from([{}, {"type": "server_tool_use"}]),
    **SHARED,
)
JSONS = st.just(Text(text='{"a": [1, 2.0]}', extra={"json": True}))
RESULTS = st.builds(
    ToolResult,
    call_id=WORDS,
    content=st.lists(
        st.builds(Text, text=WORDS)
        | JSONS
        | st.builds(Image, media_type=st.just("image/png"), data=DATA)
        | UNKNOWN.filter(lambda part: part.raw.startswith(b"{")),
        max_size=3,
    ).map(tuple),
    is_error=st.booleans(),
    **SHARED,
)
THOUGHTS = st.builds(Thinking, text=WORDS, signature=st.none() | WORDS) | st.builds(
    RedactedThinking, data=DATA
)
PARTS = st.lists(
    st.one_of(TEXTS, CITED, IMAGES, DOCUMENTS, UNKNOWN, CALLS, RESULTS, THOUGHTS), max_size=6
)


def message(*blocks: Any) -> Message:
    raw = msgspec.json.encode({"role": "user", "content": list(blocks)})
    return Message(role="user", dialect="bedrock", raw=raw)


def encode_and_decode(*parts: AnyPart) -> tuple[AnyPart, ...]:
    return decode_parts(message(*(block for part in parts for block in encode_blocks(part))))


@given(PARTS)
def test_parts_are_equal_after_encoding_and_decoding(parts):
    assert encode_and_decode(*parts) == tuple(parts)


@given(
    st.lists(
        st.sampled_from(
            [
                "text",
                "image",
                "toolUse",
                "toolResult",
                "document",
                "reasoningContent",
                "cachePoint",
                "citationsContent",
                "json",
                "source",
                "bytes",
                "format",
                "content",
                "status",
                "input",
                "type",
                "ttl",
                "name",
                "toolUseId",
            ]
        ),
        max_size=4,
    ),
    st.data(),
)
def test_a_block_of_any_content_is_decoded(names, data):
    values = st.recursive(
        st.none() | st.integers() | WORDS,
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(names or ["x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
    block = data.draw(values)
    (*_, part) = decode_parts(message(block))
    assert part is not None


@given(PARTS, st.integers(0, 400), st.binary(max_size=2))
def test_a_damaged_message_raises_only_malformed(parts, place, noise):
    raw = message(*(block for part in parts for block in encode_blocks(part))).raw
    broken = raw[:place] + noise + raw[place + 1 :]
    with contextlib.suppress(MalformedError):
        decode_parts(Message(role="user", dialect="bedrock", raw=broken))


def test_deep_nesting_is_malformed():
    raw = b'{"role":"user","content":[{"toolUse":{"toolUseId":"a","name":"n","x":' + b"[" * 9000
    with pytest.raises(MalformedError):
        decode_parts(Message(role="user", dialect="bedrock", raw=raw))


def test_the_arguments_of_a_call_keep_their_bytes():
    block = b'{"toolUse":{"toolUseId":"a","name":"n","input":{"b": 1.0,  "a":2}}}'
    raw = b'{"role":"assistant","content":[' + block + b"]}"
    (call,) = decode_parts(Message(role="assistant", dialect="bedrock", raw=raw))
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"b": 1.0,  "a":2}'


def test_reasoning_text_and_signature_are_decoded():
    block = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}
    hidden = {"reasoningContent": {"redactedContent": "AAEC"}}
    assert decode_parts(message(block, hidden)) == (
        Thinking(text="hm", signature="sig"),
        RedactedThinking(data="AAEC"),
    )


def test_a_cache_point_belongs_to_the_block_before_it():
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    (part,) = decode_parts(message({"text": "a"}, point))
    assert part == Text(text="a", cache=CacheMark(ttl="1h"))


@pytest.mark.parametrize(
    "blocks",
    [
        [{"cachePoint": {"type": "default"}}],
        [{"text": "a"}, {"cachePoint": {"type": "other"}}],
        [{"text": "a"}, {"cachePoint": 3}],
        [{"text": "a"}, {"cachePoint": {"type": "default"}}, {"cachePoint": {"type": "default"}}],
    ],
)
def test_a_cache_point_without_a_block_is_preserved(blocks):
    assert decode_parts(message(*blocks))[-1] == Unknown(
        dialect="bedrock", raw=msgspec.json.encode(blocks[-1])
    )


@pytest.mark.parametrize(
    "block",
    [
        {"text": 3},
        {"text": "a", "more": 1},
        {"image": {"format": "tiff", "source": {"bytes": "AA=="}}},
        {"image": {"format": "png", "source": {"bytes": "AA==", "s3Location": {"uri": "s3://a"}}}},
        {"image": {"format": "png", "source": {"text": "a"}}},
        {"document": {"format": "odt", "name": "n", "source": {"bytes": "AA=="}}},
        {"document": {"format": "pdf", "name": "n", "source": {}}},
        {"toolResult": {"toolUseId": "a", "content": [], "status": "odd"}},
        {"reasoningContent": {}},
        {"reasoningContent": {"reasoningText": {"text": "a"}, "redactedContent": "AA=="}},
        {"citationsContent": {"content": [{"image": 1}]}},
    ],
)
def test_a_block_of_an_unknown_form_is_preserved(block):
    (part,) = decode_parts(message(block))
    assert part == Unknown(dialect="bedrock", raw=msgspec.json.encode(block))
    assert encode_and_decode(part) == (part,)


def test_a_json_result_is_decoded_as_text_and_encoded_as_json():
    block = {"toolResult": {"toolUseId": "a", "content": [{"json": {"t": 1}}], "status": "success"}}
    (result,) = decode_parts(message(block))
    assert isinstance(result, ToolResult)
    assert result.content[0].text == '{"t":1}'  # type: ignore[union-attr]
    assert json.loads(msgspec.json.encode(encode_blocks(result)))[0]["toolResult"]["content"] == [
        {"json": {"t": 1}}
    ]


def test_a_call_in_a_result_is_preserved():
    inner = {"toolUse": {"toolUseId": "b", "name": "n", "input": {}}}
    (result,) = decode_parts(message({"toolResult": {"toolUseId": "a", "content": [inner]}}))
    assert isinstance(result, ToolResult)
    assert result.content == (Unknown(dialect="bedrock", raw=msgspec.json.encode(inner)),)


def test_a_failed_result_has_the_status_error():
    (block,) = encode_blocks(ToolResult(call_id="a", is_error=True))
    assert block["toolResult"]["status"] == "error"


def test_a_call_without_arguments_has_an_empty_object():
    (block,) = encode_blocks(ToolCall(id="a", name="n", arguments=""))
    assert msgspec.json.encode(block) == b'{"toolUse":{"toolUseId":"a","name":"n","input":{}}}'


def test_a_refusal_is_encoded_as_text():
    assert encode_blocks(Refusal(text="no")) == [{"text": "no"}]


@pytest.mark.parametrize("media_type", ["image/jpg", "IMAGE/JPEG", "image/jpeg; q=1"])
def test_jpg_is_sent_as_jpeg_with_unchanged_data(media_type):
    (block,) = encode_blocks(Image(media_type=media_type, data="/9j/"))
    assert block == {"image": {"format": "jpeg", "source": {"bytes": "/9j/"}}}


def test_the_format_without_a_media_type_comes_from_the_name():
    (image,) = encode_blocks(Image(url="s3://b/a.JPG"))
    assert image["image"]["format"] == "jpeg"
    (document,) = encode_blocks(Document(data="AA==", name="a.htm"))
    assert document["document"]["format"] == "html"


@pytest.mark.parametrize(
    "part",
    [
        Image(url="https://x/y.png"),
        Image(media_type="image/tiff", data="AA=="),
        Document(media_type="application/pdf", url="https://x/y.pdf"),
        Unknown(dialect="openai", raw=b"{}"),
    ],
)
def test_a_part_that_converse_cannot_express_is_an_error(part):
    with pytest.raises(NotExpressibleError):
        encode_blocks(part)
