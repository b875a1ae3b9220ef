"""Tool rounds: tools run for the model, and all rounds are saved in one turn."""

from typing import Any

import msgspec
import pytest
from tests.scripted_provider import ScriptedProvider, text_reply_events

from cllm.core.errors import AuthenticationError
from cllm.core.message import Message, ToolCall
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished, TextDelta, ToolCallDelta, Usage
from cllm.engine.request import TurnEnded, TurnRequest
from cllm.engine.tool_rounds import LIMIT_REACHED, ToolRoundEnded
from cllm.engine.turn import Engine

DEFINITION = {"type": "function", "function": {"name": "look", "parameters": {}}}


class Box:
    """A tool that returns its arguments."""

    definitions = (DEFINITION,)

    def __init__(self, max_calls: int = 10) -> None:
        self.max_calls = max_calls
        self.used: list[str] = []

    async def use(self, call: ToolCall) -> str:
        self.used.append(call.arguments)
        return f"result of {call.arguments}"


def calling(*ids: str, text: str = "", usage: Usage | None = None) -> list[ReplyEvent]:
    """Return the events of a reply with tool calls."""
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": f'"{name}"'}}
        for name in ids
    ]
    fields = {"role": "assistant", "content": text or None, "tool_calls": calls}
    message = Message(role="assistant", raw=msgspec.json.encode(fields))
    deltas = [
        ToolCallDelta(index=n, id=name, name="look", arguments=f'"{name}"')
        for n, name in enumerate(ids)
    ]
    text_events = [TextDelta(text=text)] if text else []
    finished = ReplyFinished(message=message, stop_reason="tool_calls", usage=usage)
    return [*text_events, *deltas, finished]


async def take(engine: Engine, request: TurnRequest) -> list[Any]:
    return [event async for event in engine.run_turn(request)]


def offered(prompt: Prompt) -> list[Any]:
    tools: list[Any] = prompt.parameters.get("tools", [])
    return tools


async def test_the_model_is_called_again_with_the_results(engine, ask, store):
    provider = ScriptedProvider([calling("a", "b", text="Let me see."), "It is fine."])
    box = Box()

    events = await take(engine(store, provider), ask(tools=box))

    assert box.used == ['"a"', '"b"']
    first, second = provider.prompts
    assert offered(first) == [DEFINITION]
    assert [message.role for message in second.messages] == ["user", "assistant", "tool", "tool"]
    assert second.messages[2].json() == {
        "role": "tool",
        "tool_call_id": "a",
        "content": 'result of "a"',
    }
    assert sum(isinstance(event, ToolRoundEnded) for event in events) == 1
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].reply.message.text == "It is fine."


async def test_all_rounds_are_saved_in_one_turn_in_order(engine, ask, store):
    provider = ScriptedProvider([calling("a"), calling("b"), "Done."])

    await take(engine(store, provider), ask(tools=Box()))

    (turn,) = (await store.load("demo")).turns
    assert [message.role for message in turn.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    await take(engine(store, provider), ask("And?"))
    assert provider.prompts[-1].messages[:6] == turn.messages


async def test_usage_and_cost_include_all_rounds(engine, ask, store):
    provider = ScriptedProvider(
        [
            calling("a", usage=Usage(input=10, output=1)),
            text_reply_events("Done.", usage=Usage(input=20, output=2, cache_read=5)),
        ]
    )
    running = engine(store, provider, price=lambda _: lambda usage: float(usage.total))

    events = await take(running, ask(tools=Box()))

    (turn,) = (await store.load("demo")).turns
    assert turn.usage == Usage(input=30, output=3, cache_read=5)
    assert turn.cost == 38.0
    assert events[-1].cost == 38.0


async def test_a_cost_that_is_not_known_for_every_round_is_unknown(engine, ask, store):
    provider = ScriptedProvider(
        [calling("a"), text_reply_events("Done.", usage=Usage(input=2, output=1))]
    )
    running = engine(
        store, provider, price=lambda _: lambda usage: None if usage.estimated else 1.0
    )

    events = await take(running, ask(tools=Box()))

    assert events[-1].cost is None
    assert (await store.load("demo")).turns[0].cost is None


@pytest.mark.parametrize("counted", [0, 1])
async def test_the_usage_of_a_turn_is_estimated_if_one_round_is(engine, ask, store, counted):
    usages = [Usage(input=9, output=1) if n == counted else None for n in range(2)]
    provider = ScriptedProvider(
        [calling("a", usage=usages[0]), text_reply_events("Done.", usage=usages[1])]
    )

    await take(engine(store, provider), ask(tools=Box()))

    (turn,) = (await store.load("demo")).turns
    assert turn.usage is not None
    assert turn.usage.estimated
    assert turn.window is not None
    assert turn.window.counted == (9 if counted == 1 else None)


async def test_at_the_limit_the_last_call_has_no_tools(engine, ask, store):
    provider = ScriptedProvider([calling("a"), calling("b"), "I stop here."])
    box = Box(max_calls=2)

    events = await take(engine(store, provider), ask(tools=box))

    assert [len(offered(prompt)) for prompt in provider.prompts] == [1, 1, 0]
    assert events[-1].reply.message.text == "I stop here."


async def test_calls_above_the_limit_get_a_result_and_do_not_run(engine, ask, store):
    provider = ScriptedProvider([calling("a", "b", "c"), "I stop here."])
    box = Box(max_calls=2)

    await take(engine(store, provider), ask(tools=box))

    assert box.used == ['"a"', '"b"']
    last = provider.prompts[1].messages[-1]
    assert last.json()["content"] == LIMIT_REACHED


async def test_tools_of_the_request_come_before_cllms_tools(engine, ask, store):
    own = {"type": "function", "function": {"name": "own"}}
    provider = ScriptedProvider(["Hi."])

    await take(engine(store, provider), ask(tools=Box(), parameters={"tools": [own]}))

    assert offered(provider.prompts[0]) == [own, DEFINITION]


async def test_without_cllms_tools_a_tool_call_is_the_reply(engine, ask, store):
    events = await take(engine(store, ScriptedProvider([calling("a")])), ask())

    assert events[-1].reply.stop_reason == "tool_calls"
    assert [m.role for m in (await store.load("demo")).turns[0].messages] == ["user", "assistant"]


async def test_a_failure_in_a_later_round_saves_earlier_rounds(engine, ask, store):
    refused = AuthenticationError("No more.", provider="p", status=401)
    provider = ScriptedProvider([calling("a"), refused])

    with pytest.raises(AuthenticationError):
        await take(engine(store, provider), ask(tools=Box(), fallbacks=("n",)))

    assert len(provider.prompts) == 2
    (saved,) = (await store.load("demo")).turns
    assert saved.state == "failed"
    assert [m.role for m in saved.messages] == ["user", "assistant", "tool"]


async def test_a_turn_interrupted_in_a_later_round_saves_earlier_rounds(engine, ask, store):
    provider = ScriptedProvider([calling("a"), [TextDelta(text="So"), TextDelta(text=" far")]])
    turn = engine(store, provider).run_turn(ask(tools=Box()))
    async for event in turn:
        if isinstance(event, TextDelta):
            break
    await turn.aclose()

    (saved,) = (await store.load("demo")).turns
    assert saved.state == "incomplete"
    assert [m.role for m in saved.messages] == ["user", "assistant", "tool", "assistant"]
    assert saved.messages[-1].text == "So"
