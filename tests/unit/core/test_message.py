"""Messages: their JSON and their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import Message, plain_message


@given(st.text())
def test_the_text_of_a_plain_message_is_its_content(text):
    message = plain_message("user", text)

    assert message.text == text
    assert message.json() == {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"role":"assistant","content":null}', ""),
        (b'{"role":"assistant"}', ""),
        (b'{"role":"assistant","content":5}', ""),
        (b'{"role":"assistant","content":{"text":"no"}}', ""),
        (b'{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}', "a\nb"),
        (b'{"content":[{"type":"image_url"},"loose",{"type":"x","text":5}]}', ""),
    ],
)
def test_the_text_is_the_text_of_text_blocks_only(raw, expected):
    assert Message(role="assistant", raw=raw).text == expected


def test_the_json_of_a_message_can_be_changed_without_changing_the_message():
    message = plain_message("user", "Hello")
    message.json()["content"] = "Other"

    assert message.text == "Hello"
