"""Prompts from history, system prompt and new messages."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.scripted_provider import ScriptedProvider
from tests.turn_requests import make_turn_request

from cllm.core.conversation import StoredConversation, Turn, TurnState, WindowRecord
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.prompt import Continuity, Original
from cllm.engine.prompt_builder import build_full_prompt
from cllm.engine.prompt_history import ModelContext
from cllm.engine.request import Attempt, ModelRoute, unknown_price
from cllm.history.context import NO_CONTEXT, Context
from cllm.history.system_prompt import SystemChoice

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SAID = (plain_message("user", "now"),)
NO_SYSTEM = SystemChoice(message=None)


def turn(name: str, state: TurnState = "complete", place: str | None = None) -> Turn:
    exchange = (plain_message("user", f"{name}?"), plain_message("assistant", f"{name}!"))
    return Turn(id=name, place=place or name, state=state, messages=exchange, started_at=NOW)


def conversation(*turns: Turn, **fields: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=NOW, updated_at=NOW, turns=turns, **fields)


def attempt(
    *, model: str = "m", at_provider: str = "m", system: Any = NO_SYSTEM, context: Any = NO_CONTEXT
) -> Attempt:
    model_context = ModelContext(model=model, provider="test", context_window=lambda: None, now=NOW)
    return Attempt(
        route=ModelRoute(provider=ScriptedProvider(()), model=at_provider),
        model=model,
        choice=system,
        context=context,
        price=unknown_price(None),
        model_context=model_context,
    )


def build(
    value: StoredConversation | None,
    *,
    system: Any = NO_SYSTEM,
    context: Any = NO_CONTEXT,
    model: str = "m",
    **options: Any,
):
    request = make_turn_request(messages=SAID, model=model, **options)
    return build_full_prompt(value, request, attempt(model=model, system=system, context=context))


def test_without_a_conversation_only_new_messages_are_sent():
    prompt = build(None, cache_key="k", parameters={"seed": 1}, stream=False)

    assert prompt.all_messages == SAID
    assert prompt.window == WindowRecord(first_sequence=1, sent_messages=1)
    assert (prompt.model, prompt.cache_key) == ("m", "k")
    assert (prompt.parameters, prompt.stream) == ({"seed": 1}, False)


def test_the_order_is_system_prompt_history_and_new_messages():
    system = plain_message("system", "Be brief.")
    choice = SystemChoice(message=system)

    prompt = build(conversation(turn("a"), turn("b"), system=system), system=choice)

    assert [message.text for message in prompt.all_messages] == [
        "Be brief.",
        "a?",
        "a!",
        "b?",
        "b!",
        "now",
    ]


@pytest.mark.parametrize(
    ("state", "sent"),
    [("complete", True), ("incomplete", True), ("failed", False), ("running", False)],
)
def test_only_turns_that_are_history_are_sent(state, sent):
    prompt = build(conversation(turn("a"), turn("b", state)))

    assert ("b?" in [message.text for message in prompt.messages]) is sent
    assert prompt.window == WindowRecord(
        first_sequence=1, sent_messages=5 if sent else 3, left_out_messages=0 if sent else 2
    )


def test_the_turn_that_is_regenerated_is_left_out():
    prompt = build(conversation(turn("a"), turn("b2", place="b")), place="b")

    assert [message.text for message in prompt.messages] == ["a?", "a!", "now"]


def test_the_window_of_a_loaded_tail_counts_what_was_not_loaded():
    prompt = build(conversation(turn("c"), first_sequence=5))

    assert prompt.window == WindowRecord(first_sequence=5, sent_messages=3, left_out_messages=4)


def test_variants_are_not_sent():
    prompt = build(conversation(turn("a"), variants=(turn("other", place="a"),)))

    assert [message.text for message in prompt.messages] == ["a?", "a!", "now"]


def test_all_notices_are_passed_on():
    first, second = (Notice(code=code, message=code) for code in ("one", "two"))
    choice = SystemChoice(message=None, notices=(first,))
    context = Context(notices=(second,))

    assert build(None, system=choice, context=context).notices == (first, second)


def test_the_messages_of_the_history_are_the_stored_ones():
    value = conversation(turn("a"))

    assert build(value).messages[:2] == value.turns[0].messages


def test_messages_of_another_model_are_listed_by_position():
    by_another = msgspec.structs.replace(turn("b"), model="anthropic/claude-a")
    by_this = msgspec.structs.replace(turn("c"), model="anthropic/claude-b")
    by_nobody_known = turn("a")
    prompt_with_context = conversation(by_nobody_known, by_another, by_this)

    prompt = build(prompt_with_context, model="anthropic/claude-b")

    assert prompt.foreign == {2, 3}


def test_a_model_is_the_same_with_and_without_its_providers_name():
    prompt_with_context = conversation(msgspec.structs.replace(turn("a"), model="claude-b"))

    assert build(prompt_with_context, model="anthropic/claude-b").foreign == frozenset()


def test_positions_are_relative_to_the_sent_messages():
    left_out = msgspec.structs.replace(turn("a", "failed"), model="x")
    prompt_with_context = conversation(left_out, msgspec.structs.replace(turn("b"), model="x"))

    assert build(prompt_with_context).foreign == {0, 1}


def test_the_prompt_has_the_original_request_and_strict_mode():
    original = Original(
        body=b"{}",
        dialect="anthropic",
        model="m",
        system=None,
        messages=SAID,
        parameters={},
        stream=True,
    )

    prompt = build(None, dialect="anthropic", strict=True, original=original)

    assert (prompt.dialect, prompt.strict) == ("anthropic", True)
    assert prompt.original is original
    assert original.says(prompt)
    assert not original.says(build(conversation(turn("a")), dialect="anthropic"))
    assert not original.says(build(None))


def test_a_prompt_without_a_conversation_has_no_continuity():
    assert build(None).continuity is None


def test_all_messages_of_the_first_prompt_are_fresh():
    assert build(conversation()).continuity == Continuity(fresh=1)


def test_the_last_reply_and_the_new_messages_are_fresh():
    assert build(conversation(turn("a"), turn("b"))).continuity == Continuity(fresh=2)


def test_context_of_one_turn_and_all_after_it_is_passing():
    context = Context(for_turn="It is noon.")

    prompt_with_context = build(conversation(turn("a")), context=context).continuity

    assert prompt_with_context == Continuity(fresh=2, passing=1)


def test_all_messages_of_a_turn_with_context_are_fresh():
    window = WindowRecord(first_sequence=1, sent_messages=1, context=5)
    last = msgspec.structs.replace(turn("a"), window=window)

    assert build(conversation(last)).continuity == Continuity(fresh=3)


def test_messages_that_are_not_saved_are_passing():
    question = build(conversation(turn("a")), read_only=True).continuity

    assert question == Continuity(fresh=2, passing=1)


def test_only_the_messages_of_the_next_round_are_fresh():
    question = build(conversation(turn("a")))
    prompt_with_context = build(conversation(turn("a")), context=Context(for_turn="It is noon."))

    assert question.going_on(SAID * 3).continuity == Continuity(fresh=3)
    assert prompt_with_context.going_on(SAID * 3).continuity == Continuity(fresh=5, passing=4)
