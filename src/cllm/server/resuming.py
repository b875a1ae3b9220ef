"""A request that comes again, and the turn that was begun for it before: taken up in its place.

So that a conversation has one turn for it, and what failed before stays as a variant. It decides
where a turn is taken; it takes none.
"""

from contextlib import suppress
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import Conversation, Turn
from cllm.core.errors import ConversationNotFoundError, StoreError
from cllm.core.ports import KeptResponse, RequestClaim, RequestKey, ServerStore
from cllm.server.idempotency import ANSWERED, CLAIM_SECONDS, Claim
from cllm.server.prepared_turn import PreparedTurn
from cllm.server.serving import Serving
from cllm.server.wish import CONVERSATION, FILES, TURN

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
    store, request = prepared.store, prepared.request
    if store is None or request.ref is None or request.create is not None or request.place:
        return prepared
    found = await store.load(request.ref, owner=request.owner, tail=1)
    last = found.turns[-1] if found.turns else None
    if last is None or last.state != "failed" or last.asked != request.messages:
        return prepared
    return replace(prepared, request=replace(request, place=last.place))


async def _find(prepared: PreparedTurn, before: RequestClaim) -> _Begun | None:
    """The turn that the head of an unfinished answer names, if it is still there."""
    shown, turn_id = before.headers.get(CONVERSATION), before.headers.get(TURN)
    if prepared.store is None or shown is None or turn_id is None:
        return None
    ref = shown.removeprefix(FILES)
    try:
        found = await prepared.store.load(ref, owner=prepared.request.owner)
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
    request = replace(prepared.request, place=begun.turn.place)
    if request.create is None:
        return replace(prepared, request=request)
    found = begun.conversation
    request = replace(
        request,
        ref=found.id,
        create=None,
        found=found,
        cache_key=serving.app.cache_key(found.id),
    )
    return replace(prepared, request=request, shown=found.id)
