"""Idempotency replay: a request with a known idempotency key gets the saved response.

The store has hashes of key and request, and the response. A claim is renewed while the turn runs.
If the process dies it expires, and the next claim returns the started turn.
"""

import asyncio
import hashlib
from contextlib import suppress
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import FILES_PREFIX, StoredConversation, Turn, find_turn
from cllm.core.errors import ConversationNotFoundError, RequestInFlightError, StoreError
from cllm.core.ports import KeptResponse, RequestClaim, RequestKey, ServerStore
from cllm.engine.recorder import finish_despite_cancel
from cllm.server.state import ServerState
from cllm.server.turns.headers import CONVERSATION, TURN
from cllm.server.turns.prepare import PreparedTurn

CLAIM_SECONDS = 60.0
OK_STATUS = 200
MAX_RETRY_AGE = timedelta(minutes=10)


class Claim:
    """The right to process a request. This class stores nothing.

    `saves_response`: for replay. `earlier` is the unfinished claim of the same request.
    """

    saves_response = False
    earlier: RequestClaim | None = None

    async def save_progress(self, headers: dict[str, str], body: bytes | None = None) -> None:
        """Store the headers of a started turn, and its response before the turn is saved."""

    async def save_response(self, headers: dict[str, str], body: bytes) -> None:
        """Store the response for replay."""

    async def release(self) -> None:
        """Release the claim, unless `save_response` was called."""


NO_CLAIM = Claim()


class IdempotencyClaim(Claim):
    """The claim of an Idempotency-Key. A failing store does not end the response.

    Writes are not cancelled: a write returns the new expiry, which identifies the claim.
    """

    saves_response = True

    def __init__(self, store: ServerStore, claim: RequestClaim, *, lifetime: float) -> None:
        self._store = store
        self._lifetime = lifetime
        self._claim: RequestClaim | None = claim
        self._writing = asyncio.Lock()
        self._finished = asyncio.Event()
        self._renewal = asyncio.create_task(self._renew())
        self.earlier = claim if claim.headers else None

    async def save_progress(self, headers: dict[str, str], body: bytes | None = None) -> None:
        await finish_despite_cancel(self._write(headers, body))

    async def save_response(self, headers: dict[str, str], body: bytes) -> None:
        await finish_despite_cancel(self._finish(headers, body))

    async def release(self) -> None:
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
                        response, status=OK_STATUS, lifetime=self._lifetime
                    )
        self._finished.set()
        await self._renewal

    async def _renew(self) -> None:
        while self._claim is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), CLAIM_SECONDS / 3)
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
                # The next renewal retries, unless the claim expires first.
                return


async def claim_idempotency_key(
    store: ServerStore, *, owner: str, key: str, request_parts: tuple[bytes, ...], lifetime: float
) -> IdempotencyClaim | KeptResponse:
    hashed_key = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    request = RequestKey(owner=owner, key=hashed_key, body=hash_request(request_parts))
    result = await store.claim_request(request, seconds=CLAIM_SECONDS)
    if isinstance(result, KeptResponse):
        return result
    return IdempotencyClaim(store, result, lifetime=lifetime)


def hash_request(parts: tuple[bytes, ...]) -> str:
    """Hash the parts and their lengths."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


class RetryClaim(Claim):
    """The claim of a client that counts retries: stores the IDs of the failed turn."""

    def __init__(
        self, store: ServerStore, request: RequestKey, earlier: RequestClaim | None
    ) -> None:
        self._store = store
        self._request = request
        # If this attempt starts no turn, the next one needs the same headers.
        self._headers = {} if earlier is None else earlier.headers
        self.earlier = earlier

    async def save_progress(self, headers: dict[str, str], body: bytes | None = None) -> None:  # noqa: ARG002
        self._headers = headers

    async def release(self) -> None:
        headers, self._headers = self._headers, {}
        if headers:
            await _exchange(self._store, self._request, headers)


async def claim_retry(store: ServerStore, request: RequestKey, *, is_retry: bool) -> RetryClaim:
    earlier = await _exchange(store, request, {}) if is_retry else None
    return RetryClaim(store, request, earlier)


async def _exchange(
    store: ServerStore, request: RequestKey, headers: dict[str, str]
) -> RequestClaim | None:
    with suppress(StoreError):
        result = await store.claim_request(request, seconds=CLAIM_SECONDS)
        if isinstance(result, RequestClaim):
            await store.renew_claim(replace(result, headers=headers, body=None), seconds=0)
            return result if result.headers else None
    return None


class _EarlierTurn(msgspec.Struct, frozen=True, kw_only=True):
    turn: Turn
    conversation: StoredConversation

    @property
    def is_last(self) -> bool:
        turns = self.conversation.turns
        return bool(turns) and turns[-1].place == self.turn.place


async def resume_earlier_turn(
    prepared: PreparedTurn, claim: Claim, state: ServerState
) -> PreparedTurn | KeptResponse:
    """Return the saved response, or a turn that replaces the earlier one."""
    if claim.earlier is None:
        return prepared
    earlier = await _find_earlier_turn(prepared, claim.earlier)
    if earlier is None:
        return prepared
    if earlier.turn.is_history and claim.earlier.body is not None:
        headers, body = claim.earlier.headers, claim.earlier.body
        return KeptResponse(status=OK_STATUS, headers=headers, body=body)
    can_replace = claim.saves_response or _failed_recently(earlier.turn, state)
    return _replace_turn(prepared, earlier, state) if earlier.is_last and can_replace else prepared


async def retry_failed_turn(prepared: PreparedTurn) -> PreparedTurn:
    """Return a turn that replaces the last one, if that failed with the same messages."""
    store, storage = prepared.store, prepared.request.storage
    if store is None or storage.ref is None or storage.client_history is not None:
        return prepared
    if storage.create is not None or storage.place is not None:
        return prepared
    newest = await store.load(storage.ref, owner=storage.owner, tail=1)
    last = newest.turns[-1] if newest.turns else None
    if last is None or not last.has_failed or last.asked != prepared.request.input.messages:
        return prepared
    return replace(prepared, request=prepared.request.with_storage(place=last.place))


async def _find_earlier_turn(prepared: PreparedTurn, earlier: RequestClaim) -> _EarlierTurn | None:
    public_id, turn_id = earlier.headers.get(CONVERSATION), earlier.headers.get(TURN)
    if prepared.store is None or public_id is None or turn_id is None:
        return None
    ref = public_id.removeprefix(FILES_PREFIX)
    try:
        conversation = await prepared.store.load(ref, owner=prepared.request.storage.owner)
    except ConversationNotFoundError:
        return None
    if conversation.archived_at is not None:
        return None
    turn = find_turn(conversation, turn_id)
    return None if turn is None else _EarlierTurn(turn=turn, conversation=conversation)


def _failed_recently(turn: Turn, state: ServerState) -> bool:
    """Whether the client may still retry."""
    ended_at, oldest = turn.ended_at, state.clock() - MAX_RETRY_AGE
    return turn.has_failed and ended_at is not None and ended_at > oldest


def _replace_turn(
    prepared: PreparedTurn, earlier: _EarlierTurn, state: ServerState
) -> PreparedTurn:
    request = prepared.request.with_storage(place=earlier.turn.place)
    if request.storage.create is None:
        return replace(prepared, request=request)
    conversation = earlier.conversation
    request = request.with_storage(
        ref=conversation.id,
        create=None,
        preloaded=conversation,
        cache_key=state.app.cache_key(conversation.id),
    )
    return replace(prepared, request=request, public_id=conversation.id)
