"""What is recalled of a conversation: only what clients send, once, and never another's."""

import json
from typing import Any

import msgspec
import pytest
from tests.holding import most_held

from cllm.core.prompt import Prompt
from cllm.providers import recalling
from cllm.providers.mending import mending_for
from cllm.providers.recalling import Recalling
from cllm.wire import beginnings, openai_request
from cllm.wire.beginnings import Beginnings
from cllm.wire.history import History
from cllm.wire.memo import Memo

MODEL = "claude-sonnet-4-5"
HELLO = {"role": "user", "content": "Hello"}
HI = {"role": "assistant", "content": "Hi"}


@pytest.fixture(autouse=True)
def memo(monkeypatch: pytest.MonkeyPatch) -> Memo[Any, Any]:
    kept: Memo[Any, Any] = Memo(100_000)
    monkeypatch.setattr(recalling, "remembered", kept)
    monkeypatch.setattr(beginnings, "SHORTEST", 0)
    nothing = Beginnings(openai_request._decode_whole, limit=0)
    monkeypatch.setattr(openai_request, "_beginnings", nothing)
    return kept


def asked(*messages: Any) -> Prompt:
    body = json.dumps({"model": MODEL, "messages": messages}).encode()
    return openai_request.decode_request(body)


def going_on(before: Prompt, *messages: Any) -> Prompt:
    """A prompt with the messages of the one before, as the objects they are."""
    new = asked(*messages).messages
    return msgspec.structs.replace(before, messages=(*before.messages, *new))


def recall(prompt: Prompt, model: str = MODEL) -> History | None:
    return Recalling("anthropic", model, mending_for("anthropic", model, provider="x"))(prompt)


def entries(memo: Memo[Any, Any]) -> int:
    return len(memo)


def test_a_history_that_goes_on_is_what_was_sent_and_what_is_new():
    first = asked(HELLO)
    recall(first)

    history = recall(going_on(first, HI, HELLO))

    assert history is not None
    assert msgspec.json.decode(history.listed()) == [HELLO, HI, HELLO]


def test_a_conversation_is_remembered_once_however_long_it_grows(memo):
    prompt = asked(HELLO)
    for _ in range(5):
        recall(prompt)
        prompt = going_on(prompt, HI, HELLO)

    assert entries(memo) == 1


def test_what_does_not_come_from_a_client_is_not_remembered(memo):
    assert recall(msgspec.structs.replace(asked(HELLO), original=None)) is None
    assert entries(memo) == 0


def test_a_short_request_is_not_remembered(memo, monkeypatch):
    monkeypatch.setattr(beginnings, "SHORTEST", 1_000)

    assert recall(asked(HELLO)) is None
    assert entries(memo) == 0
    assert recall(asked({"role": "user", "content": "Hello" * 200})) is not None
    assert entries(memo) == 1


def test_a_history_that_another_model_thought_in_has_to_be_looked_at():
    prompt = msgspec.structs.replace(asked(HELLO, HI, HELLO), foreign=frozenset({1}))

    assert recall(prompt) is None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": " "},
        {"role": "user", "content": "Hello", "name": "Ada"},
        {"role": "system", "content": "Be brief."},
        {"role": "tool", "tool_call_id": "c", "content": "nobody asked"},
        {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}},
        {
            "role": "user",
            "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        },
        {"role": "user", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA=="}}]},
    ],
)
def test_a_history_with_something_to_change_has_to_be_looked_at(message):
    first = asked(HELLO, HI, message)

    assert recall(first) is None
    assert recall(going_on(first, HI, HELLO)) is None


def test_the_system_prompt_before_a_history_is_not_of_it():
    history = recall(asked({"role": "system", "content": "Be brief."}, HELLO))

    assert history is not None
    assert [message.text for message in history.lead] == ["Be brief."]
    assert msgspec.json.decode(history.listed()) == [HELLO]


def test_the_beginning_of_an_answer_is_not_gone_on_from(memo):
    assert recall(asked(HELLO, HI)) is not None
    assert entries(memo) == 0


def test_a_model_that_takes_no_beginning_of_an_answer_has_it_looked_at():
    assert recall(asked(HELLO, HI), "claude-opus-4-8") is None


def test_the_same_words_of_somebody_else_are_their_own():
    theirs = asked({"role": "user", "content": "4711"}, HI, HELLO)
    recall(theirs)
    # What is remembered is looked for by the last message, as the object it is.
    ours = asked(HELLO, HI)
    ours = msgspec.structs.replace(ours, messages=(*ours.messages, theirs.messages[-1]))

    history = recall(ours)

    assert history is not None
    assert msgspec.json.decode(history.listed()) == [HELLO, HI, HELLO]


def words(number: int) -> list[Any]:
    return [{"role": "user", "content": f"{number} {'x' * 3_000}"}]


def little(number: int) -> list[Any]:
    return [{"role": "system", "content": "x" * 100}, {"role": "user", "content": f"{number}"}]


def many_messages(number: int) -> list[Any]:
    return [{"role": "user", "content": f"{number}"}, *[HI, HELLO] * 30]


def many_calls(number: int) -> list[Any]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": f"{number}_{n}", "arguments": ""}}
        for n in range(30)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in calls]
    return [HELLO, {"role": "assistant", "content": None, "tool_calls": calls}, *results]


def unfit(number: int) -> list[Any]:
    return [{"role": "user", "content": f"{number}", "name": "Ada"}]


@pytest.mark.parametrize("said", [words, little, many_messages, many_calls, unfit])
def test_no_more_memory_is_held_than_may_be(said, monkeypatch):
    limit = 100_000
    monkeypatch.setattr(recalling, "remembered", Memo(limit))

    def step(number: int) -> None:
        recall(asked(*said(number)))

    step(-1)
    assert limit / 4 < most_held(step, times=300) < 1.5 * limit


def test_what_a_conversation_grows_by_is_counted(monkeypatch):
    limit = 100_000
    monkeypatch.setattr(recalling, "remembered", Memo(limit))

    def step(number: int) -> None:
        prompt = asked({"role": "user", "content": f"{number}"})
        for _ in range(40):
            recall(prompt)
            prompt = going_on(prompt, HI, HELLO)

    step(-1)
    assert limit / 4 < most_held(step, times=30) < 1.5 * limit
