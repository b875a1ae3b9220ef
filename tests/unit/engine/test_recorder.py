"""A turn is saved exactly once at its end, also when it is cancelled."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from tests.scripted_provider import ScriptedProvider
from tests.store_gates import block_method, wait_for_background
from tests.virtual_time import loop_clock

from cllm.core.conversation import Turn
from cllm.core.errors import (
    BrokenStreamError,
    CllmError,
    ReplySchemaError,
    StaleLeaseError,
    StoreUnavailableError,
)
from cllm.core.message import plain_message
from cllm.core.ports import Clock, Lease, NewConversation, Opening, Store, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyFinished, TextDelta, Usage
from cllm.engine.optional_steps import OptionalSteps
from cllm.engine.prompt_history import ModelContext
from cllm.engine.recorder import MIN_PAUSE, TurnRecorder
from cllm.engine.request import Attempt, ModelRoute, TurnStorage, unknown_price
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
REJECTED = ReplySchemaError("It is no object.", place="$")


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


async def recorder_for(store: Store, clock: Clock) -> TurnRecorder:
    start = TurnStart(id="t", messages=(HELLO,))
    lease = await store.begin_turn("demo", start, create=NewConversation(id="demo"))
    keeper = TurnRecorder(store, lease, clock=clock, storage=TurnStorage())
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
    dropping = asyncio.create_task(end(await recorder_for(store, clock), REJECTED))
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


class OptionalTurn:
    """A turn that is only recorded, in a store that waits; `counted` are the unsaved usages."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.gate = block_method(monkeypatch, store, "finish_turn")
        self.errors: list[CllmError] = []
        self.background: set[asyncio.Task[None]] = set()
        self.counted: list[tuple[str, Usage]] = []

    async def recorder(self, clock: Clock) -> TurnRecorder:
        start = TurnStart(id="t", messages=(HELLO,))
        lease = await self.store.begin_turn("demo", start, create=NewConversation(id="demo"))
        recorder = TurnRecorder(
            self.store,
            lease,
            clock=clock,
            storage=TurnStorage(
                optional_steps=OptionalSteps(self.errors.append, background=self.background),
                count_unsaved=lambda model, usage, _: self.counted.append((model, usage)),
            ),
        )
        recorder.on_prompt(PROMPT, ATTEMPT)
        recorder.on_event(TextDelta(text="Hi"))
        return recorder

    async def open_gate(self) -> None:
        self.gate.set()
        await wait_for_background(self.background)


@pytest.mark.parametrize(
    ("error", "saved"),
    [
        (None, [("complete", ["Hello", "Hi there"])]),
        (BROKEN, [("failed", ["Hello", "Hi"])]),
        (asyncio.CancelledError(), [("incomplete", ["Hello", "Hi"])]),
    ],
)
async def test_an_optional_turn_ends_before_it_is_saved(
    loop_clock, monkeypatch, error: BaseException | None, saved
):
    store = MemoryStore(clock=loop_clock)
    turn = OptionalTurn(store, monkeypatch)
    [raised] = await asyncio.gather(
        end(await turn.recorder(loop_clock), error), return_exceptions=True
    )

    assert type(raised) is type(error)
    assert [type(one) for one in turn.errors] == [StoreUnavailableError]
    assert [state for state, _ in await states(store)] == ["running"]
    await turn.open_gate()
    assert await states(store) == saved
    assert not turn.counted


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_late_turn_is_counted_only_if_it_is_not_saved(
    loop_clock, monkeypatch, is_lost: bool
):
    store = MemoryStore(clock=loop_clock)
    turn = OptionalTurn(store, monkeypatch)
    recorder = await turn.recorder(loop_clock)
    usage = Usage(input=3, output=2)
    async with recorder:
        completed = await recorder.complete(replace(REPLY, usage=usage))
    assert completed is not None
    if is_lost:
        await store.drop_turn(recorder.lease)
    await turn.open_gate()

    assert turn.counted == ([("m", usage)] if is_lost else [])


async def test_an_optional_turn_does_not_wait_for_the_renewal_of_its_lease(loop_clock, monkeypatch):
    store = Renewing(clock=loop_clock)
    gate = asyncio.Event()

    async def renew_despite_cancel(lease: Lease) -> Lease:
        store.tried.set()
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()
        raise StaleLeaseError(lease.conversation.id)

    monkeypatch.setattr(store, "renew_lease", renew_despite_cancel)
    turn = OptionalTurn(store, monkeypatch)
    turn.gate.set()
    await end(await turn.recorder(loop_clock), after=store.tried)

    assert await states(store) == [("complete", ["Hello", "Hi there"])]
    gate.set()
    await wait_for_background(turn.background)
