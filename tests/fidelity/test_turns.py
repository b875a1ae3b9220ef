"""Turns with real provider classes: a failed turn is saved as failed, and the next one works."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.fidelity.answers import (
    anthropic_stream,
    converse_block,
    converse_stream,
    converse_tool,
    text_block,
    thinking_block,
    tool_block,
)
from tests.fidelity.conftest import MODELS, Kind, Make
from tests.turn_requests import make_turn_request

from cllm.core import errors
from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation, Store
from cllm.core.reply import Noticed, TextDelta
from cllm.engine.request import ModelRoute, TurnEnded, TurnRequest
from cllm.engine.turn import Engine
from cllm.stores.memory import MemoryStore

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


async def no_wait(_seconds: float) -> None:
    """Asks again at once."""


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    made = MemoryStore(clock=lambda: NOON)
    yield made
    await made.close()


@pytest.fixture
def engine(make: Make, store: Store) -> Engine:
    """An engine for which a model's name is that of its protocol."""
    numbers = iter(range(1000))

    def find_route(model: str) -> ModelRoute:
        kind: Any = model
        return ModelRoute(provider=make(kind), model=MODELS[kind])

    return Engine(
        store=store,
        find_route=find_route,
        clock=lambda: NOON,
        new_id=lambda: f"turn-{next(numbers)}",
        sleep=no_wait,
        jitter=lambda: 0.0,
    )


def turn(text: str = "Hello", *, model: str, messages: Any = None, **fields: Any) -> TurnRequest:
    messages = (plain_message("user", text),) if messages is None else messages
    return make_turn_request(
        messages=messages,
        model=model,
        model_is_explicit=True,
        ref="demo",
        create=NewConversation(id="demo", model=model),
        saves_unsent=True,
        **fields,
    )


async def take(engine: Engine, request: TurnRequest) -> tuple[list[Any], errors.CllmError | None]:
    events: list[Any] = []
    try:
        async for event in engine.run_turn(request):
            events.append(event)  # noqa: PERF401 - what came before an error counts
    except errors.CllmError as error:
        return events, error
    return events, None


FAILURES: dict[str, Callable[[Any], None]] = {
    "error": lambda server: server.queue_reply(
        "Hel", "lo", stop_after=1, error=("overloaded_error", "Overloaded")
    ),
    "cut": lambda server: server.queue_reply("Hel", "lo", stop_after=1),
    "end": lambda server: server.queue_reply("Hel", "lo", stop_after=1, abrupt=False),
    "garbage": lambda server: server.queue_reply("Hel", "lo", garbage_before=1),
}


@pytest.mark.parametrize("fault", FAILURES)
@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_a_failed_turn_is_saved_as_failed_and_the_next_one_works(
    engine, store, server, kind, fault
):
    if (kind, fault) == ("openai", "error"):
        fault = "garbage"
    FAILURES[fault](server)
    events, error = await take(engine, turn(model=kind))
    assert isinstance(error, errors.ProviderError)
    assert not any(isinstance(event, TurnEnded) for event in events)
    (stored,) = (await store.load("demo")).turns
    assert stored.state == "failed"
    assert len(server.requests) == 1
    server.queue_reply("Hi again.")
    events, error = await take(engine, turn("Once more", model=kind))
    assert error is None
    assert isinstance(events[-1], TurnEnded)
    assert len(server.requests[-1].messages) == 1


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_a_retried_turn_has_its_user_message_once(engine, store, server, kind):
    server.queue_error(503)
    server.queue_error(429, Retry_After="0")
    server.queue_reply("Hi.")
    _, error = await take(engine, turn(model=kind))
    assert error is None
    (stored,) = (await store.load("demo")).turns
    assert [message.role for message in stored.messages] == ["user", "assistant"]
    assert [len(request.messages) for request in server.requests] == [1, 1, 1]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_the_fallback_model_is_called_if_the_first_sent_nothing(engine, store, server, kind):
    following: Kind = "anthropic" if kind == "openai" else "openai"
    server.queue_error(403)
    server.queue_reply("Hi from another.")
    events, error = await take(engine, turn(model=kind, fallbacks=(following,)))
    assert error is None
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hi from another."]
    assert any(isinstance(e, Noticed) and e.notice.code == "fallback" for e in events)
    assert server.requests[1].json["model"] == MODELS[following]
    (stored,) = (await store.load("demo")).turns
    assert [message.role for message in stored.messages] == ["user", "assistant"]


