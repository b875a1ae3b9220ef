"""A turn is saved exactly once at its end, also when it is cancelled."""

import asyncio
from datetime import UTC, datetime

import pytest
from tests.scripted_provider import ScriptedProvider
from tests.virtual_time import loop_clock

from cllm.core.conversation import Turn
from cllm.core.errors import BrokenStreamError
from cllm.core.message import plain_message
from cllm.core.ports import Clock, Lease, NewConversation, Opening, Store, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyFinished, TextDelta
from cllm.engine.prompt_history import ModelContext
from cllm.engine.recorder import MIN_PAUSE, TurnRecorder
from cllm.engine.request import Attempt, ModelRoute, unknown_price
from cllm.history.context import NO_CONTEXT
from cllm.history.system_prompt import SystemChoice
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore

__all__ = ["loop_clock"]

HELLO = plain_message("user", "Hello")
PROMPT = Prompt(model="m", messages=(HELLO,))
ATTEMPT = Attempt(
    route=ModelRoute(provider=ScriptedProvider(()), model="m"),
    model="m",
    choice=SystemChoice(message=None),
    context=NO_CONTEXT,
    price=unknown_price(None),
    model_context=ModelContext(
        model="m",
        provider="scripted",
        context_window=lambda: None,
        now=datetime(2026, 11, 15, tzinfo=UTC),
    ),
)
REPLY = ReplyFinished(message=plain_message("assistant", "Hi there"), stop_reason="end")
BROKEN = BrokenStreamError("The stream broke.", provider="scripted")


class HalfWay(JsonFileStore):
    """Pauses while it ends a turn until the gate is opened."""

    def __init__(self, folder: str, *, clock: Clock) -> None:
        super().__init__(folder, clock=clock)
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        self.reached.set()
        await self.gate.wait()
        await super().finish_turn(lease, turn, opening=opening)

    async def drop_turn(self, lease: Lease) -> None:
        self.reached.set()
        await self.gate.wait()
        await super().drop_turn(lease)


class Renewing(MemoryStore):
    """Counts the renewals of a lease, and fails with an unexpected error."""

    def __init__(self, *, clock: Clock, error: Exception | None = None) -> None:
        super().__init__(clock=clock, lease_seconds=0.1)
        self.tries = 0
        self.tried = asyncio.Event()
        self._error = error

    async def renew_lease(self, lease: Lease) -> Lease:
        self.tries += 1
        self.tried.set()
        if self._error is not None:
            raise self._error
        return await super().renew_lease(lease)


async def recorder_for(store: Store, clock: Clock, *, visible: bool = True) -> TurnRecorder:
    start = TurnStart(id="t", messages=(HELLO,), visible=visible)
    lease = await store.begin_turn("demo", start, create=NewConversation(id="demo"))
    keeper = TurnRecorder(store, lease, clock=clock)
    keeper.on_prompt(PROMPT, ATTEMPT)
    keeper.on_event(TextDelta(text="Hi"))
    return keeper


async def end(
    keeper: TurnRecorder, error: BaseException | None = None, *, after: asyncio.Event | None = None
) -> None:
    """End the turn with its reply or with the error."""
    async with keeper:
        if after is not None:
            await after.wait()
        if error is not None:
            raise error
        await keeper.complete(REPLY)


async def states(store: Store) -> list[tuple[str, list[str]]]:
    """Return the states and texts of the turns."""
    conversation = await store.load("demo")
    return [(turn.state, [m.text for m in turn.messages]) for turn in conversation.turns]


@pytest.mark.parametrize(
    ("error", "saved"),
    [
        (None, [("complete", ["Hello", "Hi there"])]),
        (BROKEN, [("failed", ["Hello", "Hi"])]),
    ],
)
async def test_a_turn_cancelled_while_it_is_saved_is_saved(
    clock, tmp_path, error: Exception | None, saved
):
    store = HalfWay(str(tmp_path), clock=clock)
    keeping = asyncio.create_task(end(await recorder_for(store, clock), error))
    await store.reached.wait()

    keeping.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await keeping

    assert await states(store) == saved


async def test_a_turn_cancelled_while_it_is_dropped_is_dropped(clock, tmp_path):
    store = HalfWay(str(tmp_path), clock=clock)
    dropping = asyncio.create_task(end(await recorder_for(store, clock, visible=False), BROKEN))
    await store.reached.wait()

    dropping.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await dropping

    start = TurnStart(id="next", messages=())
    lease = await store.begin_turn("demo", start, create=NewConversation(id="demo"), wait=0)
    await store.drop_turn(lease)


@pytest.mark.parametrize("renewed", [False, True])
async def test_the_lease_of_an_ended_turn_is_not_renewed(loop_clock, renewed: bool):
    store = Renewing(clock=loop_clock)
    await end(await recorder_for(store, loop_clock), after=store.tried if renewed else None)

    before = store.tries
    assert len(asyncio.all_tasks()) == 1
    await asyncio.sleep(3 * MIN_PAUSE)
    assert store.tries == before == int(renewed)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("error", "saved"),
    [
        (None, [("complete", ["Hello", "Hi there"])]),
        (BROKEN, [("failed", ["Hello", "Hi"])]),
        (asyncio.CancelledError(), [("incomplete", ["Hello", "Hi"])]),
    ],
)
async def test_a_turn_is_saved_after_a_failed_renewal(clock, error: BaseException | None, saved):
    store = Renewing(clock=clock, error=OSError("nobody thought of this"))
    keeper = await recorder_for(store, clock)

    [raised] = await asyncio.gather(end(keeper, error, after=store.tried), return_exceptions=True)

    assert isinstance(raised, OSError)
    assert raised.__context__ is error
    assert await states(store) == saved
