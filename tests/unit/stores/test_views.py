from datetime import UTC, datetime

import pytest

from cllm.core.conversation import StoredConversation, Turn, WindowRecord
from cllm.core.message import plain_message
from cllm.core.ports import Tail
from cllm.stores.views import build_summary, count_window_messages, select_tail

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def turn(key: str, *, state: str = "complete", cut: int | None = None) -> Turn:
    window = None if cut is None else WindowRecord(first_sequence=cut, sent_messages=1)
    return Turn(
        id=key,
        place=key,
        state=state,  # type: ignore[arg-type]
        messages=(plain_message("user", "Hi"), plain_message("assistant", "Hello")),
        started_at=NOW,
        window=window,
    )


def conversation(*turns: Turn, pins: tuple[int, ...] = ()) -> StoredConversation:
    return StoredConversation(id="demo", created_at=NOW, updated_at=NOW, turns=turns, pins=pins)


@pytest.mark.parametrize(
    ("tail", "ids", "first"),
    [
        (None, ["t1", "t2", "t3"], 1),
        (0, [], 7),
        (1, ["t3"], 5),
        (2, ["t3"], 5),
        (3, ["t2", "t3"], 3),
        (100, ["t1", "t2", "t3"], 1),
        ("window", ["t2", "t3"], 3),
    ],
)
def test_a_tail_has_whole_turns_from_the_end(tail: Tail, ids: list[str], first: int):
    selected = select_tail(conversation(turn("t1"), turn("t2"), turn("t3", cut=4)), tail)
    assert [each.id for each in selected.turns] == ids
    assert (selected.first_sequence, selected.message_count) == (first, 6)


def test_the_window_starts_at_the_last_cut_of_the_history():
    failed = turn("t3", state="failed", cut=5)
    assert count_window_messages(conversation(turn("t1"), turn("t2", cut=3), failed)) == 4
    assert count_window_messages(conversation(turn("t1"))) == 2
    assert count_window_messages(conversation()) == 0


def test_an_earlier_pin_extends_the_window():
    turns = (turn("t1"), turn("t2", cut=3))
    assert count_window_messages(conversation(*turns, pins=(2, 4))) == 3
    assert count_window_messages(conversation(*turns, pins=(4,))) == 2


def test_a_summary_has_the_message_count():
    summary = build_summary(conversation(turn("t1")))
    assert (summary.id, summary.message_count, summary.title) == ("demo", 2, None)
