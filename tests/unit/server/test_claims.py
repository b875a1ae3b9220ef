"""Claims on requests with a key: renewed while somebody answers, and never a reason to fail."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.virtual_time import loop_clock

from cllm.core.errors import RequestInFlightError, StoreUnavailableError
from cllm.core.ports import Clock, KeptResponse, RequestClaim
from cllm.server.turns.idempotency import CLAIM_SECONDS, IdempotencyClaim, claim_idempotency_key
from cllm.stores.memory import MemoryStore

__all__ = ["loop_clock"]

HEAD = {"X-Turn-ID": "t1"}


@pytest.fixture
def store(loop_clock: Clock) -> MemoryStore:
    return MemoryStore(clock=loop_clock)


async def ask(store: MemoryStore) -> IdempotencyClaim | KeptResponse:
    return await claim_idempotency_key(
        store, owner="ann", key="once", request_parts=(b"body",), lifetime=10 * CLAIM_SECONDS
    )


async def begin(store: MemoryStore) -> IdempotencyClaim:
    taken = await ask(store)
    assert isinstance(taken, IdempotencyClaim)
    return taken


async def test_a_claim_lasts_for_as_long_as_somebody_answers(store: MemoryStore):
    held = await begin(store)

    await asyncio.sleep(3 * CLAIM_SECONDS)

    with pytest.raises(RequestInFlightError):
        await ask(store)
    await held.save_response(HEAD, b"said")
    assert await ask(store) == KeptResponse(status=200, headers=HEAD, body=b"said")


async def test_a_claim_that_is_given_back_says_what_was_begun(store: MemoryStore):
    held = await begin(store)
    assert held.earlier is None
    await held.save_progress(HEAD)
    await held.release()

    again = await begin(store)

    assert again.earlier is not None
    assert again.earlier.headers == HEAD
    await again.release()


async def test_who_lost_a_claim_takes_nothing_from_who_has_it(store: MemoryStore):
    lost = await begin(store)
    # What a process that stood still for too long finds.
    store._data.requests.clear()
    held = await begin(store)

    await lost.save_response(HEAD, b"too late")
    await lost.release()

    with pytest.raises(RequestInFlightError):
        await ask(store)
    await held.release()


class Away(MemoryStore):
    """A store that takes a claim and is gone then."""

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:  # noqa: ARG002
        raise StoreUnavailableError("away")

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:  # noqa: ARG002
        raise StoreUnavailableError("away")


async def test_a_store_that_is_away_takes_nothing_from_an_answer(loop_clock: Clock):
    away = Away(clock=loop_clock)
    held = await begin(away)

    await held.save_progress(HEAD)
    await held.save_response(HEAD, b"said")
    await held.release()

    await asyncio.sleep(CLAIM_SECONDS)
    await (await begin(away)).release()


class Slow(MemoryStore):
    """A store that takes its time: after it has renewed a claim, before it writes anything else."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.is_waiting = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        if not seconds:
            await self._wait()
        renewed = await super().renew_claim(claim, seconds=seconds)
        if seconds:
            await self._wait()
        return renewed

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        await self._wait()
        await super().keep_response(claim, status=status, lifetime=lifetime)

    async def _wait(self) -> None:
        self.is_waiting.set()
        await self.may_go_on.wait()


async def cancelled_while_it_writes(store: Slow, work: Coroutine[Any, Any, None]) -> None:
    """Cancel the work, twice, while the store is at it."""
    task = asyncio.create_task(work)
    await store.is_waiting.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    store.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_key_is_free_at_once_when_its_turn_is_broken_off_while_the_claim_is_written(
    loop_clock: Clock,
):
    store = Slow(loop_clock)
    held = await begin(store)
    await cancelled_while_it_writes(store, held.save_progress(HEAD))

    await held.release()

    again = await begin(store)
    assert again.earlier is not None
    assert again.earlier.headers == HEAD
    await again.release()


async def test_who_is_cancelled_while_a_key_is_given_back_has_given_it_back(
    loop_clock: Clock,
):
    store = Slow(loop_clock)
    held = await begin(store)

    await cancelled_while_it_writes(store, held.release())
    await held.release()

    await (await begin(store)).release()


async def test_an_answer_is_kept_though_its_turn_is_broken_off_meanwhile(loop_clock: Clock):
    store = Slow(loop_clock)
    held = await begin(store)

    await cancelled_while_it_writes(store, held.save_response(HEAD, b"said"))
    await held.release()

    assert await ask(store) == KeptResponse(status=200, headers=HEAD, body=b"said")
