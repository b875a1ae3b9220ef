"""Tokens, costs and conversations as text."""

import pytest
from tests.unit.repl.conversations import conversation_of, turn_of

from cllm.core.conversation import StandingSummary, WindowRecord
from cllm.core.reply import Usage
from cllm.repl.format import (
    SessionUsage,
    cost_of,
    format_amount,
    format_dollars,
    format_price,
    report_lines,
    stats_lines,
    status_line,
)
from cllm.window.cache_report import Amount, CacheReport, build_cache_report


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        (SessionUsage(), "$0"),
        (SessionUsage().plus(Usage(input=1), 0.5), "$0.5000"),
        (SessionUsage().plus(Usage(input=1), None), "unknown"),
        (
            SessionUsage().plus(Usage(), 0.5).plus(Usage(), None),
            "$0.5000 and 1 reply of unknown price",
        ),
        (SessionUsage().plus(Usage(), 0.0), "$0"),
    ],
)
def test_an_unknown_cost_is_shown_as_unknown(spent, text):
    assert format_amount(spent.cost) == text


def test_a_small_cost_is_not_rounded_away():
    assert format_dollars(0.000012) == "$0.000012"


def test_cached_tokens_are_shown():
    line = format_price(Usage(input=20, cache_read=80, output=5, reasoning=2), 0.01)

    assert line == "100 tokens sent (80 cached), 7 received · $0.0100"


def test_an_answer_without_usage_is_shown_as_unknown():
    assert format_price(None, None) == "tokens unknown · cost unknown"


def test_estimated_tokens_are_marked():
    assert format_price(Usage(input=3, estimated=True), None).startswith("about 3 tokens sent")


def test_the_status_line_of_a_new_conversation_has_the_model():
    assert status_line("openai/gpt-4o", None) == "openai/gpt-4o · 0 turns · cost $0"


def test_the_status_line_has_turns_tokens_of_the_last_prompt_and_cost():
    conversation = conversation_of(
        turn_of("1", usage=Usage(input=10, output=5), cost=0.01),
        turn_of("2", usage=Usage(input=5, cache_read=25, output=5), cost=0.02),
    )

    line = status_line("m", conversation, is_saved=False)

    assert line == "m · not saved · 2 turns · 30 tokens in the last prompt · cost $0.0300"


def test_with_several_calls_the_last_prompt_counts():
    window = WindowRecord(first_sequence=1, sent_messages=3, counted=40)
    conversation = conversation_of(turn_of("1", usage=Usage(input=70), cost=0.0, window=window))

    assert "40 tokens in the last prompt" in status_line("m", conversation)


def test_the_cost_includes_variants():
    conversation = conversation_of(
        turn_of("2", usage=Usage(input=10), cost=0.01),
        variants=(turn_of("1", usage=Usage(input=10), cost=0.01),),
    )

    assert "cost $0.0200" in status_line("m", conversation)


def test_a_turn_without_an_answer_costs_nothing():
    assert cost_of(conversation_of(turn_of("1"))) == Amount()


def test_the_cost_includes_summaries():
    older = StandingSummary(text="a", through=2, tokens=5, usage=Usage(input=9), cost=0.01)
    summary = StandingSummary(
        text="b", through=4, tokens=5, usage=Usage(input=9), cost=0.02, before=older
    )
    conversation = conversation_of(turn_of("1", usage=Usage(input=10), cost=0.01), summary=summary)

    assert "cost $0.0400" in status_line("m", conversation)


def test_stats_have_the_conversation_and_the_session():
    conversation = conversation_of(turn_of("1", usage=Usage(input=1, cache_write=4), cost=None))
    report = build_cache_report([conversation], lambda *_: None)

    lines = list(stats_lines(conversation, report, SessionUsage()))

    assert lines[0] == "This conversation: 1 turn, 2 messages"
    assert lines[1].split() == ["tokens", "sent", "5"]
    assert lines[3].split() == ["into", "cache", "4"]
    assert lines[5] == "  read from cache  0.0% of the tokens sent"
    assert lines[6].split() == ["cost", "unknown"]
    assert lines[7] == "  saved by cache   unknown"
    assert lines[8] == "Since the chat started: 0 replies"
    assert lines[-1].split() == ["cost", "$0"]


def test_a_report_has_cache_misses_and_their_cost():
    report = CacheReport(
        answers=2,
        summaries=1,
        usage=Usage(input=100, cache_read=300),
        counted=400,
        missed=200,
        trimmed=150,
        expired=1,
        cost=Amount(dollars=0.5, known=3),
        saved=Amount(dollars=-0.001, known=1, unknown=1),
        lost=Amount(dollars=0.02, known=1),
    )

    assert list(report_lines(report))[4:] == [
        "  read from cache  75.0% of the tokens sent",
        "  missed           200 tokens, 150 of them after trimming",
        "  expired          1 token",
        "  summaries        1",
        "  cost             $0.5000",
        "  saved by cache   -$0.001000 and 1 reply of unknown price",
        "  lost by misses   $0.0200",
    ]
