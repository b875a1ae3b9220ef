"""Chat Completions requests of clients, decoded and checked."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
)
from cllm.wire.convert import encode_openai
from cllm.wire.errors import FieldError, MalformedError
from cllm.wire.messages import OutgoingMessage
from cllm.wire.openai.parts import decode_parts
from cllm.wire.openai.request import decode_request

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def user(*parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role="user", parts=parts)


def assistant(*parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role="assistant", parts=parts)


class TestDecodeRequest:
    def test_messages_keep_their_bytes_and_other_fields_are_parameters(self):
        raws = [
            b'{"role": "developer",  "content":"Be brief."}',
            b'{"content":[{"type":"text","text":"\\u00e4"},{"type":"new","n":1.50}],"role":"user"}',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{}}]}',
            b'{"role":"tool","tool_call_id":"a","content":"ok"}',
        ]
        prompt = decode_request(
            b'{"temperature":0,"messages":['
            + b" ,".join(raws)
            + b'],"stream":true,"model":"m","stream_options":{"include_usage":true},"x":null}'
        )

        assert [message.raw for message in prompt.messages] == raws
        assert [message.role for message in prompt.messages] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]
        assert (prompt.model, prompt.stream, prompt.dialect) == ("m", True, "openai")
        assert prompt.system is None
        assert prompt.parameters == {
            "temperature": 0,
            "stream_options": {"include_usage": True},
            "x": None,
        }

    def test_a_decoded_request_is_encoded_equally(self):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2}

        assert json.loads(encode_openai(decode_request(json.dumps(body).encode())).body) == body

    def test_the_last_of_duplicate_fields_is_used(self):
        body = b'{"messages":5,"model":1,"model":"m","messages":[{"role":"user","content":"a"}]}'

        assert decode_request(body).messages[0].raw == b'{"role":"user","content":"a"}'

    def test_an_empty_list_of_messages_is_accepted(self):
        assert decode_request(b'{"model":"m","messages":[]}').messages == ()

    @pytest.mark.parametrize(
        ("body", "path"),
        [
            (b"", ""),
            (b"[]", ""),
            (b"null", ""),
            (b"\xff", ""),
            (b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', ""),
            (b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}', ""),
            (b'{"model":"m","messages":' + b"[" * 100_000, ""),
            (b'{"model":"m","n":' + b"9" * 5000 + b"e5000}", ""),
            ({"messages": []}, "model"),
            ({"messages": [], "model": 1}, "model"),
            ({"messages": [], "model": " "}, "model"),
            ({"model": "m"}, "messages"),
            ({"model": "m", "messages": {}}, "messages"),
            ({"model": "m", "messages": [], "stream": "yes"}, "stream"),
            ({"model": "m", "messages": [1]}, "messages[0]"),
            ({"model": "m", "messages": [{}]}, "messages[0].role"),
            ({"model": "m", "messages": [{"role": "bot"}]}, "messages[0].role"),
            ({"model": "m", "messages": [{"role": ["user"]}]}, "messages[0].role"),
            ({"model": "m", "messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
            (
                {"model": "m", "messages": [{"role": "user", "content": ["a"]}]},
                "messages[0].content[0]",
            ),
            (
                {"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}]},
                "messages[0].content[0].text",
            ),
            (
                {"model": "m", "messages": [{"role": "assistant", "tool_calls": {}}]},
                "messages[0].tool_calls",
            ),
            (
                {"model": "m", "messages": [{"role": "assistant", "tool_calls": [1]}]},
                "messages[0].tool_calls[0]",
            ),
            (
                {"model": "m", "messages": [{"role": "assistant", "tool_calls": [{}]}]},
                "messages[0].tool_calls[0].id",
            ),
            ({"model": "m", "messages": [{"role": "tool"}]}, "messages[0].tool_call_id"),
        ],
    )
    def test_an_invalid_field_is_reported_with_its_path(self, body, path):
        given = body if isinstance(body, bytes) else json.dumps(body).encode()

        with pytest.raises(FieldError) as caught:
            decode_request(given)

        assert caught.value.path == path
        assert str(caught.value).startswith(path or "The body ")

    @given(
        st.binary(max_size=60)
        | st.fixed_dictionaries(
            {},
            optional={
                "model": JSON_VALUES,
                "stream": JSON_VALUES,
                "messages": st.lists(
                    JSON_VALUES
                    | st.fixed_dictionaries(
                        {"role": st.sampled_from(["user", "tool", "assistant", "x"])},
                        optional={
                            "content": JSON_VALUES,
                            "tool_calls": JSON_VALUES,
                            "tool_call_id": JSON_VALUES,
                        },
                    ),
                    max_size=3,
                ),
            },
        ).map(lambda fields: json.dumps(fields).encode())
    )
    def test_any_body_is_decoded_or_malformed(self, body):
        try:
            prompt = decode_request(body)
        except MalformedError:
            return
        for message in prompt.messages:
            decode_parts(message)
