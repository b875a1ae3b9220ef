"""Summaries in the engine: requested with a prefix of the prompt, saved whole or not at all."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.scripted_provider import ScriptedProvider, text_reply_events
from tests.unit.engine.conftest import PausingProvider
from tests.unit.engine.summary_provider import (
    LONG,
    SMALL,
    SummaryProvider,
    is_summary_request,
    make,
    say,
    summarise,
    system_text,
    texts,
)

from cllm.core.errors import (
    BadReplyError,
    RateLimitedError,
    StoreUnavailableError,
    UsageError,
    WindowTooSmallError,
)
from cllm.core.message import plain_message
from cllm.core.reply import Noticed, ReplyFinished, Usage
from cllm.engine.retry import RetryRules
from cllm.engine.summaries import SummarySaved, SummaryStarted
from cllm.history.system_prompt import GivenPrompt
from cllm.window.strategies import ByTurns
from cllm.window.summary import build_summary_messages


class TestBeforeATurn:
    async def test_dropped_turns_are_summarised_and_the_prompt_starts_with_the_summary(
        self, talk, store
    ):
        provider = SummaryProvider()

        await talk(provider, 8)

        conversation = await store.load("demo")
        summary = conversation.summary
        assert summary is not None
        last = conversation.turns[-1].window
        assert last.summary_through == summary.through
        assert last.first_sequence == summary.through + 1
        assert tuple(provider.prompts[-1].messages[:2]) == build_summary_messages(summary.text)
        assert conversation.message_count == 16

    async def test_every_dropped_message_was_in_a_summary_request(self, talk, store):
        provider = SummaryProvider()

        await talk(provider, 12)

        conversation = await store.load("demo")
        covered = [m for n, _, m in conversation.numbered_messages() if n <= 12]
        requested = {m.raw for prompt in provider.summary_requests for m in prompt.messages}
        assert conversation.summary.through >= 12
        assert all(message.raw in requested for message in covered)

    async def test_the_summary_request_starts_like_the_last_prompt(self, talk):
        provider = SummaryProvider()

        await talk(
            provider, 12, system=GivenPrompt(text="Be brief."), parameters={"temperature": 0.5}
        )

        assert provider.summary_requests
        for number, prompt in enumerate(provider.prompts):
            if is_summary_request(prompt):
                before = provider.prompts[number - 1]
                shared = prompt.messages[:-1]
                assert len(shared) > 0
                assert before.messages[: len(shared)] == shared
                assert prompt.system == before.system
                assert system_text(prompt) == "Be brief."
                assert prompt.parameters["temperature"] == 0.5
                assert prompt.model == before.model

    async def test_a_summary_is_reported_and_saved_as_a_notice(self, talk, store):
        provider = SummaryProvider()

        results = await talk(provider, 6)

        reported = [e.notice for events in results for e in events if isinstance(e, Noticed)]
        assert [notice.code for notice in reported] == ["summarised"] * provider.summaries
        saved = [n.code for turn in (await store.load("demo")).turns for n in turn.notices]
        assert saved == ["summarised"] * provider.summaries

    async def test_a_failed_summary_is_reported_and_the_turn_continues(self, talk, store):
        failing = RateLimitedError("Slow down.", provider="scripted")

        results = await talk(SummaryProvider(summary=[failing]), 8)

        reported = [e.notice for events in results for e in events if isinstance(e, Noticed)]
        assert "summary_failed" in {notice.code for notice in reported}
        assert all("Slow down." in n.message for n in reported if n.code == "summary_failed")
        conversation = await store.load("demo")
        assert conversation.summary is None
        assert [turn.state for turn in conversation.turns] == ["complete"] * 8
        assert conversation.turns[-1].window.first_sequence > 1

    async def test_a_message_above_the_limit_is_refused_before_any_call(
        self, talk, engine, ask, store
    ):
        provider = SummaryProvider()
        await talk(provider, 3)
        before = await store.load("demo")
        requested = len(provider.prompts)

        with pytest.raises(WindowTooSmallError):
            await say(engine(store, provider), ask(LONG * 10, window=summarise, saves_unsent=True))

        assert len(provider.prompts) == requested
        assert await store.load("demo") == before

    async def test_a_summary_that_leaves_no_room_is_not_requested(self, talk, engine, ask, store):
        provider = SummaryProvider()
        await talk(provider, 3)
        wide = msgspec.structs.replace(SMALL, summary_tokens=900)

        await say(engine(store, provider), ask(LONG * 5, window=lambda _: wide))

        assert provider.summaries == 0
        assert (await store.load("demo")).summary is None

    async def test_a_read_only_turn_makes_no_summary(self, talk, engine, ask, store):
        provider = SummaryProvider()
        await talk(provider, 3)

        await say(
            engine(store, provider), ask(LONG * 3, window=summarise, read_only=True, create=None)
        )

        assert provider.summaries == 0


class TestOnRequest:
    async def test_all_turns_but_the_newest_are_summarised_with_usage_and_cost(
        self, talk, engine, empty_request, store, clock
    ):
        usage = Usage(input=300, output=9)
        provider = SummaryProvider(usage=usage)
        await talk(provider, 3)
        running = engine(store, provider, price=lambda _route: lambda used: used.output / 100)

        events = await make(running, empty_request(window=summarise))

        assert isinstance(events[0], SummaryStarted)
        assert (events[0].piece, events[0].pieces, events[0].messages) == (1, 1, 4)
        summary = (await store.load("demo")).summary
        assert events[-1] == SummarySaved(summary=summary, turns=2)
        assert (summary.text, summary.through, summary.model) == ("Summary 1.", 4, "m")
        assert (summary.usage, summary.cost, summary.made_at) == (usage, 0.09, clock())
        assert 9 < summary.tokens < 50

    async def test_undoing_a_summary_sends_its_turns_again(
        self, talk, engine, empty_request, store
    ):
        provider = SummaryProvider()
        window = {"window": lambda _: ByTurns(max_turns=5)}
        await talk(provider, 2, **window)
        running = engine(store, provider)
        await make(running, empty_request(**window))
        await talk(provider, 1, first=2, **window)
        assert texts(provider.prompts[-1])[2].startswith("q1")
        await make(running, empty_request(**window))
        first = (await store.load("demo")).summary.before

        undone = await running.undo_summary("demo")
        assert undone.before == first
        assert (await store.load("demo")).summary == first
        await running.undo_summary("demo")
        await talk(provider, 1, first=3, **window)

        assert (await store.load("demo")).summary is None
        assert texts(provider.prompts[-1])[0].startswith("q0")
        assert len(provider.prompts[-1].messages) == 7
        with pytest.raises(UsageError):
            await running.undo_summary("demo")

    async def test_nothing_to_summarise_is_an_error(self, talk, engine, empty_request, store):
        provider = SummaryProvider()
        await talk(provider, 1)

        with pytest.raises(UsageError, match="nothing to summarise"):
            await make(engine(store, provider), empty_request(window=summarise))

        assert provider.summaries == 0

    @pytest.mark.parametrize(
        "answer",
        [
            text_reply_events(" "),
            text_reply_events("word " * 500),
            [ReplyFinished(message=plain_message("assistant", "I was cut"), stop_reason="length")],
            [],
        ],
        ids=["blank", "endless", "cut", "silent"],
    )
    async def test_a_reply_that_is_no_complete_summary_changes_nothing(
        self, answer, talk, engine, empty_request, store
    ):
        provider = SummaryProvider(summary=answer)
        await talk(provider, 3)
        before = await store.load("demo")

        with pytest.raises(BadReplyError):
            await make(engine(store, provider), empty_request(window=summarise))

        assert await store.load("demo") == before

    async def test_nothing_is_saved_if_a_later_chunk_fails(
        self, engine, empty_request, store, talk
    ):
        await talk(SummaryProvider(), 6, window=None)
        before = await store.load("demo")
        down = RateLimitedError("Slow down.", provider="scripted")
        provider = ScriptedProvider(["First piece.", down])
        running = engine(store, provider, retry=RetryRules(retries=0))

        with pytest.raises(RateLimitedError):
            await make(running, empty_request(window=summarise))

        assert len(provider.prompts) == 2
        assert "First piece." in texts(provider.prompts[1])[0]
        assert await store.load("demo") == before

    async def test_an_interrupted_summary_changes_nothing(self, engine, empty_request, store, talk):
        await talk(SummaryProvider(), 3)
        before = await store.load("demo")
        provider = PausingProvider(text_reply_events("So far")[:-1])
        work = asyncio.ensure_future(make(engine(store, provider), empty_request(window=summarise)))
        await provider.reached.wait()

        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        assert provider.ended
        assert await store.load("demo") == before

    async def test_a_summary_is_discarded_if_another_one_was_saved(
        self, engine, empty_request, store, talk
    ):
        await talk(SummaryProvider(), 3)
        provider = PausingProvider([], text_reply_events("Too late."))
        late = asyncio.ensure_future(make(engine(store, provider), empty_request(window=summarise)))
        await provider.reached.wait()
        await make(engine(store, SummaryProvider()), empty_request(window=summarise))
        provider.gate.set()

        with pytest.raises(UsageError, match="Another summary"):
            await late

        assert (await store.load("demo")).summary.text == "Summary 1."

    async def test_a_store_that_cannot_save_the_summary_is_an_error(
        self, engine, empty_request, store, talk, monkeypatch
    ):
        await talk(SummaryProvider(), 3)

        async def full(*_: Any, **__: Any) -> None:
            raise StoreUnavailableError("The disk is full.")

        monkeypatch.setattr(store, "update", full)
        with pytest.raises(StoreUnavailableError):
            await make(engine(store, SummaryProvider()), empty_request(window=summarise))

    async def test_a_dynamic_conversation_is_summarised_without_its_clients_prompt(
        self, engine, empty_request, store, talk
    ):
        secret = GivenPrompt(text="The client's own prompt.", explicit=True)
        provider = SummaryProvider()
        await talk(provider, 3, system_policy="dynamic", system=secret)

        await make(
            engine(store, provider),
            empty_request(
                window=summarise, system_policy="dynamic", system=secret, prefix="Be kind."
            ),
        )

        assert system_text(provider.prompts[-2]) == "The client's own prompt."
        assert system_text(provider.prompts[-1]) == "Be kind."
        summary = (await store.load("demo")).summary
        assert "client" not in msgspec.json.encode(summary).decode()

    async def test_parameters_that_would_change_a_summary_are_left_out(
        self, engine, empty_request, store, talk
    ):
        provider = SummaryProvider()
        await talk(provider, 3)
        parameters = {
            "max_tokens": 10,
            "temperature": 0.5,
            "response_format": {"type": "json_object"},
            "stop": ["."],
            "tool_choice": "required",
        }

        await make(engine(store, provider), empty_request(window=summarise, parameters=parameters))

        assert provider.prompts[-1].parameters == {"max_tokens": 1224, "temperature": 0.5}
