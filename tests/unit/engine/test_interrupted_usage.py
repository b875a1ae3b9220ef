"""Usage of turns that do not complete, as the provider reported it."""

import asyncio
from collections.abc import Callable

import pytest
from tests.scripted_provider import ScriptedProvider
from tests.unit.engine.conftest import PausingProvider

from cllm.core.errors import BrokenStreamError
from cllm.core.ports import Store
from cllm.core.reply import TextDelta, Usage, UsageReported
from cllm.engine.request import TurnRequest
from cllm.engine.turn import Engine

REPORTED = UsageReported(usage=Usage(input=777, output=1))
BROKEN = BrokenStreamError("It broke.", provider="fake")


async def cancel_after_text(
    engine: Callable[..., Engine], store: Store, request: TurnRequest
) -> None:
    provider = PausingProvider([REPORTED, TextDelta(text="Half of an answer")], [])

    async def run() -> None:
        async for _ in engine(store, provider).run_turn(request):
            pass

    running = asyncio.create_task(run())
    await provider.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancelled_turn_has_the_reported_input_tokens(engine, ask, store):
    await cancel_after_text(engine, store, ask())

    (turn,) = (await store.load("demo")).turns
    assert turn.state == "incomplete"
    assert turn.usage.input == 777
    assert turn.usage.output > 1
    assert turn.usage.estimated


async def test_a_broken_stream_saves_its_text_and_usage(engine, ask, store):
    provider = ScriptedProvider([[REPORTED, TextDelta(text="Half"), BROKEN]])
    with pytest.raises(BrokenStreamError):
        async for _ in engine(store, provider).run_turn(ask()):
            pass

    (turn,) = (await store.load("demo")).turns
    assert (turn.state, [message.text for message in turn.messages]) == (
        "failed",
        ["Hello", "Half"],
    )
    assert turn.usage.input == 777


async def test_the_usage_of_a_cancelled_stateless_turn_is_counted(engine, ask, store):
    counted = []
    request = ask().with_storage(
        ref=None, create=None, count_unsaved=lambda *call: counted.append(call)
    )
    await cancel_after_text(engine, store, request)

    ((model, usage, _),) = counted
    assert (model, usage.input) == ("m", 777)


async def test_a_report_of_usage_does_not_prevent_a_retry(engine, ask, store):
    provider = ScriptedProvider([[REPORTED, BROKEN], "Hi"])
    events = [event async for event in engine(store, provider).run_turn(ask())]

    assert events[-1].reply.message.text == "Hi"
