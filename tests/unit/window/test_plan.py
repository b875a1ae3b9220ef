"""Window plans: by turns, by tokens in blocks, with pins and a remembered start."""

import time
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from cllm.core.errors import UsageError, WindowTooSmallError
from cllm.window.plan import WindowPlan, plan_window
from cllm.window.strategies import (
    ByTokens,
    ByTurns,
)
from cllm.window.turn_index import IndexedMessage, TurnIndex


def user(tokens: int = 10) -> IndexedMessage:
    return IndexedMessage(role="user", tokens=tokens)


def assistant(tokens: int = 10, *calls: str) -> IndexedMessage:
    return IndexedMessage(role="assistant", tokens=tokens, calls=calls)


def result(tokens: int = 10, *results: str) -> IndexedMessage:
    return IndexedMessage(role="tool", tokens=tokens, results=results or ("a",), has_content=False)


def talk(turns: int, size: int = 20) -> TurnIndex:
    """Return an index of this many complete turns of two messages."""
    half = size // 2
    return TurnIndex(item for _ in range(turns) for item in (user(half), assistant(size - half)))


def with_question(turns: int, size: int = 20) -> TurnIndex:
    turn_index = talk(turns, size)
    turn_index.append(user(size // 2))
    return turn_index


def sent(view: WindowPlan) -> list[int]:
    return [position for start, stop in view.spans for position in range(start, stop)]


class TestByTurns:
    def test_nothing_is_dropped_at_the_limit(self):
        view = plan_window(talk(10), ByTurns())

        assert view.dropped_turns == 0
        assert view.sent_messages == 20

    def test_the_oldest_turn_is_dropped_above_the_limit(self):
        view = plan_window(talk(11), ByTurns())

        assert sent(view) == list(range(2, 22))
        assert (view.dropped_turns, view.window_start) == (1, 3)

    def test_an_unanswered_turn_does_not_count(self):
        assert plan_window(with_question(10), ByTurns()).dropped_turns == 0

    def test_an_open_tool_loop_does_not_count(self):
        turn_index = with_question(2)
        for item in (assistant(10, "a", "b"), result(10, "a"), result(10, "b")):
            turn_index.append(item)
            assert not turn_index.is_answered
        turn_index.append(assistant())

        assert turn_index.is_answered
        assert plan_window(turn_index, ByTurns(max_turns=2)).dropped_turns == 1

    def test_consecutive_user_messages_are_one_turn(self):
        turn_index = TurnIndex([user(), user(), user(), assistant(), assistant(), user()])

        assert list(turn_index.turns) == [0, 5]
        assert sent(plan_window(turn_index, ByTurns(max_turns=1))) == [0, 1, 2, 3, 4, 5]

    def test_turns_dropped_earlier_are_not_counted_again(self):
        first = plan_window(talk(12), ByTurns())
        second = plan_window(talk(13), ByTurns(), window_start=first.window_start)

        assert (first.dropped_turns, second.dropped_turns, second.window_start) == (2, 1, 7)

    def test_the_budget_of_the_model_applies_too(self):
        view = plan_window(with_question(5), ByTurns(), budget=50)

        assert view.tokens == 50
        assert view.dropped_turns == 3

    def test_an_empty_conversation_sends_nothing(self):
        for strategy in (ByTurns(), ByTokens(max_tokens=5)):
            assert plan_window(TurnIndex(), strategy, budget=0).spans == ()

    @pytest.mark.parametrize("turns", [0, -1])
    def test_less_than_one_turn_is_refused(self, turns):
        with pytest.raises(UsageError, match="max_turns"):
            ByTurns(max_turns=turns)


class TestByTokens:
    def test_without_a_limit_everything_is_sent(self):
        assert plan_window(with_question(50), ByTokens()).dropped_turns == 0

    def test_the_start_stays_until_the_high_mark_and_then_moves_to_the_low_mark(self):
        strategy = ByTokens(max_tokens=10_000, floor=100, block=100)
        cuts = []
        window_start = None
        turn_index = TurnIndex()
        for _ in range(30):
            turn_index.append(user(20))
            window_start = plan_window(turn_index, strategy, window_start=window_start).window_start
            cuts.append(window_start)
            turn_index.append(assistant(0))
        moves = [place for place in range(1, 30) if cuts[place] != cuts[place - 1]]

        assert moves[0] == 8
        assert all(after - before == 4 for before, after in pairwise(moves))

    def test_a_long_new_message_makes_trimming_cheap(self):
        strategy = ByTokens(max_tokens=100_000, floor=1000, block=1000)
        turn_index = talk(70)
        assert plan_window(turn_index, strategy).dropped_turns == 0
        turn_index.append(user(1000))

        assert plan_window(turn_index, strategy).dropped_turns == 70

    def test_an_expired_cache_trims_to_the_floor(self):
        strategy = ByTokens(max_tokens=10_000, floor=100, block=400)
        turn_index = with_question(20)

        assert plan_window(turn_index, strategy, idle=300.0).dropped_turns == 0
        cold = plan_window(turn_index, strategy, idle=300.1)
        assert 100 <= cold.tokens < 120

    def test_an_expired_cache_changes_nothing_below_the_floor(self):
        strategy = ByTokens(max_tokens=10_000, floor=1000)

        assert plan_window(with_question(20), strategy, idle=1e9).dropped_turns == 0

    def test_at_least_the_floor_remains_if_it_fits(self):
        strategy = ByTokens(max_tokens=500, floor=300, block=10)
        view = plan_window(with_question(100, size=70), strategy)

        assert 300 <= view.tokens < 370

    def test_the_limit_is_the_smaller_of_max_tokens_and_budget(self):
        assert plan_window(with_question(100), ByTokens(max_tokens=200), budget=100).tokens <= 100
        assert plan_window(with_question(100), ByTokens(max_tokens=100), budget=200).tokens <= 100

    def test_only_a_newest_turn_above_the_limit_loses_units(self):
        turn_index = with_question(3)
        for name in "abcd":
            turn_index.append(assistant(20, name))
            turn_index.append(result(20, name))
        whole = plan_window(turn_index, ByTokens(), budget=170)
        window_start = plan_window(turn_index, ByTokens(), budget=169)

        assert sent(whole) == list(range(6, 15))
        assert sent(window_start) == [6, *range(9, 15)]

    def test_a_start_inside_a_turn_stays_when_the_next_turn_starts(self):
        turn_index = TurnIndex([user(10)])
        for name in "abcdefgh":
            turn_index.append(assistant(20, name))
            turn_index.append(result(20, name))
        first = plan_window(turn_index, ByTokens(), budget=300)
        turn_index.append(assistant(10))
        turn_index.append(user(10))
        second = plan_window(turn_index, ByTokens(), budget=300, window_start=first.window_start)

        assert sent(first)[0] == 0
        assert sent(second) == [*sent(first), 17, 18]

    def test_a_window_that_is_too_small_is_an_error_with_both_numbers(self):
        turn_index = with_question(3)
        turn_index.append(assistant(100, "a"))
        turn_index.append(result(100, "a"))

        with pytest.raises(WindowTooSmallError) as raised:
            plan_window(turn_index, ByTokens(), budget=209)

        assert (raised.value.needed, raised.value.available) == (210, 209)
        for word in ("210", "209", "send less text", "larger context window", "summarise"):
            assert word in str(raised.value)
        assert "pin" not in str(raised.value)

    def test_the_margin_of_an_estimate_refuses_nothing(self):
        turn_index = talk(3)
        turn_index.append(IndexedMessage(role="user", tokens=120, margin=20))

        assert sent(plan_window(turn_index, ByTokens(), budget=100)) == [6]
        with pytest.raises(WindowTooSmallError) as raised:
            plan_window(turn_index, ByTokens(), budget=99)
        assert (raised.value.needed, raised.value.available) == (100, 99)

    def test_a_negative_budget_counts_as_zero(self):
        for strategy in (ByTokens(), ByTurns()):
            with pytest.raises(WindowTooSmallError) as raised:
                plan_window(with_question(1), strategy, budget=-5)
            assert raised.value.available == 0

    def test_the_error_contains_the_tokens_of_pins(self):
        with pytest.raises(
            WindowTooSmallError, match=r"remove pins \(they need 40 tokens\), "
        ) as raised:
            plan_window(with_question(3), ByTokens(), budget=45, pins=[1, 3])

        assert raised.value.pinned == 40

    def test_a_remembered_start_inside_a_unit_moves_to_the_next_unit(self):
        turn_index = TurnIndex([user(), assistant(10, "a"), result(), assistant(), user()])
        views = [
            sent(plan_window(turn_index, ByTokens(), window_start=window_start))
            for window_start in (1, 3, 4, 5, 99)
        ]

        assert views == [[0, 1, 2, 3, 4], [0, 3, 4], [0, 3, 4], [4], [4]]

    def test_sequence_numbers_count_from_the_first_loaded_message(self):
        items = [user(), assistant(), user(), assistant(), user()]
        turn_index = TurnIndex(items, first_sequence=101)
        view = plan_window(turn_index, ByTokens(), window_start=103, pins=[101])

        assert sent(view) == [0, 1, 2, 3, 4]
        assert view.window_start == 103
        assert plan_window(turn_index, ByTokens(), window_start=103).left_out_messages == 102
        assert sent(plan_window(turn_index, ByTokens(), window_start=50)) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("name", ["max_tokens", "floor", "block"])
    def test_less_than_one_token_is_refused(self, name):
        given: dict[str, Any] = {name: 0}
        with pytest.raises(UsageError, match=name):
            ByTokens(**given)


class TestPins:
    def test_a_pinned_message_includes_its_whole_turn(self):
        view = plan_window(with_question(20), ByTokens(max_tokens=100), pins=[6, 100])

        assert sent(view)[:2] == [4, 5]
        assert sent(view)[2] > 6
        assert view.tokens <= 100

    def test_adjacent_pins_are_one_span(self):
        view = plan_window(with_question(20), ByTokens(max_tokens=100), pins=[1, 3])

        assert view.spans[0] == (0, 4)

    def test_a_pin_includes_a_turn_above_the_limit_whole(self):
        turn_index = TurnIndex(
            [user(10), assistant(50, "a"), result(50), assistant(50, "b"), result(50)]
        )
        assert plan_window(turn_index, ByTokens(), budget=120).sent_messages == 3

        with pytest.raises(WindowTooSmallError):
            plan_window(turn_index, ByTokens(), budget=120, pins=[2])


def test_planning_takes_the_same_time_in_a_long_conversation():
    def took(turns: int) -> float:
        turn_index = with_question(turns)
        best = inf
        for _ in range(200):
            start = time.perf_counter()
            plan_window(turn_index, ByTokens(max_tokens=4000))
            best = min(best, time.perf_counter() - start)
        return best

    assert took(50_000) < 5 * took(500)