@pytest.mark.parametrize("fault", ["cut", "end", "garbage"])
@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_no_fallback_after_the_first_byte(engine, server, kind, fault):
    FAILURES[fault](server)
    server.queue_reply("A second answer.")
    following = "anthropic" if kind == "openai" else "openai"
    events, error = await take(engine, turn(model=kind, fallbacks=(following,)))
    assert isinstance(error, errors.ProviderError)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hel"]
    assert len(server.requests) == 1


async def test_no_fallback_after_thinking_was_sent(engine, server):
    """Thinking is an answer's bytes too: a client has seen it."""
    blocks = thinking_block(0, "hm"), text_block(1, "B")
    server.queue_steps(*anthropic_stream(*blocks)[:6])
    server.queue_reply("A second answer.")
    _, error = await take(engine, turn(model="anthropic", fallbacks=("openai",)))
    assert isinstance(error, errors.BrokenStreamError)
    assert len(server.requests) == 1


async def test_no_fallback_for_an_invalid_request(engine, server):
    server.queue_error(400)
    _, error = await take(engine, turn(model="anthropic", fallbacks=("openai",)))
    assert isinstance(error, errors.InvalidRequestError)
    assert len(server.requests) == 1


async def test_a_paused_turn_is_not_saved_as_complete(engine, store, server):
    server.queue_steps(*anthropic_stream(text_block(0, "B"), stop="pause_turn"))
    await take(engine, turn(model="anthropic"))
    (stored,) = (await store.load("demo")).turns
    assert stored.state != "complete"


THOUGHT = {"reasoningContent": {"text": "hm"}}
SIGNED = {"reasoningContent": {"signature": "c2ln"}}


async def test_a_tool_call_of_one_provider_is_answered_at_another(engine, store, server):
    """A fallback in an open loop: the pair stays, the thinking of the other model goes."""
    answer = converse_stream(
        converse_block(0, THOUGHT, SIGNED),
        converse_tool(1, '{"a":1}', call="tooluse_1"),
        stop="tool_use",
    )
    server.queue_steps(*answer)
    await take(engine, turn(model="bedrock"))
    raw = b'{"role":"tool","tool_call_id":"tooluse_1","content":"ok"}'
    result = (Message(role="tool", raw=raw),)
    server.queue_error(403)
    request = turn(model="bedrock", messages=result, fallbacks=("anthropic",))
    events, error = await take(engine, request)
    assert error is None
    assert isinstance(events[-1], TurnEnded)
    called, answered = server.requests[-1].messages[1:]
    assert [block["type"] for block in called["content"]] == ["tool_use"]
    assert called["content"][0]["id"] == answered["content"][0]["tool_use_id"] == "tooluse_1"


async def test_thinking_is_sent_to_the_model_that_wrote_it(engine, server):
    server.queue_steps(*anthropic_stream(thinking_block(0, "hm"), text_block(1, "B")))
    await take(engine, turn(model="anthropic"))
    await take(engine, turn("And?", model="anthropic"))
    assert server.requests[-1].messages[1]["content"][0] == {
        "type": "thinking",
        "thinking": "hm",
        "signature": "sig",
    }


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_an_unanswered_call_gets_a_result_in_the_request_and_not_in_the_store(
    engine, store, server, kind
):
    server.queue_steps(*anthropic_stream(tool_block(0, '{"a":1}'), stop="tool_use"))
    await take(engine, turn(model="anthropic"))
    before = (await store.load("demo")).turns[0].messages
    if kind != "anthropic":
        server.queue_error(403)
    request = turn("Never mind.", model="anthropic", fallbacks=(kind,))
    events, error = await take(engine, request)
    assert error is None, events
    assert b"toolu_1" in server.requests[-1].body
    stored = await store.load("demo")
    assert stored.turns[0].messages == before
    assert [message.role for message in stored.turns[1].messages] == ["user", "assistant"]
