"""Windows in the engine: whole turns are dropped, with a notice, and stay stored."""

import random
from typing import Any

import pytest
from tests.scripted_provider import ScriptedProvider, text_reply_events

from cllm.core.errors import WindowTooSmallError
from cllm.core.ports import NewConversation
from cllm.core.reply import Usage
from cllm.engine.prompt_builder import TRIMMED
from cllm.engine.request import TurnStarted
from cllm.window.strategies import ByTokens, ByTurns

LONG = "word " * 200


def by_turns(_model: str) -> ByTurns:
    return ByTurns(max_turns=2)


def by_tokens(_model: str) -> ByTokens:
    return ByTokens()


@pytest.fixture
def talk(engine, ask, store):
    """Runs turns in one conversation; returns the prompts and their notices."""

    async def talk(
        questions: list[str], window: Any, *, counted: int | None = None, **options: Any
    ):
        usages = [
            None if counted is None else Usage(input=counted * (n + 1), output=20)
            for n in range(len(questions))
        ]
        script = [
            text_reply_events(f"answer {question[:12]}", usage=usage)
            for question, usage in zip(questions, usages, strict=True)
        ]
        provider = ScriptedProvider(script)
        running = engine(store, provider, **options)
        results = []
        for question in questions:
            events = [e async for e in running.run_turn(ask(question, window=window))]
            (started,) = [event for event in events if isinstance(event, TurnStarted)]
            results.append([notice.code for notice in started.prompt.notices])
        return provider.prompts, results

    return talk


def texts(prompt) -> list[str]:
    return [message.text for message in prompt.messages]


async def test_by_turns_the_oldest_are_dropped_with_a_notice(talk, store):
    prompts, results = await talk(["one", "two", "three", "four"], by_turns)

    assert texts(prompts[2])[0] == "one"
    assert texts(prompts[3]) == ["two", "answer two", "three", "answer three", "four"]
    assert results == [[], [], [], ["trimmed"]]
    conversation = await store.load("demo")
    assert conversation.message_count == 8
    assert conversation.turns[3].window.first_sequence == 3
    assert conversation.turns[3].window.left_out_messages == 2
    assert TRIMMED in conversation.turns[3].notices[0].message


async def test_within_the_models_window_everything_is_sent(talk):
    prompts, results = await talk([f"q{n} {LONG}" for n in range(6)], by_tokens)

    assert [len(prompt.messages) for prompt in prompts] == [1, 3, 5, 7, 9, 11]
    assert results == [[]] * 6


async def test_above_the_window_a_block_is_dropped_and_the_start_stays(talk):
    questions = [f"q{n} {LONG}" for n in range(12)]

    prompts, results = await talk(questions, by_tokens, context_window=lambda _: 3000)

    firsts = [texts(prompt)[0].split()[0] for prompt in prompts]
    cuts = [n for n, codes in enumerate(results) if codes]
    assert cuts
    assert len(set(firsts)) == len(cuts) + 1
    assert len(cuts) < len(questions) / 3
    for n in range(1, len(prompts)):
        if n not in cuts:
            before, after = prompts[n - 1].messages, prompts[n].messages
            assert after[: len(before)] == before


async def test_the_count_of_the_provider_is_used(talk):
    """The report makes each question far longer than it is."""
    questions = [f"q{n} " + "word " * 40 for n in range(5)]

    _, unreported = await talk(questions, by_tokens, context_window=lambda _: 2200)
    _, reported = await talk(questions, by_tokens, counted=400, context_window=lambda _: 2200)

    assert not any(unreported)
    assert any(reported)


async def test_an_unusual_attachment_does_not_distort_later_estimates(engine, ask, store):
    """30,000 letters of DNA are about 14,000 tokens, far more than as many letters of prose."""
    dna = "".join(random.Random(9).choices("acgt", k=30_000))  # noqa: S311 - guards nothing
    question = "Which genes code for hemoglobin, and where are they on the chromosomes? " * 5
    provider = ScriptedProvider(
        [
            text_reply_events("DNA.", usage=Usage(input=14_100, output=5)),
            text_reply_events("Eleven and sixteen."),
        ]
    )
    running = engine(store, provider, context_window=lambda _: 128_000)
    for text in (f"What is this? {dna}", question):
        async for _ in running.run_turn(ask(text, window=by_turns)):
            pass

    assert [len(prompt.messages) for prompt in provider.prompts] == [1, 3]


