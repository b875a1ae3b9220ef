"""Requests that may be sent twice and are answered once.

The store holds hashes of key and request, and the response. A claim is renewed while the response
is made. If the server dies it expires, and the next claim learns which turn was started.
"""

import asyncio
import hashlib
from contextlib import suppress
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import ConversationNotFoundError, RequestInFlightError, StoreError
from cllm.core.ports import KeptResponse, RequestClaim, RequestKey, ServerStore
from cllm.engine.recorder import finish_despite_cancel
from cllm.server.state import ServerState
from cllm.server.turns.headers import CONVERSATION, FILES, TURN
from cllm.server.turns.prepare import PreparedTurn

CLAIM_SECONDS = 60.0
ANSWERED = 200
RETRIED_WITHIN = timedelta(minutes=10)


class Claim:
    """The right to answer a request. This class stores nothing.

    `keeps`: it stores the response. `before` is an earlier, unfinished response.
    """

    keeps = False
    before: RequestClaim | None = None

    async def note(self, headers: dict[str, str], body: bytes | None = None) -> None:
        """Store the headers of a started turn, or its response before it is saved."""

    async def keep(self, headers: dict[str, str], body: bytes) -> None:
        """Store the response for a repeated request."""

    async def drop(self) -> None:
        """Release the claim, unless `keep` was called."""


NO_CLAIM = Claim()


class IdempotencyClaim(Claim):
    """The claim of an Idempotency-Key. A failing store does not end the response.

    Writes are not interrupted: a write returns the new expiry, which identifies the claim.
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
        await finish_despite_cancel(self._write(headers, body))

    async def keep(self, headers: dict[str, str], body: bytes) -> None:
        await finish_despite_cancel(self._finish(headers, body))

    async def drop(self) -> None:
        await finish_despite_cancel(self._finish())

    async def _finish(self, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Store the response, or release the claim without one."""
        async with self._writing:
            claim, self._claim = self._claim, None
            with suppress(StoreError):
                if claim is not None and headers is None:
                    await self._store.renew_claim(claim, seconds=0)
                elif claim is not None:
                    response = replace(claim, headers=headers, body=body)
                    await self._store.keep_response(
                        response, status=ANSWERED, lifetime=self._lifetime
                    )
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
                # The next renewal tries again, unless the claim expires before.
                return


async def claim(
    store: ServerStore, *, owner: str, key: str, asked: tuple[bytes, ...], lifetime: float
) -> IdempotencyClaim | KeptResponse:
    """`asked` identifies the request."""
    hashed = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    request = RequestKey(owner=owner, key=hashed, body=hash_of(asked))
    taken = await store.claim_request(request, seconds=CLAIM_SECONDS)
    if isinstance(taken, KeptResponse):
        return taken
    return IdempotencyClaim(store, taken, lifetime=lifetime)


def hash_of(asked: tuple[bytes, ...]) -> str:
    """Hash the pieces and their boundaries."""
    digest = hashlib.sha256()
    for piece in asked:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()


class RetryClaim(Claim):
    """The claim of a library that counts retries: stores where the failed turn is."""

    def __init__(
        self, store: ServerStore, request: RequestKey, before: RequestClaim | None
    ) -> None:
        self._store = store
        self._request = request
        # Stored again if this attempt starts no turn, for the next attempt.
        self._headers = {} if before is None else before.headers
        self.before = before

    async def note(self, headers: dict[str, str], body: bytes | None = None) -> None:  # noqa: ARG002
        self._headers = headers

    async def drop(self) -> None:
        headers, self._headers = self._headers, {}
        if headers:
            await _exchange(self._store, self._request, headers)


async def attempt(store: ServerStore, request: RequestKey, *, again: bool) -> RetryClaim:
    before = await _exchange(store, request, {}) if again else None
    return RetryClaim(store, request, before)


async def _exchange(
    store: ServerStore, request: RequestKey, headers: dict[str, str]
) -> RequestClaim | None:
    """Store the headers and return those stored before."""
    with suppress(StoreError):
        taken = await store.claim_request(request, seconds=CLAIM_SECONDS)
        if isinstance(taken, RequestClaim):
            await store.renew_claim(replace(taken, headers=headers, body=None), seconds=0)
            return taken if taken.headers else None
    return None


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    turn: Turn
    conversation: StoredConversation

    @property
    def is_last(self) -> bool:
        turns = self.conversation.turns
        return bool(turns) and turns[-1].place == self.turn.place


async def take_up(
    prepared: PreparedTurn, claim: Claim, serving: ServerState
) -> PreparedTurn | KeptResponse:
    """Replace the turn of the earlier request, or return its response."""
    if claim.before is None:
        return prepared
    begun = await _find(prepared, claim.before)
    if begun is None:
        return prepared
    if begun.turn.is_history and claim.before.body is not None:
        headers, body = claim.before.headers, claim.before.body
        return KeptResponse(status=ANSWERED, headers=headers, body=body)
    may_be_old = claim.keeps or _is_fresh_failure(begun.turn, serving)
    return _in_place(prepared, begun, serving) if begun.is_last and may_be_old else prepared


async def try_again(prepared: PreparedTurn) -> PreparedTurn:
    """Replace the last turn, if it failed with the same messages."""
    store, policy = prepared.store, prepared.request.policy
    if store is None or policy.ref is None or policy.create is not None or policy.place:
        return prepared
    preloaded = await store.load(policy.ref, owner=policy.owner, tail=1)
    last = preloaded.turns[-1] if preloaded.turns else None
    if last is None or last.state != "failed" or last.asked != prepared.request.input.messages:
        return prepared
    return replace(prepared, request=prepared.request.with_policy(place=last.place))


async def _find(prepared: PreparedTurn, before: RequestClaim) -> _Begun | None:
    shown, turn_id = before.headers.get(CONVERSATION), before.headers.get(TURN)
    if prepared.store is None or shown is None or turn_id is None:
        return None
    ref = shown.removeprefix(FILES)
    try:
        preloaded = await prepared.store.load(ref, owner=prepared.request.policy.owner)
    except ConversationNotFoundError:
        return None
    if preloaded.archived_at is not None:
        return None
    for turn in (*preloaded.turns, *preloaded.variants):
        if turn.id == turn_id:
            return _Begun(turn=turn, conversation=preloaded)
    return None


def _is_fresh_failure(turn: Turn, serving: ServerState) -> bool:
    """Whether the library may still retry."""
    ended = turn.ended_at
    return turn.state == "failed" and ended is not None and ended > serving.clock() - RETRIED_WITHIN


def _in_place(prepared: PreparedTurn, begun: _Begun, serving: ServerState) -> PreparedTurn:
    request = prepared.request.with_policy(place=begun.turn.place)
    if request.policy.create is None:
        return replace(prepared, request=request)
    preloaded = begun.conversation
    request = request.with_policy(
        ref=preloaded.id,
        create=None,
        preloaded=preloaded,
        cache_key=serving.app.cache_key(preloaded.id),
    )
    return replace(prepared, request=request, shown=preloaded.id)
