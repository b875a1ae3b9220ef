from datetime import UTC, datetime

import msgspec

from cllm.core.conversation import StoredConversation, Turn, TurnState
from cllm.core.message import plain_message
from cllm.stores.sql.shared_turns import count_messages, find_shared_turns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
replace = msgspec.structs.replace


def turn(name: str, *, place: str | None = None, state: TurnState = "complete") -> Turn:
    messages = (plain_message("user", name), plain_message("assistant", name))
    return Turn(id=name, place=place or name, state=state, messages=messages, started_at=NOW)


def conversation(*turns: Turn, variants: tuple[Turn, ...] = ()) -> StoredConversation:
    return StoredConversation(
        id="demo", created_at=NOW, updated_at=NOW, turns=turns, variants=variants
    )


A, B, C = turn("a"), turn("b"), turn("c")
OTHER = turn("other", place="a")
FAILED = turn("failed", state="failed")


def test_the_start_of_the_path_is_shared():
    source = conversation(A, B, C)
    assert find_shared_turns(source, source) == {"a", "b", "c"}
    assert find_shared_turns(source, conversation(A, B)) == {"a", "b"}


def test_a_truncated_turn_is_shared_before_it_is_copied():
    branch = conversation(A, replace(B, messages=B.messages[:1]))
    assert find_shared_turns(conversation(A, B), branch) == {"a", "b"}


def test_variants_are_shared_if_the_path_before_them_is_the_same():
    source = conversation(A, B, variants=(OTHER,))
    assert find_shared_turns(source, source) == {"a", "b", "other"}


def test_turns_after_another_variant_are_not_shared():
    source = conversation(A, B, variants=(OTHER,))
    branch = conversation(OTHER, B, variants=(A,))
    assert find_shared_turns(source, branch) == {"a", "other"}


def test_failed_turns_do_not_change_the_path():
    source = conversation(A, FAILED, B)
    assert find_shared_turns(source, conversation(A, B)) == {"a", "b"}


def test_a_turn_whose_slot_is_not_on_the_path_is_not_shared():
    source = conversation(A, variants=(C,))
    assert find_shared_turns(source, conversation(A, C)) == {"a"}


def test_a_running_turn_is_not_shared():
    source = conversation(A, turn("runs", state="running"))
    assert find_shared_turns(source, source) == {"a"}


def test_messages_are_counted_by_turn():
    assert count_messages(conversation(A, variants=(OTHER,))) == {"a": 2, "other": 2}
