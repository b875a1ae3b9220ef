"""The items of a stored conversation, and which of them can be deleted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.server.api.conversation_items import ConversationItem, check_is_last, iterate_items
from cllm.server.http.errors import ApiError

NOW = datetime(2026, 11, 16, tzinfo=UTC)
CONVERSATION = "11111111-2222-4333-8444-555555555555"
HEX = CONVERSATION.replace("-", "")


def make_turn(number: int, *texts: str, **fields: Any) -> Turn:
    turn_id = f"00000000-0000-4000-8000-{number:012}"
    roles = ("user", "assistant") * len(texts)
    messages = tuple(
        plain_message("assistant" if role == "assistant" else "user", text)
        for role, text in zip(roles, texts, strict=False)
    )
    values = {"state": "complete", "model": "openai/gpt-test", **fields}
    return Turn(id=turn_id, place=turn_id, messages=messages, started_at=NOW, **values)


def list_ids(*turns: Turn) -> list[tuple[str, int]]:
    conversation = StoredConversation(id=CONVERSATION, created_at=NOW, updated_at=NOW, turns=turns)
    prefix = f"msg_{HEX}00000000000040008000"
    return [
        (item.fields["id"].removeprefix(prefix), item.sequence)
        for item in iterate_items(conversation)
    ]


def test_ids_and_sequence_numbers():
    assert list_ids(make_turn(1, "One", "Two", "Three", "Four"), make_turn(2, "Five", "Six")) == [
        ("000000000001_i0", 1),
        ("000000000001_i1", 2),
        ("000000000001_i2", 3),
        ("000000000001_0", 4),
        ("000000000002_i0", 5),
        ("000000000002_0", 6),
    ]


def test_a_turn_without_a_model_has_only_input():
    assert list_ids(make_turn(1, "One", "Two", model=None)) == [
        ("000000000001_i0", 1),
        ("000000000001_i1", 2),
    ]


def test_failed_and_running_turns_count_but_have_no_items():
    failed = make_turn(1, "One", state="failed")
    running = make_turn(3, "Four", state="running")

    assert list_ids(failed, make_turn(2, "Two", "Three"), running) == [
        ("000000000002_i0", 2),
        ("000000000002_0", 3),
    ]


def make_item(item_id: str, sequence: int, kind: str = "message") -> ConversationItem:
    return ConversationItem(fields={"id": item_id, "type": kind}, sequence=sequence, turn="t")


FIRST = make_item("a", 1)
THOUGHT = make_item("b", 2, "reasoning")
LAST = make_item("c", 2)


def test_the_last_item_can_be_deleted_with_its_reasoning():
    check_is_last(LAST, [FIRST, THOUGHT, LAST])
    check_is_last(FIRST, [FIRST])


@pytest.mark.parametrize(
    ("item", "items"),
    [
        (FIRST, [FIRST, LAST]),
        (THOUGHT, [FIRST, THOUGHT, LAST]),
        (LAST, [FIRST, LAST, make_item("d", 2, "function_call")]),
    ],
)
def test_other_items_cannot_be_deleted(item: ConversationItem, items: list[ConversationItem]):
    with pytest.raises(ApiError, match="Only the last item") as caught:
        check_is_last(item, items)

    assert (caught.value.status, caught.value.param) == (400, "item_id")
