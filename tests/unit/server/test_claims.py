"""Claims on requests with a key: renewed while somebody answers, and never a reason to fail."""

import asyncio
from datetime import UTC, datetime

import pytest

from cllm.core.errors import RequestInFlightError, StoreUnavailableError
from cllm.core.ports import KeptResponse, RequestClaim
from cllm.server import idempotency
from cllm.server.idempotency import KeyClaim, claim
from cllm.stores.memory import MemoryStore

SECONDS = 0.15
HEAD = {"X-Turn-ID": "t1"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "CLAIM_SECONDS", SECONDS)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=lambda: datetime.now(UTC))


async def ask(store: MemoryStore) -> KeyClaim | KeptResponse:
    return await claim(store, owner="ann", key="once", asked=(b"body",), lifetime=60)


async def begin(store: MemoryStore) -> KeyClaim:
    taken = await ask(store)
    assert isinstance(taken, KeyClaim)
    return taken


async def test_a_claim_lasts_for_as_long_as_somebody_answers(store: MemoryStore):
    held = await begin(store)

    await asyncio.sleep(3 * SECONDS)

    with pytest.raises(RequestInFlightError):
        await ask(store)
    await held.keep(HEAD, b"said")
    assert await ask(store) == KeptResponse(status=200, headers=HEAD, body=b"said")


async def test_a_claim_that_is_given_back_says_what_was_begun(store: MemoryStore):
    held = await begin(store)
    assert held.before is None
    await held.note(HEAD)
    await held.drop()

    again = await begin(store)

    assert again.before is not None
    assert again.before.headers == HEAD
    await again.drop()


async def test_who_lost_a_claim_takes_nothing_from_who_has_it(store: MemoryStore):
    lost = await begin(store)
    # What a process that stood still for too long finds.
    store._data.requests._known.clear()
    held = await begin(store)

    await lost.keep(HEAD, b"too late")
    await lost.drop()

    with pytest.raises(RequestInFlightError):
        await ask(store)
    await held.drop()


class Away(MemoryStore):
    """A store that takes a claim and is gone then."""

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:  # noqa: ARG002
        raise StoreUnavailableError("away")

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:  # noqa: ARG002
        raise StoreUnavailableError("away")


async def test_a_store_that_is_away_takes_nothing_from_an_answer():
    away = Away(clock=lambda: datetime.now(UTC))
    held = await begin(away)

    await held.note(HEAD)
    await held.keep(HEAD, b"said")
    await held.drop()

    await asyncio.sleep(SECONDS)
    await (await begin(away)).drop()
