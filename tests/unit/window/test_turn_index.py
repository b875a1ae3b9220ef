"""The index of a history: turns, units and tokens, reported or estimated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.window.tokens import TokenEstimate, TokenRatios
from cllm.window.turn_index import IndexedMessage, ReportedCount, TurnIndex, count_messages

LOG = [
    TokenEstimate(plain=100.0),
    TokenEstimate(plain=50.0),
    TokenEstimate(plain=100.0),
    TokenEstimate(plain=80.0),
]
SYSTEM = TokenEstimate(plain=200.0)


def test_without_a_report_all_messages_but_counted_replies_are_estimated():
    counted = count_messages(LOG, replies={1: 70}, overhead=SYSTEM)

    assert counted.messages == (100, 70, 100, 80)
    assert counted.overhead == 200
    assert counted.ratios == TokenRatios()


def test_the_messages_of_the_last_prompt_add_up_to_its_report():
    last = ReportedCount(spans=((0, 3),), tokens=910, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=SYSTEM)

    assert counted.messages[:3] == (210, 70, 210)
    assert counted.overhead == 420
    assert counted.messages[3] == counted.ratios.correct(LOG[3]) > 80


def test_a_changed_overhead_is_estimated_with_the_ratio_of_the_report():
    last = ReportedCount(spans=((0, 3),), tokens=910, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=TokenEstimate(plain=300.0))

    assert counted.overhead == counted.ratios.correct(TokenEstimate(plain=300.0))


def test_messages_that_the_report_did_not_cover_are_estimated():
    last = ReportedCount(spans=((2, 3),), tokens=300, overhead=SYSTEM)
    counted = count_messages(LOG, replies={}, last=last, overhead=SYSTEM)

    assert counted.messages[2] + counted.overhead == 300
    assert counted.messages[0] == counted.ratios.correct(LOG[0])


def test_reply_counts_above_the_report_are_ignored():
    last = ReportedCount(spans=((0, 3),), tokens=60, overhead=SYSTEM)
    counted = count_messages(LOG, replies={1: 70}, last=last, overhead=SYSTEM)

    assert sum(counted.messages[:3]) + counted.overhead == 60
    assert min(counted.messages) >= 0


@given(
    st.lists(st.floats(0, 500), min_size=1, max_size=30),
    st.integers(1, 50_000),
    st.sets(st.integers(0, 29)),
    st.data(),
)
def test_covered_messages_always_add_up_to_the_report(weights, tokens, replied, data):
    log = [TokenEstimate(plain=weight) for weight in weights]
    start = data.draw(st.integers(0, len(log) - 1))
    replies = {n: 10 for n in replied if n < len(log)}
    last = ReportedCount(spans=((start, len(log)),), tokens=tokens, overhead=SYSTEM)
    counted = count_messages(log, replies=replies, last=last, overhead=SYSTEM)

    assert sum(counted.messages[start:]) + counted.overhead == tokens
    assert min(counted.messages) >= 0


def user(tokens: int = 10) -> IndexedMessage:
    return IndexedMessage(role="user", tokens=tokens)


def assistant(tokens: int = 10, *calls: str) -> IndexedMessage:
    return IndexedMessage(role="assistant", tokens=tokens, calls=calls)


def result(*results: str, role: str = "tool", has_content: bool = False) -> IndexedMessage:
    return IndexedMessage(role=role, tokens=10, results=results, has_content=has_content)  # type: ignore[arg-type]


def system() -> IndexedMessage:
    return IndexedMessage(role="system", tokens=10)


def test_the_turn_size_is_the_mean_of_the_turns_before_the_newest():
    turn_index = TurnIndex([user(10), assistant(30), user(20), assistant(20), user(500)])

    assert turn_index.turn_size == 40
    assert TurnIndex([user(7)]).turn_size == 7


def test_a_history_that_starts_with_the_assistant_has_a_turn_without_user_messages():
    turn_index = TurnIndex([assistant(), user(), assistant(), user()])

    assert list(turn_index.turns) == [0, 1, 3]
    assert turn_index.user_run(0) == (0, 0)


def test_a_system_message_before_an_answer_belongs_to_its_unit():
    turn_index = TurnIndex([user(), assistant(10, "a"), result("a"), system(), assistant()])

    assert list(turn_index.units(0)) == [1, 3]
    assert turn_index.last_unit == 3


def test_consecutive_assistant_messages_are_one_unit():
    turn_index = TurnIndex([user(), assistant(10, "a"), assistant(10, "b"), result("a", "b")])

    assert list(turn_index.units(0)) == [1]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([user()], False),
        ([user(), assistant()], True),
        ([user(), assistant(10, "a")], False),
        ([user(), assistant(10, "a"), result("a")], False),
        ([user(), assistant(10, "a"), result("a"), assistant()], True),
    ],
)
def test_a_history_is_answered_if_it_ends_with_a_reply_without_open_calls(items, expected):
    assert TurnIndex(items).is_answered is expected


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [(None, 0), (1, 0), (2, 1), (3, 3), (4, 3), (6, 5), (99, 5)],
)
def test_a_remembered_start_moves_to_the_next_unit_or_turn(sequence, expected):
    turn_index = TurnIndex(
        [user(), assistant(10, "a"), result("a"), assistant(), assistant(), user(), assistant()]
    )

    assert turn_index.find_start(sequence) == expected


def test_user_text_with_results_is_found_before_a_start():
    with_text = result("a", role="user", has_content=True)
    turn_index = TurnIndex(
        [user(), assistant(10, "a"), with_text, assistant(10, "b"), result("b"), assistant()]
    )

    assert turn_index.user_text_unit_before(5) == (1, 3)
    assert turn_index.user_text_unit_before(1) is None