async def test_an_impossible_report_does_not_distort_later_estimates(engine, ask, store):
    provider = ScriptedProvider(
        [text_reply_events("Hi.", usage=Usage(input=90_000, output=5)), "Hi again."]
    )
    running = engine(store, provider, context_window=lambda _: 128_000)
    for text in ("Hello", LONG):
        async for _ in running.run_turn(ask(text, window=by_turns)):
            pass

    assert [len(prompt.messages) for prompt in provider.prompts] == [1, 3]


async def test_a_message_that_cannot_fit_is_an_error_with_both_numbers(talk, store):
    with pytest.raises(WindowTooSmallError) as raised:
        await talk([LONG * 20], by_tokens, context_window=lambda _: 2000)

    assert raised.value.needed > raised.value.available > 0


async def test_a_new_message_that_fills_most_of_the_window_is_sent(engine, ask, store):
    # 1,000 words are 1,000 tokens for this provider; the margin of 1.2 makes them 1,200.
    provider = ScriptedProvider(
        [text_reply_events("Hi.", usage=Usage(input=1004, output=5)), "Hi again."]
    )
    running = engine(store, provider, context_window=lambda _: 1500)
    for text in ("word " * 1000, "next " * 1000):
        async for _ in running.run_turn(ask(text, window=by_tokens)):
            pass

    assert [len(prompt.messages) for prompt in provider.prompts] == [1, 1]


async def test_a_turn_that_does_not_fit_is_not_saved_even_with_saves_unsent(engine, ask, store):
    running = engine(store, ScriptedProvider(), context_window=lambda _: 2000)
    await store.create(NewConversation(id="demo", model="m"))

    with pytest.raises(WindowTooSmallError):
        await anext(running.run_turn(ask(LONG * 20, window=by_tokens, saves_unsent=True)))

    assert (await store.load("demo")).turns == ()


async def test_a_model_with_a_larger_window_is_used_as_fallback(engine, ask, store):
    provider = ScriptedProvider(["Fits."])
    windows = {"served-m": 2000, "served-large": 100_000}
    running = engine(store, provider, context_window=lambda route: windows[route.model])
    request = ask(LONG * 20, window=by_tokens, fallbacks=("large",))

    events = [event async for event in running.run_turn(request)]

    assert [prompt.model for prompt in provider.prompts] == ["served-large"]
    assert any(getattr(event, "notice", None) for event in events)


async def test_after_the_start_moves_all_messages_are_fresh(talk):
    prompts, _ = await talk(["one", "two", "three", "four"], by_turns)

    fresh = [prompt.continuity.fresh for prompt in prompts]
    assert fresh == [1, 2, 2, 5]


async def test_tools_count_towards_the_window(engine, ask, store):
    class Box:
        max_calls = 1
        definitions = ({"type": "function", "function": {"name": "look", "description": LONG}},)

        async def use(self, _call):
            return ""

    running = engine(store, ScriptedProvider(), context_window=lambda _: 1100)

    assert [event async for event in running.run_turn(ask(LONG * 3, window=by_tokens))]
    with pytest.raises(WindowTooSmallError):
        await anext(running.run_turn(ask(LONG * 3, window=by_tokens, tools=Box())))


async def test_without_a_window_nothing_is_trimmed(talk):
    prompts, _ = await talk([f"q{n}" for n in range(5)], None, context_window=lambda _: 1)

    assert len(prompts[-1].messages) == 9


async def test_positions_of_foreign_messages_are_relative_to_the_window(engine, ask, store, talk):
    await talk(["one", "two", "three"], by_turns)
    provider = ScriptedProvider(["four!"])
    request = ask("four", window=by_turns)
    running = engine(store, provider)
    conversation = await store.load("demo")
    assert {turn.model for turn in conversation.turns} == {"m"}

    events = [event async for event in running.run_turn(request)]

    (started,) = [event for event in events if isinstance(event, TurnStarted)]
    assert len(started.prompt.messages) == 5
    assert started.prompt.foreign == frozenset()
