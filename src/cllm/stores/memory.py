"""Conversations in memory, for tests and for conversations that must not be stored.

A fencing number rejects late writers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import ClassVar, TypeVar

import msgspec

from cllm.core.conversation import (
    LOCAL_OWNER,
    StoredConversation,
    Summary,
    Turn,
    check_id,
    find_turn,
)
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    RequestConflictError,
    RequestInFlightError,
    StaleLeaseError,
    TurnNotFoundError,
)
from cllm.core.notice import Notice
from cllm.core.ports import (
    UNANSWERED_KEPT,
    CallRecord,
    Clock,
    KeptResponse,
    Lease,
    NewConversation,
    Opening,
    PathMatch,
    RequestClaim,
    RequestKey,
    StreamEvent,
    Tail,
    TurnStart,
)
from cllm.stores import edits
from cllm.stores.editing_store import Change, EditingStore, ReadScope
from cllm.stores.leases import LEASE_SECONDS, is_lease_valid, lease_expiry, poll_sync
from cllm.stores.lists import ScannedLists
from cllm.stores.memory_paths import MemoryPathIndex, TrackedConversations
from cllm.stores.path_matches import is_searched, select_newest
from cllm.stores.views import build_summary, select_tail

T = TypeVar("T")
_Key = tuple[str, str]


class _GrantedLease(msgspec.Struct, frozen=True):
    fence: int
    turn_id: str
    expires_at: datetime


class _Request(msgspec.Struct, frozen=True):
    claim: RequestClaim
    status: int | None = None


def _decode_response(stored: _Request, request: RequestKey) -> KeptResponse:
    if stored.claim.request != request:
        raise RequestConflictError
    if stored.status is None:
        raise RequestInFlightError
    claim = stored.claim
    return KeptResponse(status=stored.status, headers=claim.headers, body=claim.body or b"")


class MemoryData:
    """`pending`: conversations that a hidden first turn will create."""

    def __init__(self) -> None:
        self.conversations = TrackedConversations()
        self.paths = MemoryPathIndex(self.conversations)
        self.pending: dict[_Key, StoredConversation] = {}
        self.leases: dict[_Key, _GrantedLease] = {}
        self.fence = 0
        self.requests: dict[_Key, _Request] = {}
        self.events: dict[tuple[str, str, str], list[StreamEvent]] = {}
        self.calls: list[tuple[str, CallRecord]] = []


class MemoryStore(ScannedLists, EditingStore):
    ends_turns_whole: ClassVar = True

    def __init__(
        self,
        *,
        clock: Clock,
        data: MemoryData | None = None,
        lease_seconds: float = LEASE_SECONDS,
        patience: float = 5.0,
    ) -> None:
        self._data = MemoryData() if data is None else data
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._patience = patience

    async def begin_turn(
        self,
        ref: str,
        start: TurnStart,
        *,
        owner: str = LOCAL_OWNER,
        create: NewConversation | None = None,
        wait: float | None = 0,
        tail: Tail = None,
    ) -> Lease:
        def attempt() -> Lease | None:
            return self._try_begin(ref, start, owner, create)

        lease = await poll_sync(attempt, wait=wait)
        if lease is None:
            raise ConversationBusyError(ref)
        conversation = select_tail(lease.conversation, tail)
        return msgspec.structs.replace(lease, conversation=conversation)

    async def renew_lease(self, lease: Lease) -> Lease:
        key, granted = self._check_lease(lease)
        expires_at = lease_expiry(self._clock(), self._lease_seconds)
        renewed = msgspec.structs.replace(granted, expires_at=expires_at)
        self._data.leases[key] = renewed
        return msgspec.structs.replace(lease, expires_at=renewed.expires_at)

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        key, granted = self._check_lease(lease)
        if turn.id != granted.turn_id:
            raise edits.wrong_turn_error(granted.turn_id, turn.id)
        now = self._clock()
        conversation = self._data.conversations.get(key, lease.conversation)
        self._data.conversations[key] = edits.with_finished_turn(
            conversation, turn, opening=opening, now=now
        )
        self._release(key)

    async def save_opening(self, lease: Lease, opening: Opening) -> Lease:
        key, _ = self._check_lease(lease)
        if key in self._data.conversations:
            self._data.conversations[key] = edits.with_opening(
                self._data.conversations[key], opening
            )
        return edits.lease_with_opening(lease, opening)

    async def drop_turn(self, lease: Lease) -> None:
        key, _ = self._check_lease(lease)
        conversation = self._data.conversations.get(key)
        if conversation is not None:
            remaining = edits.without_turn(conversation, lease.turn.id)
            is_bare = not remaining.turns and remaining.system == lease.conversation.system
            if lease.created and is_bare:
                del self._data.conversations[key]
            else:
                self._data.conversations[key] = remaining
        self._release(key)

    async def create(
        self,
        new: NewConversation,
        *,
        owner: str = LOCAL_OWNER,
        opening: Opening | None = None,
    ) -> StoredConversation:
        return self._add(edits.with_opening(self._new(new, owner), opening))

    async def add(
        self,
        conversation: StoredConversation,
        *,
        owner: str = LOCAL_OWNER,
        preserve_times: bool = False,
    ) -> str:
        now = None if preserve_times else self._clock()
        self._check_free(conversation.id, conversation.name, owner)
        return self._add(edits.prepare_conversation(conversation, owner=owner, now=now)).id

    async def list_owners(self) -> tuple[str, ...]:
        return tuple(sorted({owner for owner, _ in self._data.conversations}))

    async def read_version(self, *, owner: str = LOCAL_OWNER) -> str | None:  # noqa: ARG002
        return None

    async def list_running(self, *, owner: str = LOCAL_OWNER) -> tuple[str, ...]:
        keys = [key for key in self._data.leases if key[0] == owner and self._is_leased(key)]
        return tuple(key[1] for key in keys if key in self._data.conversations)

    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation:
        return select_tail(self._settle_if_free(self._find(ref, owner)), tail)

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        return build_summary(self._settle_if_free(self._find(ref, owner)))

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        del self._data.conversations[await self._wait_until_free(ref, owner)]

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        path: Sequence[str] | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> StoredConversation:
        source = self._settle_if_free(self._find(ref, owner))
        fresh = self._new(new, owner)
        return self._add(edits.build_branch(source, fresh, at=at, path=path, opening=opening))

    async def find_paths(
        self,
        digests: Sequence[bytes],
        *,
        owner: str = LOCAL_OWNER,
        family: str | None = None,
        side: bool = False,
        any_ids: bool = False,
    ) -> tuple[PathMatch, ...]:
        self._settle_expired()
        for position, digest in enumerate(digests):
            candidates = self._data.paths.find_digest(digest, owner=owner)
            searched = (each for each in candidates if is_searched(each[0], family, side=side))
            matches = select_newest(searched, digest, position, any_ids=any_ids)
            if matches:
                return matches
        return ()

    async def list_family(
        self, family: str, *, owner: str = LOCAL_OWNER, limit: int = 20
    ) -> tuple[Summary, ...]:
        self._settle_expired()
        members = self._data.paths.find_family(family, owner=owner)
        active = (each for each in members if each.archived_at is None)
        return tuple(map(build_summary, islice(active, limit)))

    async def check_writable(self) -> None:
        pass

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        now = self._clock()
        claim = RequestClaim(request=request, until=now + timedelta(seconds=seconds))
        stored = self._data.requests.get((request.owner, request.key))
        if stored is not None and stored.claim.until > now:
            return _decode_response(stored, request)
        if stored is not None and stored.status is None and stored.claim.request == request:
            claim = msgspec.structs.replace(stored.claim, until=claim.until)
        self._data.requests[request.owner, request.key] = _Request(claim)
        return claim

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        return self._extend_claim(claim, seconds)

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        self._extend_claim(claim, lifetime, status)

    def _extend_claim(
        self, claim: RequestClaim, seconds: float, status: int | None = None
    ) -> RequestClaim:
        key = (claim.request.owner, claim.request.key)
        stored = self._data.requests.get(key)
        if stored is None or stored.claim.until != claim.until or stored.status is not None:
            raise RequestInFlightError
        extended = msgspec.structs.replace(claim, until=self._clock() + timedelta(seconds=seconds))
        self._data.requests[key] = _Request(extended, status)
        return extended

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        for key, stored in list(self._data.requests.items()):
            if key[0] == owner and stored.claim.headers.get(header) == value:
                del self._data.requests[key]

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        key, _ = self._check_lease(lease)
        self._data.events.setdefault((*key, lease.turn.id), []).extend(events)

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        key = self._find(ref, owner)
        conversation = self._data.conversations[key]
        if find_turn(conversation, turn_id) is None:
            raise TurnNotFoundError(conversation.id, turn_id)
        events = self._data.events.get((*key, turn_id), ())
        return tuple(event for event in events if event.number > number)

    async def cancel_turn(self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER) -> bool:
        key = (owner, ref)
        granted = self._data.leases.get(key)
        if granted is None or granted.turn_id != turn_id or key not in self._data.conversations:
            return False
        self._release(key)
        self._settle(key, cancelled_at=self._clock())
        return True

    async def drop_old_events(self, before: datetime) -> None:
        for key in list(self._data.events):
            owner, conversation_id, turn_id = key
            conversation = self._data.conversations.get((owner, conversation_id))
            turn = None if conversation is None else find_turn(conversation, turn_id)
            if turn is None or (turn.ended_at is not None and turn.ended_at < before):
                del self._data.events[key]
        for request, stored in list(self._data.requests.items()):
            retention = UNANSWERED_KEPT if stored.status is None else timedelta()
            if stored.claim.until + retention < self._clock():
                del self._data.requests[request]

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        self._data.calls.extend((owner, call) for call in calls)

    async def close(self) -> None: ...

    def _list_owned(self, owner: str) -> Iterator[StoredConversation]:
        keys = [key for key in self._data.conversations if key[0] == owner]
        return map(self._settle_if_free, keys)

    async def _summaries(self, owner: str) -> tuple[Iterable[Summary], tuple[Notice, ...]]:
        return map(build_summary, self._list_owned(owner)), ()

    async def _scan(
        self, owner: str, work: Callable[[Iterable[StoredConversation]], T]
    ) -> tuple[T, tuple[Notice, ...]]:
        return work(self._list_owned(owner)), ()

    def _calls(self, owner: str) -> Iterable[CallRecord]:
        return (call for call_owner, call in self._data.calls if call_owner == owner)

    def _find(self, ref: str, owner: str) -> _Key:
        check_id(ref)
        key = _find_key(self._data.conversations, ref, owner)
        if key is None:
            raise ConversationNotFoundError(ref)
        return key

    def _new(self, new: NewConversation, owner: str) -> StoredConversation:
        self._check_free(new.id, new.name, owner)
        return edits.build_conversation(new, key=new.id, owner=owner, now=self._clock())

    def _check_free(self, conversation_id: str, name: str | None, owner: str) -> None:
        for ref in {conversation_id, name or conversation_id}:
            check_id(ref)
            if _find_key(self._data.conversations, ref, owner) is not None:
                raise ConversationExistsError(ref)

    def _add(self, conversation: StoredConversation) -> StoredConversation:
        """Store a new conversation, unless a first turn is about to create it."""
        owner = conversation.owner
        for ref in {conversation.id, conversation.name or conversation.id}:
            pending = _find_key(self._data.pending, ref, owner)
            if pending is not None and self._is_leased(pending):
                raise ConversationBusyError(ref)
        self._data.conversations[owner, conversation.id] = conversation
        return conversation

    def _is_leased(self, key: _Key) -> bool:
        granted = self._data.leases.get(key)
        return granted is not None and is_lease_valid(granted.expires_at, self._clock())

    def _try_begin(
        self, ref: str, start: TurnStart, owner: str, create: NewConversation | None
    ) -> Lease | None:
        """Return the lease, or None while another one is valid."""
        check_id(ref)
        data = self._data
        key = _find_key(data.conversations, ref, owner)
        if key is None and create is not None:
            key = _find_key(data.pending, ref, owner)
        if key is not None and self._is_leased(key):
            return None
        if key is not None:
            data.pending.pop(key, None)
        if key is not None and key in data.conversations:
            return self._grant(self._settle(key), start, created=False)
        if create is None:
            raise ConversationNotFoundError(ref)
        return self._grant(self._new(create, owner), start, created=True)

    def _grant(self, conversation: StoredConversation, start: TurnStart, *, created: bool) -> Lease:
        data = self._data
        key = (conversation.owner, conversation.id)
        now = self._clock()
        turn = edits.start_turn(conversation, start, now=now)
        if start.visible:
            data.conversations[key] = edits.with_running_turn(conversation, turn)
        elif created:
            data.pending[key] = conversation
        data.fence += 1
        granted = _GrantedLease(data.fence, turn.id, lease_expiry(now, self._lease_seconds))
        data.leases[key] = granted
        return Lease(
            conversation=conversation,
            turn=turn,
            fence=granted.fence,
            created=created,
            visible=start.visible,
            expires_at=granted.expires_at,
        )

    def _settle_if_free(self, key: _Key) -> StoredConversation:
        """Return the conversation with the running turn of an expired lease settled."""
        return self._data.conversations[key] if self._is_leased(key) else self._settle(key)

    def _settle_expired(self) -> None:
        for key in list(self._data.leases):
            if key in self._data.conversations:
                self._settle_if_free(key)

    def _settle(self, key: _Key, *, cancelled_at: datetime | None = None) -> StoredConversation:
        def events_of(turn_id: str) -> list[bytes]:
            return [event.data for event in self._data.events.get((*key, turn_id), ())]

        conversation = self._data.conversations[key]
        settled = edits.mark_interrupted(
            conversation, events_of=events_of, cancelled_at=cancelled_at
        )
        if settled is not conversation:
            self._data.conversations[key] = settled
        return settled

    def _check_lease(self, lease: Lease) -> tuple[_Key, _GrantedLease]:
        key = (lease.conversation.owner, lease.conversation.id)
        granted = self._data.leases.get(key)
        if granted is None or granted.fence != lease.fence or not self._is_leased(key):
            raise StaleLeaseError(lease.conversation.id)
        return key, granted

    def _release(self, key: _Key) -> None:
        del self._data.leases[key]
        self._data.pending.pop(key, None)

    async def _wait_until_free(self, ref: str, owner: str) -> _Key:
        def attempt() -> _Key | None:
            key = self._find(ref, owner)
            return None if self._is_leased(key) else key

        key = await poll_sync(attempt, wait=self._patience)
        if key is None:
            raise ConversationBusyError(ref)
        return key

    async def _edit(
        self,
        ref: str,
        owner: str,
        change: Change,
        *,
        reads: ReadScope,  # noqa: ARG002 - everything is in memory
    ) -> StoredConversation:
        key = await self._wait_until_free(ref, owner)
        changed = change(self._settle(key))
        self._data.conversations[key] = changed
        return changed


def _find_key(conversations: dict[_Key, StoredConversation], ref: str, owner: str) -> _Key | None:
    if (owner, ref) in conversations:
        return owner, ref
    by_name = (key for key, value in conversations.items() if key[0] == owner and value.name == ref)
    return next(by_name, None)
