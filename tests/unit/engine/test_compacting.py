"""Summaries in the engine: asked for with the prompt's own beginning, kept whole or not at all."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.unit.engine.conftest import PausingProvider

from cllm.assembly.system import GivenPrompt
from cllm.assembly.window import ByTokens, ByTurns, Summarise, summary_turn
from cllm.core.conversation import Conversation
from cllm.core.errors import (
    BadReplyError,
    RateLimitedError,
    StoreUnavailableError,
    UsageError,
    WindowTooSmallError,
)
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyFinished, Usage
from cllm.engine.compacting import Summarised, Summarising
from cllm.engine.retry import RetryRules
from cllm.providers.scripted import ScriptedProvider, spoken

LONG = "word " * 150
SMALL = Summarise(tokens=ByTokens(max_tokens=1000), summary_tokens=100)


def summarise(_model: str) -> Summarise:
    return SMALL


def is_summary_request(prompt: Prompt) -> bool:
    return prompt.messages[-1].text.startswith("Summarise our conversation")


def system_text(prompt: Prompt) -> str | None:
    return None if prompt.system is None else prompt.system.text


def texts(prompt: Prompt) -> list[str]:
    return [message.text for message in prompt.messages]


class Talker(ScriptedProvider):
    """Answers questions in a few words, and requests for a summary with a summary."""

    def __init__(self, *, summary: Any = None, usage: Usage | None = None) -> None:
        super().__init__()
        self._summary = summary
        self._usage = usage
        self.summaries = 0

    def _next_events(self, prompt):
        if not is_summary_request(prompt):
            return spoken(f"answer {prompt.messages[-1].text[:8]}")
        self.summaries += 1
        if self._summary is not None:
            return self._summary
        return spoken(f"Summary {self.summaries}.", usage=self._usage)

    @property
    def asked_for_summaries(self) -> list[Prompt]:
        return [prompt for prompt in self.prompts if is_summary_request(prompt)]


async def say(running, request) -> list[Any]:
    return [event async for event in running.take_turn(request)]


async def make(running, request) -> list[Any]:
    return [event async for event in running.compact(request)]


@pytest.fixture
def talk(engine, ask, store):
    """Takes turns in one conversation, and gives the events of each."""

    async def talk(provider: Any, count: int, *, first: int = 0, **fields: Any) -> list[list[Any]]:
        running = engine(store, provider, retry=RetryRules(retries=0))
        given = {"window": summarise} | fields
        return [
            await say(running, ask(f"q{n:<3}{LONG}", **given)) for n in range(first, first + count)
        ]

    return talk


@pytest.fixture
def nothing_said(ask):
    """A request as for a turn in which nothing is said."""
    return lambda **fields: msgspec.structs.replace(ask(**fields), messages=(), create=None)


class TestBeforeATurn:
    async def test_what_leaves_was_summarised_and_the_summary_stands_in_front(self, talk, store):
        provider = Talker()

        await talk(provider, 8)

        conversation = await store.load("demo")
        summary = conversation.summary
        assert summary is not None
        last = conversation.turns[-1].window
        assert last.summary_through == summary.through
        assert last.first_sequence == summary.through + 1
        assert tuple(provider.prompts[-1].messages[:2]) == summary_turn(summary.text)
        assert conversation.message_count == 16

    async def test_every_message_that_is_not_sent_any_more_was_in_a_request(self, talk, store):
        provider = Talker()

        await talk(provider, 12)

        conversation = await store.load("demo")
        covered = [m for n, _, m in conversation.numbered_messages() if n <= 12]
        asked = {m.raw for prompt in provider.asked_for_summaries for m in prompt.messages}
        assert conversation.summary.through >= 12
        assert all(message.raw in asked for message in covered)

    async def test_the_request_begins_as_the_prompt_before_it_did(self, talk):
        provider = Talker()

        await talk(
            provider, 12, system=GivenPrompt(text="Be brief."), parameters={"temperature": 0.5}
        )

        assert provider.asked_for_summaries
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

    async def test_it_is_said_and_kept_that_turns_are_in_a_summary(self, talk, store):
        provider = Talker()

        told = await talk(provider, 6)

        said = [e.notice for events in told for e in events if isinstance(e, Noticed)]
        assert [notice.code for notice in said] == ["summarised"] * provider.summaries
        kept = [n.code for turn in (await store.load("demo")).turns for n in turn.notices]
        assert kept == ["summarised"] * provider.summaries

    async def test_a_failure_is_told_and_the_turn_goes_on_with_what_stands(self, talk, store):
        failing = RateLimitedError("Slow down.", provider="scripted")

        told = await talk(Talker(summary=[failing]), 8)

        said = [e.notice for events in told for e in events if isinstance(e, Noticed)]
        assert "summary_failed" in {notice.code for notice in said}
        assert all("Slow down." in n.message for n in said if n.code == "summary_failed")
        conversation = await store.load("demo")
        assert conversation.summary is None
        assert [turn.state for turn in conversation.turns] == ["complete"] * 8
        assert conversation.turns[-1].window.first_sequence > 1

    async def test_turns_that_left_without_a_summary_are_in_the_next_one(self, talk, store):
        failing = RateLimitedError("Slow down.", provider="scripted")
        await talk(Talker(summary=[failing]), 8)
        provider = Talker()

        await talk(provider, 1, first=8)

        asked = {m.text[:4] for p in provider.asked_for_summaries for m in p.messages}
        assert {"q0  ", "q1  "} <= asked
        assert (await store.load("demo")).summary.through >= 4

    async def test_a_message_that_cannot_fit_is_refused_before_anything_is_asked(
        self, talk, engine, ask, store
    ):
        provider = Talker()
        await talk(provider, 3)
        before = await store.load("demo")
        asked = len(provider.prompts)

        with pytest.raises(WindowTooSmallError):
            await say(engine(store, provider), ask(LONG * 10, window=summarise, visible=True))

        assert len(provider.prompts) == asked
        assert await store.load("demo") == before

    async def test_where_a_summary_would_leave_no_room_the_turn_goes_without(
        self, talk, engine, ask, store
    ):
        provider = Talker()
        await talk(provider, 3)
        wide = msgspec.structs.replace(SMALL, summary_tokens=900)

        await say(engine(store, provider), ask(LONG * 5, window=lambda _: wide))

        assert provider.summaries == 0
        assert (await store.load("demo")).summary is None

    async def test_nothing_is_summarised_for_a_turn_that_keeps_nothing(
        self, talk, engine, ask, store
    ):
        provider = Talker()
        await talk(provider, 3)

        await say(
            engine(store, provider), ask(LONG * 3, window=summarise, read_only=True, create=None)
        )

        assert provider.summaries == 0


class TestOnRequest:
    async def test_all_but_the_newest_turn_is_summarised_and_what_it_took_is_recorded(
        self, talk, engine, nothing_said, store, clock
    ):
        usage = Usage(input=300, output=9)
        provider = Talker(usage=usage)
        await talk(provider, 3)
        running = engine(store, provider, price=lambda _route: lambda used: used.output / 100)

        events = await make(running, nothing_said(window=summarise))

        assert isinstance(events[0], Summarising)
        assert (events[0].piece, events[0].pieces, events[0].messages) == (1, 1, 4)
        summary = (await store.load("demo")).summary
        assert events[-1] == Summarised(summary=summary, turns=2)
        assert (summary.text, summary.through, summary.model) == ("Summary 1.", 4, "m")
        assert (summary.usage, summary.cost, summary.made_at) == (usage, 0.09, clock())
        assert 9 < summary.tokens < 50

    async def test_undone_it_is_as_it_was_before_and_the_turns_are_sent_again(
        self, talk, engine, nothing_said, store
    ):
        provider = Talker()
        window = {"window": lambda _: ByTurns(max_turns=5)}
        await talk(provider, 2, **window)
        running = engine(store, provider)
        await make(running, nothing_said(**window))
        await talk(provider, 1, first=2, **window)
        assert texts(provider.prompts[-1])[2].startswith("q1")
        await make(running, nothing_said(**window))
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

    async def test_with_nothing_to_summarise_it_says_so(self, talk, engine, nothing_said, store):
        provider = Talker()
        await talk(provider, 1)

        with pytest.raises(UsageError, match="nothing to summarise"):
            await make(engine(store, provider), nothing_said(window=summarise))

        assert provider.summaries == 0

    @pytest.mark.parametrize(
        "answer",
        [
            spoken(" "),
            spoken("word " * 500),
            [ReplyFinished(message=plain_message("assistant", "I was cut"), stop_reason="length")],
            [],
        ],
        ids=["blank", "endless", "cut", "silent"],
    )
    async def test_an_answer_that_is_no_whole_summary_changes_nothing(
        self, answer, talk, engine, nothing_said, store
    ):
        provider = Talker(summary=answer)
        await talk(provider, 3)
        before = await store.load("demo")

        with pytest.raises(BadReplyError):
            await make(engine(store, provider), nothing_said(window=summarise))

        assert await store.load("demo") == before

    async def test_nothing_is_kept_of_pieces_if_a_later_one_fails(
        self, engine, nothing_said, store, talk
    ):
        await talk(Talker(), 6, window=None)
        before = await store.load("demo")
        down = RateLimitedError("Slow down.", provider="scripted")
        provider = ScriptedProvider(["First piece.", down])
        running = engine(store, provider, retry=RetryRules(retries=0))

        with pytest.raises(RateLimitedError):
            await make(running, nothing_said(window=summarise))

        assert len(provider.prompts) == 2
        assert "First piece." in texts(provider.prompts[1])[0]
        assert await store.load("demo") == before

    async def test_interrupted_it_changes_nothing(self, engine, nothing_said, store, talk):
        await talk(Talker(), 3)
        before = await store.load("demo")
        provider = PausingProvider(spoken("So far")[:-1])
        work = asyncio.ensure_future(make(engine(store, provider), nothing_said(window=summarise)))
        await provider.reached.wait()

        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        assert provider.ended
        assert await store.load("demo") == before

    async def test_a_summary_that_another_one_overtook_is_not_kept(
        self, engine, nothing_said, store, talk
    ):
        await talk(Talker(), 3)
        provider = PausingProvider([], spoken("Too late."))
        late = asyncio.ensure_future(make(engine(store, provider), nothing_said(window=summarise)))
        await provider.reached.wait()
        await make(engine(store, Talker()), nothing_said(window=summarise))
        provider.gate.set()

        with pytest.raises(UsageError, match="Another summary"):
            await late

        assert (await store.load("demo")).summary.text == "Summary 1."

    async def test_a_store_that_cannot_keep_it_is_an_error(
        self, engine, nothing_said, store, talk, monkeypatch
    ):
        await talk(Talker(), 3)

        async def full(*_: Any, **__: Any) -> None:
            raise StoreUnavailableError("The disk is full.")

        monkeypatch.setattr(store, "update", full)
        with pytest.raises(StoreUnavailableError):
            await make(engine(store, Talker()), nothing_said(window=summarise))

    async def test_a_dynamic_conversation_is_summarised_without_its_clients_prompt(
        self, engine, nothing_said, store, talk
    ):
        secret = GivenPrompt(text="The client's own prompt.", explicit=True)
        provider = Talker()
        await talk(provider, 3, policy="dynamic", system=secret)

        await make(
            engine(store, provider),
            nothing_said(window=summarise, policy="dynamic", system=secret, prefix="Be kind."),
        )

        assert system_text(provider.prompts[-2]) == "The client's own prompt."
        assert system_text(provider.prompts[-1]) == "Be kind."
        summary = (await store.load("demo")).summary
        assert "client" not in msgspec.json.encode(summary).decode()

    async def test_what_would_spoil_a_summary_is_not_asked_for(
        self, engine, nothing_said, store, talk
    ):
        provider = Talker()
        await talk(provider, 3)
        parameters = {
            "max_tokens": 10,
            "temperature": 0.5,
            "response_format": {"type": "json_object"},
            "stop": ["."],
            "tool_choice": "required",
        }

        await make(engine(store, provider), nothing_said(window=summarise, parameters=parameters))

        assert provider.prompts[-1].parameters == {"max_tokens": 1224, "temperature": 0.5}


class TestPins:
    async def test_a_pinned_turn_stays_in_every_prompt_whole(self, talk, store):
        provider = Talker()
        window = {"window": lambda _: ByTurns(max_turns=1)}
        await talk(provider, 2, **window)
        await store.update("demo", Changes(pins=(2,)))

        await talk(provider, 3, first=2, **window)

        assert [text[:2] for text in texts(provider.prompts[-1])] == ["q0", "an", "q3", "an", "q4"]
        conversation = await store.load("demo")
        assert conversation.turns[-1].window.first_sequence == 7
        assert conversation.turns[-1].window.sent_messages == 5
        assert conversation.turns[-1].window.left_out_messages == 4

    async def test_a_pin_stands_behind_the_summary_that_tells_of_its_turn(
        self, talk, store, engine, nothing_said
    ):
        provider = Talker()
        await talk(provider, 3)
        await store.update("demo", Changes(pins=(1,)))
        await make(engine(store, provider), nothing_said(window=summarise))

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

    async def test_numbers_are_those_of_the_store_also_after_a_turn_that_failed(
        self, engine, ask, store
    ):
        """A failed turn that is kept has sequence numbers, and is in no window."""
        down = RateLimitedError("Slow down.", provider="scripted")
        provider = ScriptedProvider(["one!", down, "two!", "three!", "four!"])
        running = engine(store, provider, retry=RetryRules(retries=0))

        def request(text: str):
            return ask(text, visible=True, window=lambda _: ByTurns(max_turns=1))

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

    async def test_a_summary_request_has_them_where_the_prompt_before_it_had_them(
        self, talk, store
    ):
        provider = Talker()
        await talk(provider, 5)
        await store.update("demo", Changes(pins=(1,)))

        await talk(provider, 6, first=5)

        *_, last = provider.asked_for_summaries
        before = provider.prompts[provider.prompts.index(last) - 1]
        assert len(provider.asked_for_summaries) > 1
        assert [text[:2] for text in texts(last)[:3]] == ["Su", "Un", "q0"]
        assert before.messages[: len(last.messages) - 1] == last.messages[:-1]


class TestWhatIsLoaded:
    async def test_what_is_loaded_again_does_not_have_the_turn_itself(
        self, talk, engine, ask, nothing_said, store
    ):
        provider = Talker()
        window = {"window": lambda _: ByTokens(max_tokens=700)}
        await talk(provider, 2, **window)
        await make(engine(store, provider), nothing_said(**window))
        await talk(provider, 1, first=2, **window)
        await engine(store, provider).undo_summary("demo")

        await say(engine(store, provider), ask(LONG * 4, visible=True, **window))

        assert len(provider.prompts[-1].messages) == 1
        assert (await store.load("demo")).turns[-1].window.first_sequence == 7

    async def test_a_window_loads_from_its_cut_on_and_another_model_everything(
        self, talk, engine, ask, store, monkeypatch
    ):
        provider = Talker()
        window = {"window": lambda _: ByTurns(max_turns=1)}
        await talk(provider, 4, **window)
        loaded: list[Conversation] = []
        load = store.load

        async def seen(*given: Any, **named: Any) -> Conversation:
            loaded.append(await load(*given, **named))
            return loaded[-1]

        monkeypatch.setattr(store, "load", seen)
        await talk(provider, 1, first=4, **window)
        assert all(conversation.turns == () for conversation in loaded)

        running = engine(store, provider)
        await say(running, ask("again", read_only=True, create=None, **window))
        assert loaded[-1].first_sequence == 7

    async def test_a_model_that_answered_nothing_yet_begins_without_a_cut(
        self, talk, engine, ask, store
    ):
        await talk(Talker(), 4, window=lambda _: ByTurns(max_turns=1))
        await store.branch("demo", NewConversation(id="other", model="n"))
        provider = Talker()

        await say(engine(store, provider), ask("now", ref="other", window=lambda _: ByTokens()))

        assert len(provider.prompts[-1].messages) == 9

    async def test_the_model_that_comes_back_after_a_fallback_has_its_own_cut(
        self, engine, ask, store
    ):
        """Its cache still has what was sent from there on."""
        provider = Talker()
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
