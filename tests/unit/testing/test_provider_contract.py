import msgspec
import pytest

from cllm.core.message import Message, Text, plain_message
from cllm.core.notice import Notice
from cllm.core.reply import (
    Noticed,
    PartAdded,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from cllm.testing.provider_contract import kept, last, said

FINISHED = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason="end")


def test_deltas_are_joined_by_kind():
    events: list[ReplyEvent] = [
        Noticed(notice=Notice(code="x", path="y", message="z")),
        TextDelta(text="He"),
        ThinkingDelta(text="hm"),
        TextDelta(text="llo"),
        PartAdded(part=Text(text="!")),
        ToolCallDelta(index=0, name="add", arguments='{"a":'),
        ToolCallDelta(index=0, arguments="1}"),
        ToolCallDelta(index=1, name="now", arguments=""),
        FINISHED,
    ]
    assert said(events) == ("Hello!", "hm", [("add", '{"a":1}'), ("now", "{}")])


def test_a_message_is_split_by_kind():
    raw = {
        "role": "assistant",
        "content": "Hello",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "now", "arguments": ""}}
        ],
    }
    message = Message(role="assistant", raw=msgspec.json.encode(raw))
    assert kept(message) == ("Hello", "", [("now", "{}")])


def test_the_last_event_must_finish_the_reply():
    assert last([TextDelta(text="Hi"), FINISHED]) is FINISHED
    with pytest.raises(AssertionError, match="no event"):
        last([])
    with pytest.raises(AssertionError, match="TextDelta"):
        last([TextDelta(text="Hi")])
