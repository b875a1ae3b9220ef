"""Fixtures and helpers for the store contracts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
import pytest

from cllm.core.conversation import StoredConversation, SystemRecord, Turn, TurnFailure
from cllm.core.message import Message, plain_message
from cllm.core.ports import Lease, NewConversation, Opening, Store, TurnStart
from cllm.core.reply import Usage

replace = msgspec.structs.replace


class TickingClock:
    """A clock that advances by a millisecond at each call."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.advance(0.001)
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class StoreHarness(Protocol):
    """Opens stores on the same data. They wait only briefly for a running turn."""

    async def open(self) -> Store: ...

    async def lose(self, store: Store, /) -> None:
        """Make the store's leases expire, as if its process had died."""


SYSTEM = plain_message("system", "Be brief.")
OPENING = Opening(system=SYSTEM, system_record=SystemRecord(policy="captured", source="settings"))


def start(turn_id: str, text: str = "Hello", **options: object) -> TurnStart:
    turn_start = TurnStart(id=turn_id, messages=(plain_message("user", text),), model="m")
    return replace(turn_start, **options)


def answered(lease: Lease, text: str = "Hi") -> Turn:
    messages = (*lease.turn.messages, plain_message("assistant", text))
    usage = Usage(input=3, output=4)
    return replace(lease.turn, state="complete", messages=messages, usage=usage)


def failed(lease: Lease) -> Turn:
    failure = TurnFailure(code="UpstreamError", message="It broke.")
    return replace(lease.turn, state="failed", failure=failure)


async def say(store: Store, ref: str, turn_id: str, text: str = "Hello") -> None:
    """Store a turn with the message `text` and the reply `text?`."""
    lease = await store.begin_turn(ref, start(turn_id, text), create=NewConversation(id=ref))
    await store.finish_turn(lease, answered(lease, f"{text}?"), opening=OPENING)


async def bring_results(store: Store, ref: str, turn_id: str) -> None:
    """Store a turn that starts with a tool result."""
    raw = msgspec.json.encode({"role": "tool", "tool_call_id": "c1", "content": "42"})
    turn_start = TurnStart(id=turn_id, messages=(Message(role="tool", raw=raw),))
    lease = await store.begin_turn(ref, turn_start)
    await store.finish_turn(lease, answered(lease))


async def say_again(store: Store, ref: str, turn_id: str, *, place: str, text: str) -> None:
    """Store another answer as a variant of the turn `place`."""
    lease = await store.begin_turn(ref, start(turn_id, place=place))
    await store.finish_turn(lease, answered(lease, text))


def texts(conversation: StoredConversation) -> list[str]:
    return [message.text for turn in conversation.turns for message in turn.messages]


class StoreSuite:
    """The fixtures. A subclass defines the fixture `harness`."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        raise NotImplementedError

    @pytest.fixture
    async def store(self, harness: StoreHarness) -> AsyncIterator[Store]:
        store = await harness.open()
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, harness: StoreHarness) -> AsyncIterator[Store]:
        """A second store on the same data, as in another process."""
        other = await harness.open()
        yield other
        await other.close()

    async def _refuse(self, error: type[Exception], *attempts: Awaitable[object]) -> None:
        for attempt in attempts:
            with pytest.raises(error):
                await attempt

    async def _finish(
        self,
        store: Store,
        turn_start: TurnStart,
        build: Callable[[Lease], Turn] = answered,
        *,
        ref: str = "demo",
        opening: Opening | None = None,
    ) -> None:
        lease = await store.begin_turn(ref, turn_start, create=NewConversation(id=ref))
        await store.finish_turn(lease, build(lease), opening=opening)

    async def _say_turns(self, store: Store, count: int) -> None:
        for number in range(1, count + 1):
            await say(store, "demo", f"t{number}")
