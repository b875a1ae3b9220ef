"""Invariants of window plans on random histories that a provider accepts."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.torture import choose_size
from tests.window_histories import (
    SampleHistory,
    histories,
    required_positions,
    split_turns,
    split_units,
)

from cllm.core.conversation import StandingSummary
from cllm.core.errors import WindowTooSmallError
from cllm.history.rules import PROFILES, HistoryProfile, find_problems
from cllm.window.plan import WindowPlan, plan_window
from cllm.window.strategies import ByTokens, ByTurns, CachePrices, Strategy, Summarise

ALL = list(PROFILES.values())
pytestmark = pytest.mark.torture
EXAMPLES = settings(
    max_examples=choose_size(15, 500),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PRICES = st.sampled_from(
    [CachePrices(), CachePrices(write=1.0, read=0.0), CachePrices(write=1.0, read=1.0)]
)
STRATEGIES: st.SearchStrategy[Strategy] = st.one_of(
    st.builds(ByTurns, max_turns=st.integers(1, 5)),
    st.builds(ByTokens, prices=PRICES),
    st.builds(ByTokens, floor=st.integers(1, 300), prices=PRICES),
    st.builds(
        ByTokens,
        max_tokens=st.integers(100, 900),
        floor=st.integers(1, 200),
        block=st.integers(1, 200),
    ),
    st.builds(Summarise, tokens=st.builds(ByTokens, floor=st.integers(1, 300))),
)
BUDGETS = st.integers(0, 900)


class Case:
    """One history, a budget, pins, and a strategy."""

    def __init__(self, data: Any, profile: HistoryProfile) -> None:
        self.sample: SampleHistory = data.draw(histories(profile))
        self.budget: int = data.draw(BUDGETS)
        self.strategy: Strategy = data.draw(STRATEGIES)
        last = len(self.sample.messages) - 1
        self.pins: set[int] = data.draw(st.sets(st.integers(0, last), max_size=2))

    @property
    def limit(self) -> int:
        tokens = getattr(self.strategy, "tokens", self.strategy)
        return min(self.budget, getattr(tokens, "max_tokens", None) or self.budget)

    def plan(self, sample: SampleHistory, pins: set[int], **more: Any) -> WindowPlan:
        numbers = [position + 1 for position in pins]
        return plan_window(
            sample.turn_index(), self.strategy, budget=self.budget, pins=numbers, **more
        )

    def view(self) -> WindowPlan | None:
        """Return the plan, or None if the required messages exceed the limit."""
        least = sum(
            self.sample.tokens[n] for n in required_positions(self.sample, sorted(self.pins))
        )
        if least > self.limit:
            with pytest.raises(WindowTooSmallError) as raised:
                self.plan(self.sample, self.pins)
            assert (raised.value.needed, raised.value.available) == (least, self.limit)
            return None
        return self.plan(self.sample, self.pins)


def positions(view: WindowPlan) -> list[int]:
    return [position for start, stop in view.spans for position in range(start, stop)]


def every_profile(test: Any) -> Any:
    return pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)(test)


@every_profile
@EXAMPLES
@given(data=st.data())
def test_every_window_is_valid_for_the_provider(data, profile):
    case = Case(data, profile)
    assert find_problems(case.sample.messages, profile) == ()

    view = case.view()

    if view is not None:
        assert find_problems(view.select(case.sample.messages), profile) == ()


@every_profile
@EXAMPLES
@given(data=st.data())
def test_every_window_fits_the_budget_or_the_error_has_both_numbers(data, profile):
    case = Case(data, profile)
    view = case.view()
    if view is None:
        return
    included = positions(view)

    assert set(required_positions(case.sample, sorted(case.pins))) <= set(included)
    assert view.tokens == sum(case.sample.tokens[n] for n in included) <= case.limit
    assert view.sent_messages == len(included)
    assert view.left_out_messages == len(case.sample.messages) - len(included)
    assert included == sorted(set(included))


@every_profile
@EXAMPLES
@given(data=st.data())
def test_older_turns_are_complete_or_absent_and_units_are_never_divided(data, profile):
    case = Case(data, profile)
    view = case.view()
    if view is None:
        return
    included = set(positions(view))
    *older, newest = split_turns(case.sample.messages)

    for turn in older:
        assert included >= set(turn) or not included & set(turn)
    for unit in split_units(case.sample.messages, newest):
        assert included >= set(unit) or not included & set(unit)
    absent = sum(not included & set(turn) for turn in older)
    assert view.dropped_turns == absent


@every_profile
@EXAMPLES
@given(data=st.data())
def test_trimming_a_trimmed_history_changes_nothing(data, profile):
    case = Case(data, profile)
    view = case.view()
    if view is None:
        return
    included = positions(view)
    again = case.plan(case.sample.chosen(included), {included.index(pin) for pin in case.pins})

    assert again.spans == ((0, len(included)),)
    assert case.plan(case.sample, case.pins) == view
    assert case.plan(case.sample, case.pins, window_start=view.window_start).spans == view.spans
    cold = case.plan(case.sample, case.pins, idle=1e9)
    assert (
        case.plan(case.sample, case.pins, idle=1e9, window_start=cold.window_start).spans
        == cold.spans
    )


@every_profile
@EXAMPLES
@given(data=st.data())
def test_a_continued_conversation_has_a_stable_start_and_prefix(data, profile):
    """Each window starts with the previous one, unless the start has moved."""
    case = Case(data, profile)
    turn_index = case.sample.turn_index(0)
    pins = [position + 1 for position in case.pins]
    window_start, seen = None, []
    for end, item in enumerate(case.sample.items(), start=1):
        turn_index.append(item)
        sample = case.sample.chosen(range(end))
        at_call = end == len(case.sample.messages) or case.sample.messages[end].role == "assistant"
        if not at_call or item.role == "assistant":
            continue
        known = {pin - 1 for pin in pins if pin <= end}
        least = sum(sample.tokens[n] for n in required_positions(sample, sorted(known)))
        if least > case.limit:
            return
        view = plan_window(
            turn_index, case.strategy, budget=case.budget, window_start=window_start, pins=pins
        )
        assert view.tokens <= case.limit
        assert set(required_positions(sample, sorted(known))) <= set(positions(view))
        assert find_problems(view.select(sample.messages), profile) == ()
        assert window_start is None or view.window_start >= window_start
        if view.window_start == window_start:
            assert positions(view)[: len(seen)] == seen
        window_start, seen = view.window_start, positions(view)


@every_profile
@EXAMPLES
@given(data=st.data())
def test_only_pins_are_sent_of_the_turns_that_a_summary_covers(data, profile):
    case = Case(data, profile)
    *older, newest = split_turns(case.sample.messages)
    covered = data.draw(st.sampled_from([turn[-1] for turn in older] or [-1]))
    summary = StandingSummary(text="All went well.", through=covered + 1, tokens=50)
    least = sum(case.sample.tokens[n] for n in required_positions(case.sample, sorted(case.pins)))
    left = max(0, case.limit - 50)
    if least > left:
        with pytest.raises(WindowTooSmallError):
            case.plan(case.sample, case.pins, summary=summary)
        return

    view = case.plan(case.sample, case.pins, summary=summary)

    included = set(positions(view))
    assert newest[0] in included
    for turn in older:
        if case.pins & set(turn):
            assert included >= set(turn)
        elif turn[0] <= covered:
            assert not included & set(turn)
    assert view.tokens <= left
    assert find_problems(view.select(case.sample.messages), profile) == ()
    assert (
        case.plan(case.sample, case.pins, summary=summary, window_start=view.window_start).spans
        == view.spans
    )


@given(data=st.data())
def test_the_index_finds_the_same_turns_and_units_as_a_scan(data):
    sample = data.draw(histories(data.draw(st.sampled_from(ALL))))
    turn_index = sample.turn_index()
    turns = split_turns(sample.messages)

    assert list(turn_index.turns) == [turn[0] for turn in turns]
    for turn in turns:
        head, *units = split_units(sample.messages, turn)
        assert list(turn_index.units(turn[0])) == [unit[0] for unit in units]
        assert turn_index.user_run(turn[0]) == (turn[0], turn[0] + len(head))
        for before, after in pairwise([*turn, turn[-1] + 1]):
            assert turn_index.turn_start(before) == turn[0]
            assert turn_index.tokens(before, after) == sample.tokens[before]
