"""The port of a server's store: conversations, and requests, stream events and calls."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.ports.store import Store
from cllm.core.ports.store_values import Lease
from cllm.core.reply import Usage

UNANSWERED_KEPT = timedelta(days=1)
"""How long a request without a response is stored with the turn that it started."""


class RequestKey(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotent request: hashes of the client's key and of the body."""

    owner: str
    key: str
    body: str


class KeptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The saved response of a request, for a client that repeats it."""

    status: int
    headers: dict[str, str]
    body: bytes


class RequestClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to answer a request until a time.

    `headers` and `body` are the known part of the response, also from an earlier claim.
    """

    request: RequestKey
    until: datetime
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a turn's stream as sent to the client; numbers start at 1."""

    number: int
    data: bytes


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a call that belongs to no conversation."""

    model: str
    usage: Usage
    cost: float | None
    ended_at: datetime


class ServerStore(Store, Protocol):
    """A store for a server."""

    async def check_writable(self) -> None:
        """Raise StoreError if no turn can be saved.

        The database is read-only, or at the revision of another version. Cancelling does not wait
        for a lock.
        """
        ...

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        """Claim a request for this many seconds, or return its saved response.

        Raises RequestInFlightError while another claim is valid, RequestConflictError if the key
        was used with another body. An expired claim is taken over.
        """
        ...

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        """Extend the claim and save the known part of the response; 0 seconds release it.

        Raises RequestInFlightError if the claim is lost.
        """
        ...

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        """Save the response for `lifetime` seconds; RequestInFlightError if the claim is lost."""
        ...

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        """Delete the owner's requests and responses with this header."""
        ...

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        """Save events of a running turn's stream."""
        ...

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        """Return the stream events of a turn after a number. Raises TurnNotFoundError."""
        ...

    async def cancel_turn(self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER) -> bool:
        """End a running turn of any process as cancelled; its lease is lost.

        It has the text of its stored events. Return False if the turn does not run; `ref` is the
        conversation's id.
        """
        ...

    async def drop_old_events(self, before: datetime) -> None:
        """Delete the events of turns that ended before a time, and expired requests."""
        ...

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        """Add these calls to `usage`, atomically."""
        ...
