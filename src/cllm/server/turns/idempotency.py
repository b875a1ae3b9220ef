"""Requests that may be sent twice and are answered once.

A client's key and the request are kept as hashes, the answer as its bytes, for a while. The right
to answer is renewed for as long as somebody does: with a server that dies it runs out like the
lease of a turn, and whoever takes it over learns which turn was begun.
"""

import asyncio
import hashlib
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import Conversation, Turn
from cllm.core.errors import ConversationNotFoundError, RequestInFlightError, StoreError
from cllm.core.ports import KeptResponse, RequestClaim, RequestKey, ServerStore
from cllm.engine.keep import uninterrupted
from cllm.server.serving import Serving
from cllm.server.turns.headers import CONVERSATION, FILES, TURN
from cllm.server.turns.prepare import PreparedTurn

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


RETRIED_WITHIN = timedelta(minutes=10)


class Attempt:
    """One of several attempts of a client's library, which says that it tries again but has no key.

    Keeps no answer. Of an attempt that fails it is noted where its turn is.
    """

    keeps = False

    def __init__(
        self, store: ServerStore, request: RequestKey, before: RequestClaim | None
    ) -> None:
        self._store = store
        self._request = request
        # Noted again where no turn is begun: the next attempt asks for it too.
        self._headers = {} if before is None else before.headers
        self.before = before

    async def note(self, headers: dict[str, str], body: bytes | None = None) -> None:  # noqa: ARG002
        self._headers = headers

    async def keep(self, headers: dict[str, str], body: bytes) -> None: ...

    async def drop(self) -> None:
        headers, self._headers = self._headers, {}
        if headers:
            await _exchange(self._store, self._request, headers)


async def attempt(store: ServerStore, request: RequestKey, *, again: bool) -> Attempt:
    """An attempt; what is known of the one before is given out once, to one that comes `again`."""
    before = await _exchange(store, request, {}) if again else None
    return Attempt(store, request, before)


async def _exchange(
    store: ServerStore, request: RequestKey, headers: dict[str, str]
) -> RequestClaim | None:
    """What was noted for a request; the headers are noted in its place."""
    with suppress(StoreError):
        taken = await store.claim_request(request, seconds=CLAIM_SECONDS)
        if isinstance(taken, RequestClaim):
            await store.renew_claim(replace(taken, headers=headers, body=None), seconds=0)
            return taken if taken.headers else None
    return None


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was begun for a request, and the conversation it is in."""

    turn: Turn
    conversation: Conversation

    @property
    def is_last(self) -> bool:
        """Whether nothing was said after it, so that another turn can have its place."""
        turns = self.conversation.turns
        return bool(turns) and turns[-1].place == self.turn.place


async def take_up(
    prepared: PreparedTurn, claim: Claim, serving: Serving
) -> PreparedTurn | KeptResponse:
    """The turn in the place of the one that was begun before, or the answer that it had."""
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
    """The turn in the place of the last one, if that failed and the same was said in it."""
    store, policy = prepared.store, prepared.request.policy
    if store is None or policy.ref is None or policy.create is not None or policy.place:
        return prepared
    found = await store.load(policy.ref, owner=policy.owner, tail=1)
    last = found.turns[-1] if found.turns else None
    if last is None or last.state != "failed" or last.asked != prepared.request.input.messages:
        return prepared
    return replace(prepared, request=prepared.request.with_policy(place=last.place))


async def _find(prepared: PreparedTurn, before: RequestClaim) -> _Begun | None:
    """The turn that the head of an unfinished answer names, if it is still there."""
    shown, turn_id = before.headers.get(CONVERSATION), before.headers.get(TURN)
    if prepared.store is None or shown is None or turn_id is None:
        return None
    ref = shown.removeprefix(FILES)
    try:
        found = await prepared.store.load(ref, owner=prepared.request.policy.owner)
    except ConversationNotFoundError:
        return None
    if found.archived_at is not None:
        return None
    turns = (turn for turn in (*found.turns, *found.variants) if turn.id == turn_id)
    turn = next(turns, None)
    return None if turn is None else _Begun(turn=turn, conversation=found)


def _is_fresh_failure(turn: Turn, serving: Serving) -> bool:
    """Whether a library could still be trying: its attempts follow one another within minutes."""
    ended = turn.ended_at
    return turn.state == "failed" and ended is not None and ended > serving.clock() - RETRIED_WITHIN


def _in_place(prepared: PreparedTurn, begun: _Begun, serving: Serving) -> PreparedTurn:
    request = prepared.request.with_policy(place=begun.turn.place)
    if request.policy.create is None:
        return replace(prepared, request=request)
    found = begun.conversation
    request = request.with_policy(
        ref=found.id,
        create=None,
        found=found,
        cache_key=serving.app.cache_key(found.id),
    )
    return replace(prepared, request=request, shown=found.id)
