"""Summaries that fail, come too late, or cover deleted messages."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.scripted_provider import text_reply_events
from tests.unit.engine.conftest import PausingProvider
from tests.unit.engine.summary_provider import (
    LONG,
    SMALL,
    SummaryProvider,
    is_summary_request,
    make,
    say,
    summarise,
)

from cllm.core.conversation import StandingSummary
from cllm.core.errors import (
    BadReplyError,
    ConversationBusyError,
    RateLimitedError,
    UsageError,
)
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, NewConversation, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyFinished, StopReason, Usage
from cllm.engine.request import ModelRoute
from cllm.engine.retry import RetryRules
from cllm.engine.summaries import MAX_UNDO
from cllm.history.system_prompt import GivenPrompt
from cllm.window.strategies import ByTokens, Summarise

DOWN = RateLimitedError("Slow down.", provider="scripted")


def finished(stop: StopReason, message: Message | None = None, **more: Any) -> list[Any]:
    said = plain_message("assistant", "I cannot help with that.") if message is None else message
    return [ReplyFinished(message=said, stop_reason=stop, **more)]


def calling() -> Message:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    fields = {"role": "assistant", "content": "Let me look first.", "tool_calls": [call]}
    return Message(role="assistant", raw=msgspec.json.encode(fields))


def thinking() -> Message:
    blocks = [
        {"type": "thinking", "thinking": "Hm. " * 400, "signature": "signed"},
        {"type": "text", "text": "We counted."},
    ]
    raw = msgspec.json.encode({"role": "assistant", "content": blocks})
    return Message(role="assistant", raw=raw, dialect="anthropic")


def codes(results: list[list[Any]]) -> list[str]:
    return [one.notice.code for events in results for one in events if isinstance(one, Noticed)]


class TestInvalidSummaries:
    @pytest.mark.parametrize(
        "answer",
        [
            finished("refusal"),
            finished("content_filter"),
            finished("pause"),
            finished("tool_calls", calling()),
            finished("end", calling()),
        ],
        ids=["refused", "filtered", "paused", "calls", "calls and ends"],
    )
    async def test_other_replies_are_not_saved_as_a_summary(
        self, answer, talk, engine, empty_request, store
    ):
        provider = SummaryProvider(summary=answer)
        await talk(provider, 3)
        before = await store.load("demo")

        with pytest.raises(BadReplyError):
            await make(engine(store, provider), empty_request(window=summarise))

        assert await store.load("demo") == before

    async def test_thinking_tokens_are_not_counted_as_summary(
        self, talk, engine, empty_request, store
    ):
        """If a provider counts thinking as output, a short summary does not count as a long one."""
        answer = finished("end", thinking(), usage=Usage(input=300, output=900))
        provider = SummaryProvider(summary=answer)
        await talk(provider, 3)

        await make(engine(store, provider), empty_request(window=summarise))

        summary = (await store.load("demo")).summary
        assert summary.text == "We counted."
        assert summary.tokens < 60
        assert summary.usage.output == 900

    async def test_an_estimated_usage_is_no_count_of_the_summary(
        self, talk, engine, empty_request, store
    ):
        usage = Usage(input=300, output=190, estimated=True)
        provider = SummaryProvider(summary=text_reply_events("We counted.", usage=usage))
        await talk(provider, 3)

        await make(engine(store, provider), empty_request(window=summarise))

        summary = (await store.load("demo")).summary
        assert summary.tokens < 60
        assert summary.usage == usage

    async def test_a_summary_that_leaves_no_room_for_the_new_message_is_discarded(
        self, talk, engine, ask, store
    ):
        """It may be twice as long as requested; a longer one is discarded."""
        wide = msgspec.structs.replace(SMALL, summary_tokens=250)
        provider = SummaryProvider(summary=text_reply_events("said " * 400))
        await talk(provider, 3, window=lambda _: wide)

        events = await say(engine(store, provider), ask("word " * 530, window=lambda _: wide))

        assert provider.summaries == 1
        assert codes([events]) == ["summary_failed"]
        assert (await store.load("demo")).summary is None


class TestRepeatedSummaries:
    async def test_a_failed_summary_is_repeated_only_when_more_turns_are_dropped(self, talk, store):
        provider = SummaryProvider(summary=[DOWN])

        results = await talk(provider, 20)

        turns = (await store.load("demo")).turns
        moved = {turn.window.first_sequence for turn in turns} - {1}
        assert provider.summaries == len(moved) < 10
        assert codes(results).count("summary_failed") == provider.summaries

    async def test_with_a_block_a_failed_summary_is_repeated_when_there_is_no_room(self, talk):
        early = Summarise(tokens=ByTokens(max_tokens=1500, floor=300, block=200))
        provider = SummaryProvider(summary=[DOWN])

        await talk(provider, 6, window=lambda _: early)

        assert provider.summaries == 1

    async def test_a_later_summary_covers_all_dropped_turns(self, talk, store):
        await talk(SummaryProvider(summary=[DOWN]), 10)
        provider = SummaryProvider()

        await talk(provider, 6, first=10)

        requested = {m.raw for prompt in provider.summary_requests for m in prompt.messages}
        conversation = await store.load("demo")
        covered = [
            message
            for number, _, message in conversation.numbered_messages()
            if number <= conversation.summary.through
        ]
        assert len(covered) > 10
        assert all(message.raw in requested for message in covered)

    async def test_a_requested_summary_is_made_immediately(
        self, talk, engine, empty_request, store
    ):
        await talk(SummaryProvider(summary=[DOWN]), 8)

        await make(engine(store, SummaryProvider()), empty_request(window=summarise))

        assert (await store.load("demo")).summary.through == 14

    async def test_a_summary_after_a_successful_one_is_not_delayed(
        self, talk, engine, empty_request, store
    ):
        await talk(SummaryProvider(summary=[DOWN]), 8)
        await make(engine(store, SummaryProvider()), empty_request(window=summarise))
        first = (await store.load("demo")).summary

        await talk(SummaryProvider(), 6, first=8)

        assert (await store.load("demo")).summary.before == first

    async def test_an_expired_cache_is_no_reason_for_a_summary(self, talk, clock):
        """It would cost one more request in each turn of an occasional user."""
        provider = SummaryProvider()
        half_full: dict[str, Any] = {
            "window": lambda _: Summarise(tokens=ByTokens(max_tokens=2500))
        }
        await talk(provider, 9, **half_full)

        clock.advance(100_000)
        results = await talk(provider, 1, first=9, **half_full)

        assert provider.summaries == 0
        assert codes(results) == []

    async def test_a_long_earlier_message_does_not_prevent_a_summary_of_others(
        self, talk, engine, ask, store
    ):
        provider = SummaryProvider()
        await say(engine(store, provider), ask("word " * 850, window=summarise))

        results = await talk(provider, 8)

        assert "summary_failed" not in codes(results)
        assert (await store.load("demo")).summary.through > 2


class Late:
    """A summary whose reply waits until the gate is opened."""

    def __init__(self, provider: PausingProvider, work: "asyncio.Future[list[Any]]") -> None:
        self.gate = provider.gate
        self.work = work


class TestConcurrentChanges:
    @pytest.fixture
    async def late(self, talk, engine, empty_request, store):
        """A requested summary of the first two turns, without a reply yet."""
        await talk(SummaryProvider(), 3)
        provider = PausingProvider([], text_reply_events("Too late."))
        running = engine(store, provider)
        work = asyncio.ensure_future(make(running, empty_request(window=summarise)))
        await provider.reached.wait()
        return Late(provider, work)

    async def test_a_summary_of_deleted_messages_is_discarded(self, late, talk, store):
        await store.delete_from("demo", 3)
        await talk(SummaryProvider(), 2, first=7)
        late.gate.set()

        with pytest.raises(UsageError, match="changed in the meantime"):
            await late.work

        assert (await store.load("demo")).summary is None

    async def test_a_summary_is_saved_if_messages_were_only_added(self, late, talk, store):
        await talk(SummaryProvider(), 1, first=3, window=None)
        late.gate.set()

        await late.work

        assert (await store.load("demo")).summary.text == "Too late."

    async def test_one_of_two_concurrent_summaries_is_saved(self, talk, store):
        await talk(SummaryProvider(), 3)
        first = StandingSummary(text="First.", through=4, tokens=9)
        second = StandingSummary(text="Second.", through=2, tokens=9)
        await store.update("demo", Changes(summary=first))

        with pytest.raises(UsageError, match="another one was saved"):
            await store.update("demo", Changes(summary=second))

        assert (await store.load("demo")).summary == first
        third = msgspec.structs.replace(second, through=5, before=first)
        await store.update("demo", Changes(summary=third))
        await store.update("demo", Changes(summary=first))
        assert (await store.load("demo")).summary == first

    async def test_a_summary_made_during_a_turn_is_saved_when_it_ends(
        self, late, store, engine, ask, monkeypatch
    ):
        monkeypatch.setattr(store, "_patience", 0.01)
        refused = asyncio.Event()
        update = store.update

        async def update_or_note(*given: Any, **named: Any) -> None:
            try:
                await update(*given, **named)
            except ConversationBusyError:
                refused.set()
                raise

        monkeypatch.setattr(store, "update", update_or_note)
        slow = PausingProvider([], text_reply_events("Done."))
        turn = asyncio.ensure_future(say(engine(store, slow), ask("And now?")))
        await slow.reached.wait()
        late.gate.set()
        await refused.wait()
        slow.gate.set()

        await turn
        await late.work

        conversation = await store.load("demo")
        assert conversation.summary.text == "Too late."
        assert len(conversation.turns) == 4


class TestCoveredMessages:
    @pytest.fixture
    async def summarised(self, talk, engine, empty_request, store):
        """Five turns; the first summary covers one of them, the second four."""
        provider = SummaryProvider()
        await talk(provider, 2, window=None)
        await make(engine(store, provider), empty_request(window=None))
        await talk(provider, 3, first=2, window=None)
        await make(engine(store, provider), empty_request(window=None))
        conversation = await store.load("demo")
        assert (conversation.summary.through, conversation.summary.before.through) == (8, 2)
        await store.update("demo", Changes(pins=(1, 6)))
        return provider

    async def test_deleting_covered_messages_undoes_the_summary_and_pins(
        self, summarised, store, talk
    ):
        await store.delete_from("demo", 6)

        conversation = await store.load("demo")
        assert conversation.summary.through == 2
        assert conversation.pins == (1,)
        await talk(summarised, 1, first=9)
        shown = [message.text[:3] for message in summarised.prompts[-1].messages]
        assert shown == ["Sum", "Und", "q0 ", "ans", "q1 ", "ans", "q2 ", "q9 "]

    async def test_a_branch_has_the_newest_summary_that_covers_only_its_messages(
        self, summarised, store, engine, ask
    ):
        branch = await store.branch("demo", NewConversation(id="early"), at=4)

        assert branch.summary.through == 2
        await say(engine(store, summarised), ask("Go on", ref="early", window=summarise))
        shown = [message.text[:3] for message in summarised.prompts[-1].messages]
        assert shown == ["Sum", "Und", "q0 ", "ans", "q1 ", "ans", "Go "]

    @pytest.mark.usefixtures("summarised")
    async def test_choosing_a_variant_of_a_covered_turn_undoes_the_summary(self, store):
        conversation = await store.load("demo")
        place = conversation.turns[1].place
        await _add_variant(store, place, conversation)

        chosen = await store.choose_variant("demo", "other")

        assert chosen.summary.through == 2
        assert (await store.load("demo")).summary.through == 2
        assert chosen.message_count == 11


async def _add_variant(store: Any, place: str, conversation: Any) -> None:
    """A variant of an early turn with one more message, made while that turn was the last."""
    start = TurnStart(id="other", messages=(plain_message("user", "Else?"),), visible=False)
    await store.delete_from("demo", 5)
    lease = await store.begin_turn("demo", msgspec.structs.replace(start, place=place))
    messages = (*start.messages, plain_message("user", "Now?"), plain_message("assistant", "Yes."))
    turn = msgspec.structs.replace(lease.turn, messages=messages, state="complete")
    await store.finish_turn(lease, turn)
    await store.choose_variant("demo", conversation.turns[1].id)
    for later in conversation.turns[2:]:
        lease = await store.begin_turn("demo", TurnStart(id=later.id, messages=later.asked))
        await store.finish_turn(lease, msgspec.structs.replace(later, place=lease.turn.place))
    await store.update("demo", Changes(summary=conversation.summary))

    async def test_the_number_of_undo_steps_is_limited_and_all_usage_is_known(
        self, talk, engine, ask, empty_request, store
    ):
        """An unlimited chain would make the conversation longer with every summary."""
        usage = Usage(input=100, output=5)
        provider = SummaryProvider(usage=usage)
        running = engine(store, provider, price=lambda _route: lambda _used: 0.01)
        for number in range(MAX_UNDO + 5):
            await say(running, ask(f"q{number}"))
            if number:
                await make(running, empty_request())

        chain = [(await store.load("demo")).summary]
        while chain[-1].before is not None:
            chain.append(chain[-1].before)
        assert len(chain) == MAX_UNDO + 1
        assert sum(one.usage.input for one in chain) == 100 * (MAX_UNDO + 4)
        assert sum(one.cost for one in chain) == pytest.approx(0.01 * (MAX_UNDO + 4))


class TestUndoneSummary:
    async def test_all_messages_are_loaded_after_an_undone_summary(
        self, talk, engine, ask, empty_request, store
    ):
        """The running turn is stored too, and must not count as loaded."""
        provider = SummaryProvider()
        window: dict[str, Any] = {"window": lambda _: ByTokens(max_tokens=5000)}
        await talk(provider, 2, **window)
        await make(engine(store, provider), empty_request(**window))
        await talk(provider, 1, first=2, **window)
        await engine(store, provider).undo_summary("demo")
        said = tuple(plain_message("user", f"line {n}") for n in range(4))
        request = ask(**window).with_input(messages=said)

        await say(engine(store, provider), request)

        shown = [message.text[:3] for message in provider.prompts[-1].messages]
        assert shown == ["q0 ", "ans", "q1 ", "ans", "q2 ", "ans", *["lin"] * 4]


class TestSummaryRequests:
    @pytest.mark.parametrize(
        ("choice", "saved"),
        [
            ("none", True),
            ("auto", True),
            ({"type": "auto", "disable_parallel_tool_use": True}, True),
            ({"type": "none"}, True),
            ("required", False),
            ({"type": "any"}, False),
            ({"type": "function", "function": {"name": "look"}}, False),
        ],
    )
    async def test_tool_choice_stays_unless_it_forces_a_call(
        self, choice, saved, talk, engine, empty_request, store
    ):
        """An unchanged prefix is read from the provider's cache."""
        provider = SummaryProvider()
        await talk(provider, 3)

        await make(
            engine(store, provider),
            empty_request(window=summarise, parameters={"tool_choice": choice}),
        )

        assert ("tool_choice" in provider.prompts[-1].parameters) is saved

    async def test_a_dynamic_prompt_is_in_no_summary(self, talk, store):
        """An old conversation has no system record, and each request may contain a prompt."""
        await store.create(NewConversation(id="demo", model="m"))
        lease = await store.begin_turn("demo", TurnStart(id="old", messages=(_old(),)))
        answered = (*lease.turn.messages, plain_message("assistant", "Yes."))
        await store.finish_turn(
            lease, msgspec.structs.replace(lease.turn, messages=answered, state="complete")
        )
        said = plain_message("system", "The client's own prompt.")
        provider = SummaryProvider()

        await talk(
            provider, 8, system=GivenPrompt(said=said, text=said.text), system_policy="dynamic"
        )

        assert provider.summary_requests
        assert all(_is_free_of(prompt, said.text) for prompt in provider.summary_requests)

    async def test_no_summary_is_requested_from_an_unprepared_model(self, engine, ask, store, talk):
        await talk(SummaryProvider(), 7, window=None)
        broken, other = Unprepared(), SummaryProvider()
        routes = {"m": broken, "n": other}
        running = engine(
            store,
            broken,
            retry=RetryRules(retries=0),
            find_route=lambda model: ModelRoute(provider=routes[model], model=model),
        )

        await say(running, ask(f"q4  {LONG}", window=summarise, fallbacks=("n",)))

        assert broken.prompts == []
        assert not any(map(is_summary_request, other.prompts))


def _old() -> Message:
    return plain_message("user", "Are you there?")


def _is_free_of(prompt: Prompt, text: str) -> bool:
    return all(text not in message.text for message in prompt.all_messages)


class Unprepared(SummaryProvider):
    async def prepare(self) -> None:
        raise DOWN
