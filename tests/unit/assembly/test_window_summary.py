"""Summaries: what is asked for, in which pieces, and what stands where afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.window_histories import histories, turns_of

from cllm.core.conversation import StandingSummary
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Text, plain_message
from cllm.history.rules import PROFILES, check
from cllm.window.ledger import LedgerItem, TokenLedger
from cllm.window.plan import plan_window
from cllm.window.strategies import ByTokens, ByTurns, Summarise
from cllm.window.summary import (
    INSTRUCTION,
    INSTRUCTION_TOKENS,
    plan_summary,
    summary_request,
    summary_turn,
)
from cllm.wire.messages import OutgoingMessage

STRATEGY = Summarise(tokens=ByTokens(max_tokens=1000, floor=300, block=300), summary_tokens=100)


def asked(turns: int, size: int = 100) -> TokenLedger:
    ledger = TokenLedger()
    for _ in range(turns):
        ledger.append(LedgerItem(role="user", tokens=size // 2))
        ledger.append(LedgerItem(role="assistant", tokens=size // 2))
    ledger.append(LedgerItem(role="user", tokens=size // 2))
    return ledger


def seen(chunks) -> list[int]:
    return [n for chunk in chunks for start, stop in chunk.spans for n in range(start, stop)]


def test_nothing_is_asked_for_while_all_fits():
    assert plan_summary(asked(5), STRATEGY) == ()
    assert plan_summary(asked(50), Summarise()) == ()
    assert plan_summary(TokenLedger(), STRATEGY) == ()


def test_the_turns_that_leave_are_summarised_and_the_rest_stays():
    ledger = asked(7)
    (chunk,) = plan_summary(ledger, STRATEGY)
    summary = StandingSummary(text="S", through=chunk.through, tokens=80)
    view = plan_window(ledger, STRATEGY, summary=summary)

    assert chunk.spans == ((0, 8),)
    assert view.spans == ((8, 15),)


def test_the_request_begins_with_what_was_sent_last_and_ends_with_the_instruction():
    ledger = asked(7)
    messages = [plain_message("user", f"message {n}") for n in range(15)]
    (chunk,) = plan_summary(ledger, STRATEGY)
    *before, last = summary_request(chunk, messages, None, words=50)

    assert before == messages[:8]
    assert last == plain_message("user", f"{INSTRUCTION}, in at most 50 words.")


def test_a_later_request_has_the_summary_so_far_where_every_prompt_has_it():
    first = StandingSummary(text="So far.", through=8, tokens=80)
    ledger = asked(12)
    messages = [plain_message("user", f"message {n}") for n in range(25)]
    (chunk,) = plan_summary(ledger, STRATEGY, summary=first)
    request = summary_request(chunk, messages, first, words=50)

    assert request[:2] == summary_turn("So far.")
    assert request[2:-1] == tuple(messages[8 : chunk.through])


def test_somebody_who_wants_a_summary_gets_one_of_all_but_the_newest_turns():
    first = StandingSummary(text="S", through=4, tokens=80)

    (chunk,) = plan_summary(asked(5), Summarise(), keep_turns=2)
    (later,) = plan_summary(asked(5), Summarise(), keep_turns=2, summary=first)

    assert chunk.spans == ((0, 8),)
    assert later.spans == ((4, 8),)
    assert plan_summary(asked(5), Summarise(), keep_turns=6) == ()


@pytest.mark.parametrize("strategy", [ByTurns(max_turns=4), ByTokens(), Summarise()])
def test_a_summary_that_stands_is_sent_by_every_strategy(strategy):
    ledger = asked(6)
    summary = StandingSummary(text="S", through=8, tokens=80)

    view = plan_window(ledger, strategy, budget=400, summary=summary)

    assert view.spans == ((8, 13),)
    assert view.newly_left == 0
    with pytest.raises(WindowTooSmallError):
        plan_window(ledger, strategy, budget=100, summary=summary)


def test_a_summary_is_undone_by_going_back_to_the_one_before():
    ledger = asked(12)
    first = StandingSummary(text="S", through=8, tokens=80)
    second = StandingSummary(text="T", through=18, tokens=80, before=first)
    larger = Summarise(tokens=ByTokens(max_tokens=10_000))

    assert plan_window(ledger, larger, summary=second).spans == ((18, 25),)
    assert plan_window(ledger, larger, summary=second.before).spans == ((8, 25),)
    assert plan_window(ledger, larger, summary=first.before).spans == ((0, 25),)


def test_without_the_summary_that_was_asked_for_the_window_still_fits():
    view = plan_window(asked(20), STRATEGY)

    assert view.tokens <= 1000


def test_a_summary_that_was_not_given_changes_nothing_as_long_as_there_is_room():
    ledger = asked(9)

    assert plan_summary(ledger, STRATEGY) != ()
    assert plan_window(ledger, STRATEGY, idle=1e9).newly_left == 0


def test_turns_that_left_without_a_summary_are_in_the_next_one():
    ledger = asked(20)
    plan_window(ledger, STRATEGY)

    assert seen(plan_summary(ledger, STRATEGY))[0] == 0


def test_pinned_turns_before_the_cut_are_in_the_request_as_they_are_in_the_prompt():
    first = StandingSummary(text="S", through=8, tokens=80)
    chunks = plan_summary(asked(12), STRATEGY, summary=first, pins=[3])

    assert chunks[0].spans[0] == (2, 4)


def test_a_turn_too_long_for_one_request_is_summarised_by_its_units():
    ledger = TokenLedger([LedgerItem(role="user", tokens=100)])
    for _ in range(10):
        ledger.append(LedgerItem(role="assistant", tokens=100, calls=("a",)))
        ledger.append(LedgerItem(role="tool", tokens=50, results=("a",), says=False))
    ledger.append(LedgerItem(role="assistant", tokens=10))
    ledger.append(LedgerItem(role="user", tokens=300))
    chunks = plan_summary(ledger, STRATEGY)

    assert len(chunks) > 1
    assert all(chunk.spans[0][0] == 0 for chunk in chunks)
    assert set(seen(chunks)) == set(range(22))


def test_a_unit_too_long_for_any_request_is_an_error_and_changes_nothing():
    ledger = TokenLedger(
        [LedgerItem(role="user", tokens=5000), LedgerItem(role="assistant", tokens=10)]
    )
    ledger.append(LedgerItem(role="user", tokens=10))

    with pytest.raises(WindowTooSmallError) as raised:
        plan_summary(ledger, STRATEGY)

    assert raised.value.needed == 5000
    assert plan_window(ledger, STRATEGY).tokens == 10


@given(st.data())
def test_every_turn_that_leaves_is_in_a_request_that_fits(data):
    said = data.draw(histories(data.draw(st.sampled_from(list(PROFILES.values())))))
    ledger = said.ledger()
    limit = data.draw(st.integers(1000, 1500))
    tokens = ByTokens(max_tokens=limit, floor=data.draw(st.integers(1, 300)), block=1)
    strategy = Summarise(tokens=tokens, summary_tokens=100)
    chunks = plan_summary(ledger, strategy)
    left = turns_of(said.messages)
    cut = chunks[-1].through if chunks else 0

    assert set(seen(chunks)) == set(range(cut))
    assert cut == 0 or cut in [turn[0] for turn in left]
    for number, chunk in enumerate(chunks):
        size = sum(ledger.tokens(*span) for span in chunk.spans)
        assert size + INSTRUCTION_TOKENS + 100 * (1 + bool(number)) <= limit


@given(st.data())
def test_a_view_behind_a_summary_is_one_that_the_provider_takes(data):
    profile = data.draw(st.sampled_from(list(PROFILES.values())))
    said = data.draw(histories(profile))
    ahead = [
        OutgoingMessage(role=message.role, parts=(Text(text=message.text),))
        for message in summary_turn("All went well.")
    ]

    assert check([*ahead, *said.messages], profile) == ()
