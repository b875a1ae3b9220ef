"""The turn of a match: what is before and after it."""

from datetime import UTC, datetime

from msgspec.structs import replace
from tests.history_client import message, reply, user

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Message
from cllm.core.ports import PathMatch
from cllm.engine.matched_turn import MatchedTurn
from cllm.wire.convert import has_user_input
from cllm.wire.path_digest import ROOT, digest_path

TIME = datetime(2026, 11, 16, tzinfo=UTC)


def make_turn(name: str, *messages: Message, place: str | None = None, **fields: str) -> Turn:
    turn = Turn(id=name, place=place or name, state="complete", messages=messages, started_at=TIME)
    return replace(turn, **fields)


CONVERSATION = StoredConversation(
    id="demo",
    created_at=TIME,
    updated_at=TIME,
    turns=(
        make_turn("t1", user("one"), reply("first")),
        make_turn("t2", user("two"), reply("second")),
        make_turn("t3", user("three"), state="failed"),
    ),
    variants=(make_turn("t2b", user("two"), reply("other"), place="t2"),),
)


def make_match(turn: str, ordinal: int) -> PathMatch:
    return PathMatch(
        conversation="demo",
        turn=turn,
        ordinal=ordinal,
        position=0,
        sequence=None,
        message_count=5,
        state="complete",
    )


def test_a_turn_on_the_default_path():
    found = MatchedTurn.find(CONVERSATION, make_match("t2", 1))
    assert found is not None
    assert (found.is_on_path, found.is_slot, found.is_whole) == (True, True, True)
    assert (found.path, found.messages_before) == (("t1", "t2"), 2)
    assert found.start == digest_path(CONVERSATION.turns[0].messages)[-1]
    assert [turn.id for turn in found.later] == ["t3"]


def test_a_variant():
    found = MatchedTurn.find(CONVERSATION, make_match("t2b", 0))
    assert found is not None
    assert (found.is_on_path, found.is_slot, found.is_whole) == (False, True, False)
    assert found.path == ("t1", "t2b")


def test_the_first_turn_starts_at_the_root():
    found = MatchedTurn.find(CONVERSATION, make_match("t1", 0))
    assert found is not None
    assert (found.start, found.messages_before) == (ROOT, 0)


def test_a_failed_turn_is_never_whole():
    found = MatchedTurn.find(CONVERSATION, make_match("t3", 0))
    assert found is not None
    assert not found.is_whole


def test_a_turn_that_has_changed_is_not_found():
    assert MatchedTurn.find(CONVERSATION, make_match("t9", 0)) is None
    assert MatchedTurn.find(CONVERSATION, make_match("t1", 2)) is None


def test_input_in_later_turns_counts_unless_they_failed():
    first = MatchedTurn.find(CONVERSATION, make_match("t1", 1))
    second = MatchedTurn.find(CONVERSATION, make_match("t2", 1))
    assert first is not None
    assert second is not None
    assert first.has_later_input()
    assert not first.has_later_input(1)
    assert not second.has_later_input()


def test_tool_results_are_no_input():
    result = message("tool", "4", tool_call_id="call-1")
    assert not has_user_input([reply("yes"), result])
    assert has_user_input([result, user("and now?")])


def test_an_unreadable_message_counts_as_input():
    broken = Message(role="user", raw=b'{"role":"user","content":7}', dialect="anthropic")
    assert has_user_input([broken])
