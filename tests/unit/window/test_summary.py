"""Summaries: which chunks are requested, and the window after them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.window_histories import histories, split_turns

from cllm.core.conversation import StandingSummary
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Text, plain_message
from cllm.history.rules import PROFILES, find_problems
from cllm.window.plan import plan_window
from cllm.window.strategies import ByTokens, ByTurns, Summarise
from cllm.window.summary import (
    INSTRUCTION,
    INSTRUCTION_TOKENS,
    build_summary_messages,
    build_summary_request,
    plan_summary,
)
from cllm.window.turn_index import IndexedMessage, TurnIndex
from cllm.wire.messages import OutgoingMessage

STRATEGY = Summarise(tokens=ByTokens(max_tokens=1000, floor=300, block=300), summary_tokens=100)


def with_question(turns: int, size: int = 100) -> TurnIndex:
    turn_index = TurnIndex()
    for _ in range(turns):
        turn_index.append(IndexedMessage(role="user", tokens=size // 2))
        turn_index.append(IndexedMessage(role="assistant", tokens=size // 2))
    turn_index.append(IndexedMessage(role="user", tokens=size // 2))
    return turn_index


def seen(chunks) -> list[int]:
    return [n for chunk in chunks for start, stop in chunk.spans for n in range(start, stop)]


def test_no_summary_is_requested_while_the_history_fits():
    assert plan_summary(with_question(5), STRATEGY) == ()
    assert plan_summary(with_question(50), Summarise()) == ()
    assert plan_summary(TurnIndex(), STRATEGY) == ()


def test_dropped_turns_are_summarised_and_the_rest_stays():
    turn_index = with_question(7)
    (chunk,) = plan_summary(turn_index, STRATEGY)
    summary = StandingSummary(text="S", through=chunk.through, tokens=80)
    view = plan_window(turn_index, STRATEGY, summary=summary)

    assert chunk.spans == ((0, 8),)
    assert view.spans == ((8, 15),)


def test_the_request_starts_with_the_last_prompt_and_ends_with_the_instruction():
    turn_index = with_question(7)
    messages = [plain_message("user", f"message {n}") for n in range(15)]
    (chunk,) = plan_summary(turn_index, STRATEGY)
    *before, last = build_summary_request(chunk, messages, None, words=50)

    assert before == messages[:8]
    assert last == plain_message("user", f"{INSTRUCTION}, in at most 50 words.")


def test_a_later_request_starts_with_the_summary_so_far():
    first = StandingSummary(text="So far.", through=8, tokens=80)
    turn_index = with_question(12)
    messages = [plain_message("user", f"message {n}") for n in range(25)]
    (chunk,) = plan_summary(turn_index, STRATEGY, summary=first)
    request = build_summary_request(chunk, messages, first, words=50)

    assert request[:2] == build_summary_messages("So far.")
    assert request[2:-1] == tuple(messages[8 : chunk.through])


def test_a_requested_summary_covers_all_turns_but_the_newest():
    first = StandingSummary(text="S", through=4, tokens=80)

    (chunk,) = plan_summary(with_question(5), Summarise(), keep_turns=2)
    (later,) = plan_summary(with_question(5), Summarise(), keep_turns=2, summary=first)

    assert chunk.spans == ((0, 8),)
    assert later.spans == ((4, 8),)
    assert plan_summary(with_question(5), Summarise(), keep_turns=6) == ()


@pytest.mark.parametrize("strategy", [ByTurns(max_turns=4), ByTokens(), Summarise()])
def test_every_strategy_sends_the_stored_summary(strategy):
    turn_index = with_question(6)
    summary = StandingSummary(text="S", through=8, tokens=80)

    view = plan_window(turn_index, strategy, budget=400, summary=summary)

    assert view.spans == ((8, 13),)
    assert view.dropped_turns == 0
    with pytest.raises(WindowTooSmallError):
        plan_window(turn_index, strategy, budget=100, summary=summary)


def test_undoing_a_summary_restores_the_previous_one():
    turn_index = with_question(12)
    first = StandingSummary(text="S", through=8, tokens=80)
    second = StandingSummary(text="T", through=18, tokens=80, before=first)
    larger = Summarise(tokens=ByTokens(max_tokens=10_000))

    assert plan_window(turn_index, larger, summary=second).spans == ((18, 25),)
    assert plan_window(turn_index, larger, summary=second.before).spans == ((8, 25),)
    assert plan_window(turn_index, larger, summary=first.before).spans == ((0, 25),)


def test_the_window_fits_without_the_requested_summary():
    view = plan_window(with_question(20), STRATEGY)

    assert view.tokens <= 1000


def test_a_missing_summary_changes_nothing_while_the_history_fits():
    turn_index = with_question(9)

    assert plan_summary(turn_index, STRATEGY) != ()
    assert plan_window(turn_index, STRATEGY, idle=1e9).dropped_turns == 0


def test_turns_dropped_without_a_summary_are_in_the_next_one():
    turn_index = with_question(20)
    plan_window(turn_index, STRATEGY)

    assert seen(plan_summary(turn_index, STRATEGY))[0] == 0


def test_pinned_turns_are_in_the_request_as_in_the_prompt():
    first = StandingSummary(text="S", through=8, tokens=80)
    chunks = plan_summary(with_question(12), STRATEGY, summary=first, pins=[3])

    assert chunks[0].spans[0] == (2, 4)


def test_a_turn_too_long_for_one_request_is_summarised_by_its_units():
    turn_index = TurnIndex([IndexedMessage(role="user", tokens=100)])
    for _ in range(10):
        turn_index.append(IndexedMessage(role="assistant", tokens=100, calls=("a",)))
        turn_index.append(IndexedMessage(role="tool", tokens=50, results=("a",), has_content=False))
    turn_index.append(IndexedMessage(role="assistant", tokens=10))
    turn_index.append(IndexedMessage(role="user", tokens=300))
    chunks = plan_summary(turn_index, STRATEGY)

    assert len(chunks) > 1
    assert all(chunk.spans[0][0] == 0 for chunk in chunks)
    assert set(seen(chunks)) == set(range(22))


def test_a_unit_too_long_for_any_request_is_an_error_and_changes_nothing():
    turn_index = TurnIndex(
        [IndexedMessage(role="user", tokens=5000), IndexedMessage(role="assistant", tokens=10)]
    )
    turn_index.append(IndexedMessage(role="user", tokens=10))

    with pytest.raises(WindowTooSmallError) as raised:
        plan_summary(turn_index, STRATEGY)

    assert raised.value.needed == 5000
    assert plan_window(turn_index, STRATEGY).tokens == 10


@given(st.data())
def test_every_dropped_turn_is_in_a_request_that_fits(data):
    sample = data.draw(histories(data.draw(st.sampled_from(list(PROFILES.values())))))
    turn_index = sample.turn_index()
    limit = data.draw(st.integers(1000, 1500))
    tokens = ByTokens(max_tokens=limit, floor=data.draw(st.integers(1, 300)), block=1)
    strategy = Summarise(tokens=tokens, summary_tokens=100)
    chunks = plan_summary(turn_index, strategy)
    left = split_turns(sample.messages)
    window_start = chunks[-1].through if chunks else 0

    assert set(seen(chunks)) == set(range(window_start))
    assert window_start == 0 or window_start in [turn[0] for turn in left]
    for number, chunk in enumerate(chunks):
        size = sum(turn_index.tokens(*span) for span in chunk.spans)
        assert size + INSTRUCTION_TOKENS + 100 * (1 + bool(number)) <= limit


@given(st.data())
def test_a_window_after_a_summary_is_valid_for_the_provider(data):
    profile = data.draw(st.sampled_from(list(PROFILES.values())))
    sample = data.draw(histories(profile))
    ahead = [
        OutgoingMessage(role=message.role, parts=(Text(text=message.text),))
        for message in build_summary_messages("All went well.")
    ]

    assert find_problems([*ahead, *sample.messages], profile) == ()
