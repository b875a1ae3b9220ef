"""The example conversations: what they show, and that their figures are consistent."""

from datetime import UTC, datetime, timedelta
from importlib import resources

import pytest

from cllm.cli.demo_conversations import FILE, build_demo_conversations
from cllm.core.reply import Usage
from cllm.engine.sent_prompt import view_prompt
from cllm.stores.usage import list_calls, sum_usage
from cllm.wire.convert import parts_of

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def price(provider: str, _model: str, usage: Usage, _at: datetime) -> float | None:
    return None if provider == "ollama" else usage.total / 1e6


@pytest.fixture(scope="module")
def conversations():
    return {one.title: one for one in build_demo_conversations(NOW, price)}


def test_the_file_is_small():
    assert len(resources.files("cllm.cli").joinpath(FILE).read_bytes()) < 60_000


def test_ids_are_the_same_in_every_run(conversations):
    again = build_demo_conversations(NOW + timedelta(days=1), price)
    assert [one.id for one in again] == [one.id for one in conversations.values()]


def test_they_end_within_the_last_30_days_in_order(conversations):
    for one in conversations.values():
        times = [time for turn in one.turns for time in (turn.started_at, turn.ended_at)]
        if one.parent is None:
            assert times == sorted(times)
            assert one.created_at == times[0]
            assert one.updated_at == times[-1]
        assert NOW - timedelta(days=30) < one.updated_at < NOW


def test_they_show_every_state_source_and_kind_of_model(conversations):
    turns = [turn for one in conversations.values() for turn in one.turns]
    assert {turn.state for turn in turns} == {"complete", "incomplete", "failed"}
    assert {turn.provider for turn in turns} >= {"openai", "anthropic", "local", "ollama"}
    sources = {one.source for one in conversations.values()}
    assert sources >= {"shell", "chat", "claude-code", "codex"}
    assert any(one.variants for one in conversations.values())
    assert any(one.parent for one in conversations.values())
    assert any(one.archived_at for one in conversations.values())
    assert any(one.context_record and one.context_record.commands for one in conversations.values())


def test_they_contain_tools_thinking_and_an_image(conversations):
    parts = [
        type(part).__name__
        for one in conversations.values()
        for turn in one.turns
        for message in turn.messages
        for part in parts_of(message)
    ]
    assert {"Text", "Thinking", "ToolCall", "ToolResult", "Image"} <= set(parts)


def test_every_window_agrees_with_the_messages(conversations):
    for one in conversations.values():
        for turn in (*one.turns, *one.variants):
            assert view_prompt(one, turn).exact, one.title


def test_the_counted_prompt_is_that_of_the_last_call(conversations):
    first, second = conversations["Fix the flaky test in test_upload.py"].turns
    assert first.window.counted < second.window.counted < 40_000
    assert second.usage.prompt > 3 * second.window.counted


def test_a_small_window_leaves_turns_out_but_not_the_pinned_one(conversations):
    campaign = next(one for one in conversations.values() if one.pins)
    prompt = view_prompt(campaign, campaign.turns[-1])
    assert [(gap.first, gap.last, gap.reason) for gap in prompt.left_out] == [(3, 6, "window")]


def test_the_usage_has_cached_tokens_on_many_days(conversations):
    calls = [call for one in conversations.values() for call in list_calls(one)]
    days = sum_usage(calls, since=None, until=None, by="day")
    assert len(days) >= 20
    assert sum(day.usage.cache_read for day in days) > 0
    assert sum(day.unpriced for day in days) == 1
