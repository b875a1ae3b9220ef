from datetime import UTC, datetime
from typing import Any

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Message, plain_message
from cllm.stores.postgres.reader import POSTGRES_CODEC, decode_conversation, encode_messages

NOW = datetime(2026, 11, 16, tzinfo=UTC)
HELLO = plain_message("user", "Hello cat")


def turn(key: str, place: str | None = None) -> Turn:
    return Turn(
        id=key, place=place or key, state="complete", messages=(HELLO,), started_at=NOW, model="m"
    )


def row(conversation: StoredConversation, stored: Turn | None, position: int | None) -> Any:
    """A row of LOAD."""
    head = POSTGRES_CODEC.encode_conversation(conversation)
    if stored is None:
        return (*head, None, *[None] * 21)
    roles, dialects, raws, *_ = encode_messages(stored.messages, [None])
    return (*head, position, *POSTGRES_CODEC.encode_turn(stored), roles, dialects, raws)


def test_no_rows_are_no_conversation():
    assert decode_conversation([]) is None


def test_turns_without_a_position_are_variants():
    conversation = StoredConversation(
        id="demo", created_at=NOW, updated_at=NOW, turns=(turn("t1"),), variants=(turn("t2", "t1"),)
    )
    rows = [row(conversation, turn("t1"), 1), row(conversation, turn("t2", "t1"), None)]
    assert decode_conversation(rows) == conversation


def test_a_conversation_without_turns_is_one_row():
    conversation = StoredConversation(id="demo", created_at=NOW, updated_at=NOW)
    assert decode_conversation([row(conversation, None, None)]) == conversation


def test_messages_are_encoded_as_arrays_with_their_search_terms():
    tool = Message(role="tool", raw=msgspec.json.encode({"role": "tool", "content": "42"}))
    roles, dialects, raws, terms, digests = encode_messages([HELLO, tool], [b"1", None])
    assert roles == ["user", "tool"]
    assert dialects == ["openai", "openai"]
    assert [raw.encode() for raw in raws] == [HELLO.raw, tool.raw]
    assert terms == ["hello cat", "42"]
    assert digests == [b"1", None]
    assert encode_messages([], []) == ([], [], [], [], [])
