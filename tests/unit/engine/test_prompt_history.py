"""Token counts and message numbers of a prompt's history."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import StandingSummary, StoredConversation, Turn, WindowRecord
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage
from cllm.engine.prompt_history import ModelContext, PromptHistory, find_first_sequence
from cllm.window.tokens import estimate_tokens

THEN = datetime(2026, 11, 15, 12, tzinfo=UTC)
SAID = plain_message("user", "And now? " * 20)


def model_context(model: str = "m", window: int | None = 8000) -> ModelContext:
    return ModelContext(
        model=model,
        provider="scripted",
        context_window=lambda: window,
        now=THEN + timedelta(seconds=60),
    )


def tool_call(name: str) -> Message:
    call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    fields = {"role": "assistant", "content": None, "tool_calls": [call]}
    return Message(role="assistant", raw=msgspec.json.encode(fields))


def found(name: str, text: str) -> Message:
    fields = {"role": "tool", "tool_call_id": name, "content": text}
    return Message(role="tool", raw=msgspec.json.encode(fields))


def turn(
    name: str, *messages: Message, state: Any = "complete", counted: int | None = None, **more: Any
) -> Turn:
    window: dict[str, Any] = {"first_sequence": 1, "sent_messages": 1, "counted": counted}
    window |= more.pop("window", {})
    return Turn(
        id=name,
        place=name,
        state=state,
        messages=messages,
        started_at=THEN,
        ended_at=THEN,
        model=more.pop("model", "m"),
        window=WindowRecord(**window),
        **more,
    )


def answered_turn(number: int, **more: Any) -> Turn:
    question = plain_message("user", f"question {number} " + "word " * 30)
    return turn(f"t{number}", question, plain_message("assistant", f"answer {number}"), **more)


def conversation(*turns: Turn, **more: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=THEN, updated_at=THEN, turns=turns, **more)


def history_of(
    stored: StoredConversation,
    *,
    place: str | None = None,
    model: str = "m",
    **more: Any,
) -> PromptHistory:
    sent_turns = [one for one in stored.turns if one.is_history and one.place != place]
    messages = (*(message for one in sent_turns for message in one.messages), SAID)
    prompt = Prompt(model="served", messages=messages, **more)
    return PromptHistory(prompt, stored, model_context=model_context(model), place=place)


class TestTokenCounts:
    def test_the_count_of_the_last_call_covers_the_tool_loop(self):
        looked = turn(
            "t",
            plain_message("user", "Look."),
            tool_call("a"),
            found("a", "word " * 50),
            tool_call("b"),
            found("b", "word " * 50),
            plain_message("assistant", "Nothing."),
            usage=Usage(input=9000, output=90),
            counted=5000,
        )

        history = history_of(conversation(looked))

        assert history.turn_index.tokens(0, 5) == 5000
        assert history.turn_index.tokens(6) > 2 * estimate_tokens(SAID)

    def test_an_estimated_usage_is_not_a_count(self):
        usage = Usage(input=5000, output=5)
        estimate = msgspec.structs.replace(usage, estimated=True)

        counted = history_of(conversation(answered_turn(1, usage=usage)))
        guessed = answered_turn(1, usage=estimate)
        estimated = history_of(conversation(guessed))

        assert counted.turn_index.tokens(0, 1) == 5000
        assert estimated.turn_index.tokens(0, 1) == estimate_tokens(guessed.messages[0])

    def test_the_count_is_divided_between_system_prompt_and_messages(self):
        system = plain_message("system", "word " * 30)
        first = answered_turn(1, counted=2000, usage=Usage(input=2000, output=5))

        history = history_of(conversation(first), system=system)

        assert 500 < history.turn_index.tokens(0, 1) < 1500
        assert history.budget == 8000 - 2000 - (2000 - history.turn_index.tokens(0, 1))

    def test_the_count_covers_pins_and_no_dropped_messages(self):
        window = {"first_sequence": 5, "sent_messages": 5}
        turns = [answered_turn(n) for n in range(3)]
        last = answered_turn(3, counted=4000, window=window)

        history = history_of(conversation(*turns, last, pins=(2,)))
        unpinned = history_of(conversation(*turns, last))

        assert history.pins == (2,)
        assert history.turn_index.tokens(0, 2) + history.turn_index.tokens(4, 7) == 4000
        assert history.turn_index.tokens(2, 4) > 2 * unpinned.turn_index.tokens(2, 4)
        assert unpinned.turn_index.tokens(0, 7) < 1000

    def test_the_tokens_of_a_summary_are_subtracted(self):
        window = {"first_sequence": 3, "sent_messages": 1, "summary_through": 2}
        old = StandingSummary(text="S", through=2, tokens=3000)
        newer = StandingSummary(text="T", through=4, tokens=50, before=old)
        stored = (answered_turn(1), answered_turn(2, counted=4000, window=window))

        history = history_of(conversation(*stored, summary=old))
        later = history_of(conversation(*stored, summary=newer))
        undone = history_of(conversation(*stored))

        assert history.turn_index.tokens(2, 3) == later.turn_index.tokens(2, 3) == 1000
        assert undone.turn_index.tokens(2, 3) < 100

    def test_the_tokens_of_the_context_are_not_part_of_the_history(self):
        """A short question with a very long context must not distort the estimate of questions."""
        window = {"context": 5000}
        question = answered_turn(1, counted=5000, window=window)

        history = history_of(conversation(question))

        assert history.turn_index.tokens(2) < 2 * estimate_tokens(SAID)
        assert history.turn_index.tokens(0, 1) < 100

    @pytest.mark.parametrize(
        "last",
        [
            answered_turn(1, counted=5000, model="n"),
            answered_turn(1, counted=5000, window={"sent_messages": 7}),
            answered_turn(1),
            turn("t1", plain_message("user", "Hello?"), state="incomplete", counted=5000),
        ],
        ids=["another model's", "of another prompt", "uncounted", "unanswered"],
    )
    def test_a_count_of_unknown_messages_is_not_used(self, last):
        history = history_of(conversation(last))

        assert history.turn_index.tokens() < 300


class TestNumbers:
    def test_the_plan_numbers_only_messages_that_can_be_sent(self):
        failed = turn("f", plain_message("user", "Lost."), state="failed")
        stored = conversation(
            answered_turn(1), failed, answered_turn(2), pins=(3, 5), first_sequence=11
        )

        history = history_of(stored)

        assert history.sequences == (11, 12, 14, 15, 16)
        assert [history.to_number(n) for n in (11, 13, 14, 16)] == [1, 3, 3, 5]
        assert [history.to_sequence(n) for n in (1, 3, 5)] == [11, 14, 16]
        assert history.unloaded_messages == 10
        assert history_of(msgspec.structs.replace(stored, pins=(12, 13, 15))).pins == (2, 4)

    def test_a_regenerated_turn_has_the_numbers_of_the_original(self):
        history = history_of(conversation(answered_turn(1), answered_turn(2)), place="t2")

        assert history.sequences == (1, 2, 3)
        assert len(history.turns) == 1

    def test_a_summary_ends_at_the_last_loaded_message_that_it_covers(self):
        summary = StandingSummary(text="S", through=12, tokens=5)
        stored = conversation(
            answered_turn(1), answered_turn(2), summary=summary, first_sequence=11
        )

        later = msgspec.structs.replace(stored, first_sequence=21)
        assert history_of(stored).numbered_summary == msgspec.structs.replace(summary, through=2)
        assert history_of(later).numbered_summary == msgspec.structs.replace(summary, through=0)

    def test_the_last_start_is_from_the_same_model(self):
        turns = (
            answered_turn(1, window={"first_sequence": 1}),
            answered_turn(2, window={"first_sequence": 3}),
            answered_turn(3, window={"first_sequence": 5}, model="n"),
        )

        assert history_of(conversation(*turns)).last_start == 3
        assert history_of(conversation(*turns), model="n").last_start == 5
        assert history_of(conversation(*turns), model="other").last_start is None

    def test_the_start_after_an_undone_summary_is_forgotten(self):
        window = {"first_sequence": 3, "summary_through": 2}
        turns = (answered_turn(1), answered_turn(2, window=window))
        summary = StandingSummary(text="S", through=2, tokens=5)

        assert history_of(conversation(*turns, summary=summary)).last_start == 3
        assert history_of(conversation(*turns)).last_start is None


class TestFirstSequence:
    def test_the_first_sequence_is_the_first_loaded_one_for_the_same_model_and_summary(self):
        window = {"first_sequence": 11, "summary_through": 10}
        last = answered_turn(6, window=window)
        summary = StandingSummary(text="S", through=10, tokens=5)
        before = StandingSummary(text="S", through=4, tokens=5)

        def needed(model: str = "m", **more: Any) -> int:
            return find_first_sequence(conversation(last, first_sequence=11, **more), model)

        assert needed(summary=summary) == 11
        assert needed(summary=summary, pins=(11,)) == 11
        assert needed(summary=before) == 5
        assert needed(summary=before, pins=(2,)) == 2
        assert needed() == 1
        assert needed("n", summary=summary) == 1
