"""The messages of a conversation file match OpenAI's types."""

import functools
import json
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from tests.message_strategies import messages
from tests.request_validation import read_lazy_lists

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Message
from cllm.wire.conversation_file.codec import encode_conversation

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@functools.cache
def judge() -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(list[ChatCompletionMessageParam])


def understood(listed: list[dict[str, Any]]) -> bool:
    """Whether the types have a place for every field; one that they do not know is not in it."""
    return bool(read_lazy_lists(judge().validate_python(listed)) == listed)


def file_messages(messages: list[Message]) -> list[dict[str, Any]]:
    turn = Turn(id="t", place="t", state="complete", messages=tuple(messages), started_at=NOW)
    stored = StoredConversation(id="demo", created_at=NOW, updated_at=NOW, turns=(turn,))
    listed: list[dict[str, Any]] = json.loads(encode_conversation(stored))["messages"]
    return listed


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image", "source": {}}]},
        {"role": "assistant", "content": "a", "reasoning_content": "b"},
        {"role": "tool", "content": "no id"},
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]},
    ],
)
def test_the_judge_refuses_other_messages(message: dict[str, Any]):
    try:
        accepted = understood([message])
    except pydantic.ValidationError:
        accepted = False
    assert not accepted


@settings(deadline=None, max_examples=200)
@given(st.lists(messages(), min_size=1, max_size=4))
def test_messages_of_every_dialect_match_the_types_of_openai(messages: list[Message]):
    assert understood(file_messages(messages))
