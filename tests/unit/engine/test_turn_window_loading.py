"""Pins in prompts, and how much of a conversation is loaded for a window."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.scripted_provider import ScriptedProvider
from tests.unit.engine.summary_provider import (
    LONG,
    SummaryProvider,
    make,
    say,
    summarise,
    texts,
)

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import (
    RateLimitedError,
)
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, NewConversation, TurnStart
from cllm.core.prompt import Prompt
from cllm.engine.retry import RetryRules
from cllm.history.rules import OPENAI, find_problems
from cllm.window.strategies import ByTokens, ByTurns
from cllm.wire.convert import build_outgoing_message


class TestPins:
    async def test_a_pinned_turn_stays_complete_in_every_prompt(self, talk, store):
        provider = SummaryProvider()
        window = {"window": lambda _: ByTurns(max_turns=1)}
        await talk(provider, 2, **window)
        await store.update("demo", Changes(pins=(2,)))

        await talk(provider, 3, first=2, **window)

        assert [text[:2] for text in texts(provider.prompts[-1])] == ["q0", "an", "q3", "an", "q4"]
        conversation = await store.load("demo")
        assert conversation.turns[-1].window.first_sequence == 7
        assert conversation.turns[-1].window.sent_messages == 5
        assert conversation.turns[-1].window.left_out_messages == 4

    async def test_a_pinned_turn_comes_after_the_summary_that_covers_it(
        self, talk, store, engine, empty_request
    ):
        provider = SummaryProvider()
        await talk(provider, 3)
        await store.update("demo", Changes(pins=(1,)))
        await make(engine(store, provider), empty_request(window=summarise))

        await talk(provider, 1, first=3)

        assert [text[:2] for text in texts(provider.prompts[-1])] == [
            "Su",
            "Un",
            "q0",
            "an",
            "q2",
            "an",
            "q3",
        ]

    async def test_numbers_match_the_store_after_a_failed_turn(self, engine, ask, store):
        """A saved failed turn has sequence numbers and is in no window."""
        down = RateLimitedError("Slow down.", provider="scripted")
        provider = ScriptedProvider(["one!", down, "two!", "three!", "four!"])
        running = engine(store, provider, retry=RetryRules(retries=0))

        def request(text: str):
            return ask(text, window=lambda _: ByTurns(max_turns=1))

        await say(running, request("one"))
        with pytest.raises(RateLimitedError):
            await say(running, request("fails"))
        await say(running, request("two"))
        await store.update("demo", Changes(pins=(4,)))
        await say(running, request("three"))
        await say(running, request("four"))

        assert texts(provider.prompts[-1]) == ["two", "two!", "three", "three!", "four"]
        conversation = await store.load("demo")
        assert conversation.turns[-1].window.first_sequence == 6

    async def test_a_summary_request_has_pins_at_the_same_position_as_the_prompt(self, talk, store):
        provider = SummaryProvider()
        await talk(provider, 5)
        await store.update("demo", Changes(pins=(1,)))

        await talk(provider, 6, first=5)

        *_, last = provider.summary_requests
        before = provider.prompts[provider.prompts.index(last) - 1]
        assert len(provider.summary_requests) > 1
        assert [text[:2] for text in texts(last)[:3]] == ["Su", "Un", "q0"]
        assert before.messages[: len(last.messages) - 1] == last.messages[:-1]


class TestLoading:
    async def test_loading_again_excludes_the_running_turn(
        self, talk, engine, ask, empty_request, store
    ):
        provider = SummaryProvider()
        window = {"window": lambda _: ByTokens(max_tokens=700)}
        await talk(provider, 2, **window)
        await make(engine(store, provider), empty_request(**window))
        await talk(provider, 1, first=2, **window)
        await engine(store, provider).undo_summary("demo")

        await say(engine(store, provider), ask(LONG * 4, **window))

        assert len(provider.prompts[-1].messages) == 1
        assert (await store.load("demo")).turns[-1].window.first_sequence == 7

    async def test_a_window_loads_from_its_start_and_another_model_loads_everything(
        self, talk, engine, ask, store, monkeypatch
    ):
        provider = SummaryProvider()
        window = {"window": lambda _: ByTurns(max_turns=1)}
        await talk(provider, 4, **window)
        loaded: list[StoredConversation] = []
        load = store.load

        async def seen(*given: Any, **named: Any) -> StoredConversation:
            loaded.append(await load(*given, **named))
            return loaded[-1]

        monkeypatch.setattr(store, "load", seen)
        await talk(provider, 1, first=4, **window)
        assert all(conversation.turns == () for conversation in loaded)

        running = engine(store, provider)
        await say(running, ask("again", read_only=True, create=None, **window))
        assert loaded[-1].first_sequence == 7

    async def test_messages_added_without_a_model_do_not_reset_the_window(
        self, talk, store, monkeypatch
    ):
        provider = SummaryProvider()
        window = {"window": lambda _: ByTokens(max_tokens=700)}
        await talk(provider, 6, **window)
        record = (await store.load("demo")).turns[-1].window
        assert record.first_sequence > 1
        await _put(
            store,
            Turn(
                id="stray",
                place="stray",
                state="complete",
                messages=(plain_message("user", "By hand."),),
                started_at=datetime(2026, 11, 15, tzinfo=UTC),
                window=record,
            ),
        )
        tails: list[Any] = []
        load = store.load

        async def seen(*given: Any, **named: Any) -> StoredConversation:
            tails.append(named["tail"])
            found: StoredConversation = await load(*given, **named)
            return found

        monkeypatch.setattr(store, "load", seen)
        await talk(provider, 1, first=6, **window)

        assert tails == [0]
        last = (await load("demo")).turns[-1].window
        assert last.first_sequence >= record.first_sequence

    async def test_a_new_model_starts_without_a_window_start(self, talk, engine, ask, store):
        await talk(SummaryProvider(), 4, window=lambda _: ByTurns(max_turns=1))
        await store.branch("demo", NewConversation(id="other", model="n"))
        provider = SummaryProvider()

        await say(engine(store, provider), ask("now", ref="other", window=lambda _: ByTokens()))

        assert len(provider.prompts[-1].messages) == 9

    async def test_a_model_has_its_own_window_start_after_a_fallback(self, engine, ask, store):
        """Its cache still has the prompt from that start."""
        provider = SummaryProvider()
        running = engine(store, provider)

        def window(model: str):
            return ByTokens() if model == "m" else ByTurns(max_turns=1)

        for text in ("one", "two", "three"):
            await say(running, ask(text, window=window))
        await say(running, ask("four", ref="demo", window=window))
        conversation = await store.load("demo")
        stray = msgspec.structs.replace(
            conversation.turns[-1],
            model="n",
            window=msgspec.structs.replace(conversation.turns[-1].window, first_sequence=5),
        )
        await store.delete_from("demo", 7)
        await _put(store, stray)

        await say(running, ask("five", window=window))

        assert len(provider.prompts[-1].messages) == 9


async def _put(store: Any, turn: Any) -> None:
    start = TurnStart(id="stray", messages=turn.messages[:1], visible=False)
    lease = await store.begin_turn("demo", start)
    await store.finish_turn(
        lease, msgspec.structs.replace(turn, id="stray", place=lease.turn.place)
    )


class TestTurnsOfManyCalls:
    """A client with its own tools sends one request per round: one turn, stored in several rows."""

    @pytest.fixture
    def rounds(self, engine, ask, store):
        """A question and N rounds of calls and results, each with its own request."""

        async def rounds(count: int, **fields: Any) -> Prompt:
            provider = ScriptedProvider()
            running = engine(store, provider)
            await say(running, ask("What is the weather everywhere?", **fields))
            for number in range(count):
                await _call(store, number)
                result = _result(number)
                await say(running, ask(**fields).with_input(messages=(result,)))
            return provider.prompts[-1]

        return rounds

    async def test_the_user_message_is_sent_in_a_long_tool_loop(self, rounds, store):
        window = {"window": lambda _: ByTokens(max_tokens=900)}

        prompt = await rounds(12, **window)

        record = (await store.load("demo")).turns[-1].window
        assert record.first_sequence > 1
        assert prompt.messages[0].text == "What is the weather everywhere?"
        assert prompt.messages[1].role == "assistant"
        assert (
            find_problems([build_outgoing_message(m, "openai") for m in prompt.messages], OPENAI)
            == ()
        )

    async def test_a_pin_includes_its_whole_turn(self, rounds, engine, ask, store):
        window = {"window": lambda _: ByTurns(max_turns=1)}
        await rounds(12, **window)
        await store.update("demo", Changes(pins=(30,)))
        provider = ScriptedProvider()
        for text in ("one", "two", "three"):
            await say(engine(store, provider), ask(text, **window))

        last = provider.prompts[-1].messages
        assert last[0].text == "What is the weather everywhere?"
        assert len(last) == 38 + 3


def _result(number: int) -> Message:
    fields = {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number}: " + LONG}
    return Message(role="tool", raw=msgspec.json.encode(fields))


async def _call(store: Any, number: int) -> None:
    """The model's call, as the end of the previous row."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    fields = {"role": "assistant", "content": None, "tool_calls": [call]}
    message = Message(role="assistant", raw=msgspec.json.encode(fields))
    start = TurnStart(id=f"call-{number}", messages=(message,), visible=False)
    lease = await store.begin_turn("demo", start)
    last = (await store.load("demo")).turns[-1]
    turn = msgspec.structs.replace(lease.turn, state="complete", model="m", window=last.window)
    await store.finish_turn(lease, turn)
