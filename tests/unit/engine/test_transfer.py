"""Copies of conversations for another store."""

from datetime import UTC, datetime

from cllm.core.conversation import (
    Branch,
    StandingSummary,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnState,
)
from cllm.core.message import plain_message
from cllm.engine.transfer import make_copy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAID = (plain_message("user", "Hello"), plain_message("assistant", "Hi"))


def turn(turn_id: str, place: str | None = None, *, state: TurnState = "complete") -> Turn:
    return Turn(id=turn_id, place=place or turn_id, state=state, messages=SAID, started_at=NOW)


def conversation(
    *turns: Turn, variants: tuple[Turn, ...] = (), **fields: object
) -> StoredConversation:
    return StoredConversation(
        id="source",
        created_at=NOW,
        updated_at=NOW,
        turns=turns,
        variants=variants,
        **fields,  # type: ignore[arg-type]
    )


def places(copied: StoredConversation) -> list[tuple[str, str]]:
    return [(each.id, each.place) for each in (*copied.turns, *copied.variants)]


def test_a_copy_has_its_own_id_and_no_name_and_no_parent():
    parent = Branch(conversation="other", sequence=1)
    copied = make_copy(conversation(turn("a"), name="notes", parent=parent), "copy")

    assert (copied.id, copied.name, copied.parent) == ("copy", None, None)
    assert copied.turns == (turn("a"),)


def test_a_place_is_the_id_of_one_of_its_turns():
    source = conversation(
        turn("a", "gone"),
        turn("c", "b"),
        variants=(turn("b", "b"), turn("d", "gone"), turn("e", "nowhere")),
    )

    assert places(make_copy(source, "copy")) == [("a", "a"), ("c", "b"), ("b", "b"), ("d", "a")]


def test_two_turns_of_the_path_never_share_a_place():
    source = conversation(turn("a", "b"), turn("b", "b"), turn("c", "b"))

    assert places(make_copy(source, "copy")) == [("a", "a"), ("b", "b"), ("c", "c")]


def test_pins_and_summaries_of_missing_messages_are_left_out():
    earlier = StandingSummary(text="earlier", through=2, tokens=1)
    later = StandingSummary(text="later", through=9, tokens=1, before=earlier)
    copied = make_copy(conversation(turn("a"), pins=(1, 2, 3), summary=later), "copy")

    assert (copied.pins, copied.summary) == ((1, 2), earlier)


def test_a_prompt_without_a_record_is_captured():
    prompt = plain_message("system", "Be brief.")

    copied = make_copy(conversation(turn("a"), system=prompt), "copy")
    assert copied.system_record == SystemRecord(policy="captured")
    assert make_copy(conversation(turn("a")), "copy").system_record is None
