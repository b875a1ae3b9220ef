"""Edits of a conversation with a summary: the summary tells of no turn that was replaced."""

from datetime import UTC, datetime

from cllm.core.conversation import StandingSummary, StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.stores import edits

NOW = datetime(2026, 11, 16, tzinfo=UTC)
FIRST = StandingSummary(text="The first turn.", through=2, tokens=9)
SECOND = StandingSummary(text="Two turns.", through=4, tokens=9, before=FIRST)


def turn(key: str, place: str | None = None) -> Turn:
    return Turn(
        id=key,
        place=place or key,
        state="complete",
        messages=(plain_message("user", "Why?"), plain_message("assistant", f"So {key}.")),
        started_at=NOW,
        ended_at=NOW,
    )


def conversation(*variants: Turn) -> StoredConversation:
    """Two turns, and a summary of both."""
    return StoredConversation(
        id="demo",
        created_at=NOW,
        updated_at=NOW,
        turns=(turn("t1"), turn("t2")),
        variants=variants,
        summary=SECOND,
    )


def test_choosing_a_variant_removes_the_summary_of_the_replaced_turn():
    new = edits.with_chosen_variant(conversation(turn("v2", "t2")), "v2", now=NOW)

    assert [one.id for one in new.turns] == ["t1", "v2"]
    assert new.summary == FIRST


def test_a_finished_variant_removes_the_summary_of_the_replaced_turn():
    new = edits.with_finished_turn(conversation(), turn("v2", "t2"), opening=None, now=NOW)

    assert [one.id for one in new.turns] == ["t1", "v2"]
    assert new.summary == FIRST
