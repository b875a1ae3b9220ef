"""An engine on real stores, with a scripted provider and a manual clock."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scripted_provider import ScriptedProvider
from tests.sqlite_template import write_database
from tests.turn_requests import make_turn_request
from tests.unit.engine.summary_provider import LONG, say, summarise

from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, Provider, Store
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.engine.request import ModelRoute, TurnRequest
from cllm.engine.retry import RetryRules
from cllm.engine.turn import Engine
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.stores.sqlite.store import SqliteStore


class Clock:
    """Time passes only with `advance`."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class PausingProvider(ScriptedProvider):
    """Yields its first events, then waits until the gate is opened."""

    def __init__(self, before: Sequence[ReplyEvent], after: Sequence[ReplyEvent] = ()) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()
        self.ended = False
        self._before = before
        self._after = after

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        self.prompts.append(prompt)
        try:
            for event in self._before:
                yield event
            self.reached.set()
            await self.gate.wait()
            for event in self._after:
                yield event
        finally:
            self.ended = True


class Sleeper:
    """Records the seconds instead of sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


@pytest.fixture(params=["memory", "json", "sqlite"])
async def store(
    request: pytest.FixtureRequest, clock: Clock, tmp_path: Path
) -> AsyncIterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock=clock)
    elif request.param == "sqlite":
        write_database(tmp_path / "cllm.db")
        made = SqliteStore(tmp_path / "cllm.db", clock=clock, synchronous="NORMAL")
    else:
        made = JsonFileStore(str(tmp_path / "conversations"), clock=clock)
    yield made
    await made.close()


MakeEngine = Callable[..., Engine]


@pytest.fixture
def engine(clock: Clock, sleeper: Sleeper) -> MakeEngine:
    """Makes engines; the other parts have defaults."""
    numbers = iter(range(1, 1000))

    def make(store: Store, provider: Provider, **options: Any) -> Engine:
        given: dict[str, Any] = {
            "find_route": lambda model: ModelRoute(provider=provider, model=f"served-{model}"),
            "clock": clock,
            "new_id": lambda: f"turn-{next(numbers)}",
            "sleep": sleeper,
            "jitter": lambda: 1.0,
        }
        return Engine(store=store, **given | options)

    return make


@pytest.fixture
def ask() -> Callable[..., TurnRequest]:
    """Makes a request for a turn in conversation `demo`, which is created if needed."""

    def make(text: str = "Hello", **fields: Any) -> TurnRequest:
        ref = fields.pop("ref", "demo")
        create = None if ref is None else NewConversation(id=ref, model="m")
        given = {"model": "m", "ref": ref, "create": create} | fields
        return make_turn_request(messages=(plain_message("user", text),), **given)

    return make


@pytest.fixture
def talk(engine, ask, store):
    """Runs turns in one conversation and returns the events of each."""

    async def talk(provider: Any, count: int, *, first: int = 0, **fields: Any) -> list[list[Any]]:
        running = engine(store, provider, retry=RetryRules(retries=0))
        given = {"window": summarise} | fields
        return [
            await say(running, ask(f"q{n:<3}{LONG}", **given)) for n in range(first, first + count)
        ]

    return talk


@pytest.fixture
def empty_request(ask):
    """A request without messages."""
    return lambda **fields: ask(**fields).with_input(messages=()).with_storage(create=None)
