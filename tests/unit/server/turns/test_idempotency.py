"""Claims of idempotency keys: renewed while the turn runs; a failing store does not matter."""

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

HEADERS = {"X-Turn-ID": "t1"}


@pytest.fixture
def store(loop_clock: Clock) -> MemoryStore:
    return MemoryStore(clock=loop_clock)


async def try_claim(store: MemoryStore) -> IdempotencyClaim | KeptResponse:
    return await claim_idempotency_key(
        store, owner="ann", key="once", request_parts=(b"body",), lifetime=10 * CLAIM_SECONDS
    )


async def claim(store: MemoryStore) -> IdempotencyClaim:
    result = await try_claim(store)
    assert isinstance(result, IdempotencyClaim)
    return result


async def test_a_claim_is_renewed_until_the_response_is_saved(store: MemoryStore):
    current = await claim(store)

    await asyncio.sleep(3 * CLAIM_SECONDS)

    with pytest.raises(RequestInFlightError):
        await try_claim(store)
    await current.save_response(HEADERS, b"reply")
    assert await try_claim(store) == KeptResponse(status=200, headers=HEADERS, body=b"reply")


async def test_the_next_claim_returns_the_headers_of_a_released_one(store: MemoryStore):
    current = await claim(store)
    assert current.earlier is None
    await current.save_progress(HEADERS)
    await current.release()

    again = await claim(store)

    assert again.earlier is not None
    assert again.earlier.headers == HEADERS
    await again.release()


async def test_a_lost_claim_does_not_affect_the_new_one(store: MemoryStore):
    lost = await claim(store)
    # As if the process had been suspended until the claim expired.
    store._data.requests.clear()
    current = await claim(store)

    await lost.save_response(HEADERS, b"too late")
    await lost.release()

    with pytest.raises(RequestInFlightError):
        await try_claim(store)
    await current.release()


class UnavailableStore(MemoryStore):
    """A store that fails after a request was claimed."""

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:  # noqa: ARG002
        raise StoreUnavailableError("unavailable")

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:  # noqa: ARG002
        raise StoreUnavailableError("unavailable")


async def test_an_unavailable_store_does_not_end_the_response(loop_clock: Clock):
    unavailable = UnavailableStore(clock=loop_clock)
    current = await claim(unavailable)

    await current.save_progress(HEADERS)
    await current.save_response(HEADERS, b"reply")
    await current.release()

    await asyncio.sleep(CLAIM_SECONDS)
    await (await claim(unavailable)).release()


class SlowStore(MemoryStore):
    """A store that waits after it renews a claim, and before every other write."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.is_waiting = asyncio.Event()
        self.may_continue = asyncio.Event()

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
        await self.may_continue.wait()


async def cancel_during_write(store: SlowStore, work: Coroutine[Any, Any, None]) -> None:
    """Cancel the work twice while the store writes."""
    task = asyncio.create_task(work)
    await store.is_waiting.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    store.may_continue.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_key_is_free_after_a_cancellation_during_save_progress(
    loop_clock: Clock,
):
    store = SlowStore(loop_clock)
    current = await claim(store)
    await cancel_during_write(store, current.save_progress(HEADERS))

    await current.release()

    again = await claim(store)
    assert again.earlier is not None
    assert again.earlier.headers == HEADERS
    await again.release()


async def test_a_key_is_free_after_a_cancellation_during_release(
    loop_clock: Clock,
):
    store = SlowStore(loop_clock)
    current = await claim(store)

    await cancel_during_write(store, current.release())
    await current.release()

    await (await claim(store)).release()


async def test_the_response_is_saved_despite_a_cancellation(loop_clock: Clock):
    store = SlowStore(loop_clock)
    current = await claim(store)

    await cancel_during_write(store, current.save_response(HEADERS, b"reply"))
    await current.release()

    assert await try_claim(store) == KeptResponse(status=200, headers=HEADERS, body=b"reply")
