"""Requests that may be sent twice and are answered once.

A client's key and the request are kept as hashes, the answer as its bytes, for a while. The right
to answer is renewed for as long as somebody does: with a server that dies it runs out like the
lease of a turn, and whoever takes it over learns which turn was begun.
"""

import asyncio
import hashlib
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from cllm.core.errors import RequestInFlightError, StoreError
from cllm.core.ports import KeptResponse, RequestClaim, RequestKey, ServerStore
from cllm.engine.uninterrupted import uninterrupted

CLAIM_SECONDS = 60.0
ANSWERED = 200


class Claim(Protocol):
    """The right to answer a request: to be kept with the answer, or given back."""

    @property
    def keeps(self) -> bool: ...

    @property
    def before(self) -> RequestClaim | None:
        """What is known of the answer that somebody began before."""
        ...

    async def note(self, headers: dict[str, str], body: bytes | None = None) -> None:
        """The answer so far: its head when the turn has begun, its body before that is kept."""
        ...

    async def keep(self, headers: dict[str, str], body: bytes) -> None:
        """Keep what was answered, for whoever asks again."""
        ...

    async def drop(self) -> None:
        """Nothing was answered that would be answered again. After `keep` it does nothing."""
        ...


class NoClaim:
    """For a request without a key, of which nothing is kept."""

    keeps = False
    before = None

    async def note(self, headers: dict[str, str], body: bytes | None = None) -> None: ...

    async def keep(self, headers: dict[str, str], body: bytes) -> None: ...

    async def drop(self) -> None: ...


NO_CLAIM = NoClaim()


class KeyClaim:
    """The right to answer the one request that a key stands for.

    A store that is away takes nothing from an answer: it goes out, and the claim runs out. What is
    written is written to its end: a claim is known by when it runs out, which the store says last.
    """

    keeps = True

    def __init__(self, store: ServerStore, claim: RequestClaim, *, lifetime: float) -> None:
        self._store = store
        self._lifetime = lifetime
        self._claim: RequestClaim | None = claim
        self._writing = asyncio.Lock()
        self._over = asyncio.Event()
        self._renewal = asyncio.create_task(self._renew())
        self.before = claim if claim.headers else None

    async def note(self, headers: dict[str, str], body: bytes | None = None) -> None:
        await uninterrupted(self._write(headers, body))

    async def keep(self, headers: dict[str, str], body: bytes) -> None:
        await uninterrupted(self._keep(headers, body))

    async def drop(self) -> None:
        await uninterrupted(self._drop())

    async def _keep(self, headers: dict[str, str], body: bytes) -> None:
        async with self._writing:
            if (claim := self._claim) is not None:
                self._claim = None
                answered = replace(claim, headers=headers, body=body)
                with suppress(StoreError):
                    await self._store.keep_response(
                        answered, status=ANSWERED, lifetime=self._lifetime
                    )
        await self._end()

    async def _drop(self) -> None:
        async with self._writing:
            if (claim := self._claim) is not None:
                self._claim = None
                with suppress(StoreError):
                    await self._store.renew_claim(claim, seconds=0)
        await self._end()

    async def _end(self) -> None:
        self._over.set()
        await self._renewal

    async def _renew(self) -> None:
        while self._claim is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), CLAIM_SECONDS / 3)
            await self._write()

    async def _write(
        self, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """Renew the claim, with what is new of the answer."""
        async with self._writing:
            if self._claim is None:
                return
            if headers is not None:
                self._claim = replace(self._claim, headers=headers, body=body)
            try:
                self._claim = await self._store.renew_claim(self._claim, seconds=CLAIM_SECONDS)
            except RequestInFlightError:
                self._claim = None
            except StoreError:
                # Tried again the next time, while the claim lasts.
                return


async def claim(
    store: ServerStore, *, owner: str, key: str, asked: tuple[bytes, ...], lifetime: float
) -> KeyClaim | KeptResponse:
    """The right to answer, or what was answered; `asked` is all that makes it this request."""
    hashed = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    request = RequestKey(owner=owner, key=hashed, body=hash_of(asked))
    taken = await store.claim_request(request, seconds=CLAIM_SECONDS)
    if isinstance(taken, KeptResponse):
        return taken
    return KeyClaim(store, taken, lifetime=lifetime)


def hash_of(asked: tuple[bytes, ...]) -> str:
    """One hash for several pieces, wherever one ends and the next begins."""
    digest = hashlib.sha256()
    for piece in asked:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()
