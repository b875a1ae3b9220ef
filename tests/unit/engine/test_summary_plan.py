"""Plans of summaries, and the prompts that request them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.scripted_provider import ScriptedProvider
from tests.turn_requests import make_turn_request

from cllm.core.conversation import StoredConversation, SystemRecord, Turn
from cllm.core.errors import UpstreamError, UsageError
from cllm.core.message import plain_message
from cllm.engine.prompt_history import ModelContext
from cllm.engine.request import Attempt, ModelRoute
from cllm.engine.summary_plan import (
    SummaryInput,
    build_summary_input,
    build_summary_prompt,
    has_summary_strategy,
    has_unsaved_prompt,
    plan_for_turn,
    plan_on_request,
    summary_failed_notice,
)
from cllm.history.context import NO_CONTEXT
from cllm.history.system_prompt import GivenPrompt, SystemChoice
from cllm.window.strategies import ByTokens, ByTurns, Strategy, Summarise

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
LONG = "word " * 100
SMALL = Summarise(tokens=ByTokens(max_tokens=400), summary_tokens=50)
PROMPT = GivenPrompt(text="Be brief.", said=plain_message("system", "Be brief."))


def turn(number: int) -> Turn:
    messages = (plain_message("user", LONG), plain_message("assistant", f"answer {number}"))
    return Turn(
        id=f"t{number}", place=f"t{number}", state="complete", messages=messages, started_at=NOW
    )


def conversation(turns: int, **fields: Any) -> StoredConversation:
    return StoredConversation(
        id="demo",
        created_at=NOW,
        updated_at=NOW,
        turns=tuple(map(turn, range(turns))),
        **fields,
    )


def summary_input(turns: int, strategy: Strategy = SMALL, **parameters: Any) -> SummaryInput:
    context = ModelContext(model="m", provider="scripted", context_window=lambda: None, now=NOW)
    attempt = Attempt(
        route=ModelRoute(provider=ScriptedProvider(), model="m"),
        model="m",
        choice=SystemChoice(message=None),
        context=NO_CONTEXT,
        price=lambda _usage: None,
        model_context=context,
    )
    request = make_turn_request(
        model="m",
        messages=(plain_message("user", "And now?"),),
        window=lambda _model: strategy,
        parameters=parameters,
    )
    return build_summary_input(conversation(turns), request, attempt)


@pytest.mark.parametrize(
    ("window", "read_only", "expected"),
    [(SMALL, False, True), (SMALL, True, False), (ByTurns(), False, False), (None, False, False)],
)
def test_only_a_saved_turn_with_the_strategy_makes_summaries(window, read_only, expected):
    strategy = None if window is None else lambda _model: window
    request = make_turn_request(model="m", messages=(), window=strategy, read_only=read_only)

    assert has_summary_strategy(request, "m") is expected


@pytest.mark.parametrize(
    ("record", "system", "expected"),
    [
        (SystemRecord(policy="dynamic"), PROMPT, True),
        (SystemRecord(policy="dynamic"), GivenPrompt(), False),
        (SystemRecord(policy="captured"), PROMPT, False),
        (None, PROMPT, True),
        (None, GivenPrompt(text="Be brief."), False),
    ],
)
def test_a_prompt_that_is_not_saved_is_recognised(record, system, expected):
    request = make_turn_request(model="m", messages=(), system=system)

    assert has_unsaved_prompt(conversation(1, system_record=record), request) is expected


def test_a_short_history_needs_no_summary():
    assert plan_for_turn(summary_input(1)) is None


def test_a_long_history_is_summarised_before_the_turn():
    plan = plan_for_turn(summary_input(6))

    assert plan is not None
    assert plan.is_for_turn
    assert 1 <= plan.turns < 7


def test_a_requested_summary_covers_all_turns_but_the_newest():
    plan = plan_on_request(summary_input(3, ByTurns()))

    assert (plan.turns, plan.through) == (3, 6)


def test_one_turn_is_nothing_to_summarise():
    with pytest.raises(UsageError, match="nothing to summarise"):
        plan_on_request(summary_input(0))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {"max_tokens": 1124}),
        ({"max_tokens": 10, "temperature": 0}, {"max_tokens": 1124, "temperature": 0}),
        ({"max_tokens": 9000}, {"max_tokens": 9000}),
        ({"stop": ["x"], "tool_choice": "required"}, {"max_tokens": 1124}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto", "max_tokens": 1124}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    ],
)
def test_a_summary_prompt_has_parameters_for_a_complete_text(parameters, expected):
    source = summary_input(6, **parameters)
    plan = plan_on_request(source)

    prompt = build_summary_prompt(source, plan.chunks[0], None)

    assert prompt.parameters == expected
    assert prompt.messages[-1].text.startswith("Summarise our conversation")
    assert prompt.window is None


def test_the_notice_of_a_failed_summary_contains_the_error():
    notice = summary_failed_notice(UpstreamError("It is down.", provider="p"))

    assert (notice.code, notice.path) == ("summary_failed", "messages")
    assert notice.message == "The summary failed and the conversation is unchanged. It is down."
