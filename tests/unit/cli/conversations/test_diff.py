"""The messages of conversations and variants, and what two of them have in common."""

from datetime import UTC, datetime

import pytest

from cllm.cli.conversations.diff import count_common, load_path
from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import UsageError
from cllm.core.message import Message, plain_message
from cllm.engine.conversation_tree import number_variants
from cllm.stores.memory import MemoryStore

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def make_turn(name: str, place: str | None = None) -> Turn:
    messages = (plain_message("user", "Q"), plain_message("assistant", name))
    return Turn(id=name, place=place or name, state="complete", messages=messages, started_at=THEN)


CATS = StoredConversation(
    id="cats",
    created_at=THEN,
    updated_at=THEN,
    turns=(make_turn("one"), make_turn("two")),
    variants=(make_turn("a", "two"), make_turn("b", "one"), make_turn("c", "two")),
)


def test_variants_are_numbered_by_the_first_message_of_their_turn():
    numbered = number_variants(CATS)

    assert {key: turn.id for key, turn in numbered.items()} == {
        (1, 1): "b",
        (3, 1): "a",
        (3, 2): "c",
    }
    assert list(numbered) == sorted(numbered)


async def test_a_path_ends_with_the_variant():
    store = MemoryStore(clock=lambda: THEN)
    await store.add(CATS)

    path = await load_path(store, "cats@3.2")

    assert [message.text for message in path.messages] == ["Q", "one", "Q", "c"]
    assert len((await load_path(store, "cats")).messages) == 4
    with pytest.raises(UsageError, match=r"no variant 1\.2"):
        await load_path(store, "cats@1.2")


def test_messages_are_common_up_to_the_first_difference():
    one = [plain_message("user", text) for text in ("a", "b", "c")]
    other = [plain_message("user", text) for text in ("a", "x", "c")]

    assert count_common(one, other) == 1
    assert count_common(one, one[:2]) == 2
    assert count_common([], one) == 0


def test_the_order_of_keys_makes_no_difference():
    one = Message(role="user", raw=b'{"role":"user","content":"a"}')
    other = Message(role="user", raw=b'{"content": "a", "role": "user"}')

    assert count_common([one], [other]) == 1
    assert count_common([one], [Message(role="assistant", raw=one.raw)]) == 0


def test_a_damaged_message_is_compared_by_its_bytes():
    damaged = Message(role="user", raw=b"{")

    assert count_common([damaged], [Message(role="user", raw=b"{")]) == 1
    assert count_common([damaged], [Message(role="user", raw=b"[")]) == 0
