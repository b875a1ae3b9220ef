"""Requests that may be sent twice and are answered once.

A client's key and the request are kept as hashes, the answer as its bytes, for a while.
"""

import hashlib
from typing import Protocol

import msgspec

from cllm.core.ports import KeptResponse, RequestKey, ServerStore


class Claim(Protocol):
    """The right to answer a request: to be kept with the answer, or given back."""

    @property
    def keeps(self) -> bool: ...

    async def keep(self, *, headers: dict[str, str], body: bytes) -> None: ...

    async def drop(self) -> None: ...


class NoClaim:
    """For a request without a key, of which nothing is kept."""

    keeps = False

    async def keep(self, *, headers: dict[str, str], body: bytes) -> None: ...

    async def drop(self) -> None: ...


NO_CLAIM = NoClaim()


class KeyClaim(msgspec.Struct, frozen=True):
    """The right to answer the one request that a key stands for."""

    store: ServerStore
    request: RequestKey
    keeps: bool = True

    async def keep(self, *, headers: dict[str, str], body: bytes) -> None:
        """Keep what was answered, for whoever asks again."""
        response = KeptResponse(status=200, headers=headers, body=body)
        await self.store.keep_response(self.request, response)

    async def drop(self) -> None:
        """Nothing was answered that would be answered again."""
        await self.store.drop_request(self.request)


async def claim(
    store: ServerStore, *, owner: str, key: str, asked: tuple[bytes, ...], lifetime: float
) -> KeyClaim | KeptResponse:
    """The right to answer, or what was answered; `asked` is all that makes it this request."""
    digest = hashlib.sha256()
    for piece in asked:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    hashed = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    request = RequestKey(owner=owner, key=hashed, body=digest.hexdigest())
    kept = await store.claim_request(request, lifetime=lifetime)
    return KeyClaim(store, request) if kept is None else kept
