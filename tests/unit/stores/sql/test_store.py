"""Edits as differences between two values, by the rows that they change."""

from datetime import UTC, datetime

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Message
from cllm.stores import edits
from cllm.stores.sql.store import (
    ConversationDiff,
    StoredTurn,
    TurnMove,
    diff_conversations,
    with_placeholders,
)

NOW = datetime(2026, 11, 16, tzinfo=UTC)
NOTHING = ConversationDiff(deleted_turns=(), changed_turns=(), truncated_turns=(), moved_turns=())
STORED = {
    "t1": StoredTurn(1, 1),
    "t2": StoredTurn(2, None),
    "v2": StoredTurn(3, 2),
    "t4": StoredTurn(4, 4),
}


def turn(key: str, messages: int, place: str | None = None) -> Turn:
    content = (Message(role="user", raw=b'{"role":"user","content":"x"}'),) * messages
    return Turn(
        id=key,
        place=place or key,
        state="complete",
        messages=content,
        started_at=NOW,
        ended_at=NOW,
    )


def conversation() -> StoredConversation:
    """Three turns, of which the second has a longer variant."""
    return StoredConversation(
        id="demo",
        created_at=NOW,
        updated_at=NOW,
        title="Demo",
        turns=(turn("t1", 2), turn("v2", 2, "t2"), turn("t4", 2)),
        variants=(turn("t2", 3),),
    )


def test_equal_conversations_have_no_difference():
    assert diff_conversations(conversation(), conversation(), STORED) == NOTHING


def test_deleting_the_last_turn_deletes_one_row():
    old = conversation()
    new = edits.truncate_from(old, 5, now=NOW)
    assert diff_conversations(old, new, STORED) == msgspec.structs.replace(
        NOTHING, deleted_turns=(4,)
    )


def test_a_truncated_turn_is_changed_and_its_variants_are_deleted():
    old = conversation()
    new = edits.truncate_from(old, 4, now=NOW)
    found = diff_conversations(old, new, STORED)
    assert sorted(found.deleted_turns) == [2, 4]
    assert [(number, each.state) for number, each in found.changed_turns] == [(3, "incomplete")]
    assert found.truncated_turns == ((3, 1),)
    assert found.moved_turns == ()


def test_a_chosen_variant_takes_the_position_and_later_messages_are_numbered_again():
    old = conversation()
    new = edits.with_chosen_variant(old, "t2", now=NOW)
    found = diff_conversations(old, new, STORED)
    assert set(found.moved_turns) == {TurnMove(2, 2, 3), TurnMove(3, None, None), TurnMove(4, 4, 6)}
    assert (found.deleted_turns, found.changed_turns, found.truncated_turns) == ((), (), ())


def test_an_outline_of_the_path_gives_the_same_difference():
    whole = conversation()
    loaded = tuple(with_placeholders(each, len(each.messages)) for each in whole.turns[1:])
    end = msgspec.structs.replace(whole, turns=loaded, first_sequence=3)
    for sequence in (4, 5, 6):
        expected = diff_conversations(whole, edits.truncate_from(whole, sequence, now=NOW), STORED)
        found = diff_conversations(end, edits.truncate_from(end, sequence, now=NOW), STORED)
        assert (found.deleted_turns, found.truncated_turns, found.moved_turns) == (
            expected.deleted_turns,
            expected.truncated_turns,
            expected.moved_turns,
        )


def test_a_turn_with_a_changed_field_is_changed():
    old = conversation()
    changed = msgspec.structs.replace(old.turns[0], model="other")
    new = msgspec.structs.replace(old, turns=(changed, *old.turns[1:]))

    found = diff_conversations(old, new, STORED)

    assert found == msgspec.structs.replace(NOTHING, changed_turns=((1, changed),))
