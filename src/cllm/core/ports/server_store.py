"""The port of stores for a server: requests, stream events and calls beside conversations."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.ports.store import Lease, Store
from cllm.core.reply import Usage

UNANSWERED_KEPT = timedelta(days=1)
"""How long an unanswered request is remembered with the turn that was started for it."""


class RequestKey(msgspec.Struct, frozen=True, kw_only=True):
    """A request that may run once only: hashes of the client's key and of the body."""

    owner: str
    key: str
    body: str


class KeptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The saved response of a request, for a client that repeats it."""

    status: int
    headers: dict[str, str]
    body: bytes


class RequestClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to answer a request until that time.

    `headers` and `body` are the response as far as it is known, also to an earlier holder.
    """

    request: RequestKey
    until: datetime
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a turn's stream as it was sent; numbers count from 1."""

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

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        """Claim a request for that time, or return its saved response.

        Raises RequestInFlightError while another claim lasts, RequestConflictError if the key is
        known with another body. An expired claim is taken over.
        """
        ...

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        """Extend the claim and save what is known of the response; 0 seconds release it.

        Raises RequestInFlightError if the claim is lost.
        """
        ...

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        """Save the claim's response for that time; RequestInFlightError if the claim is lost."""
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
        """The events of a turn's stream after that number; TurnNotFoundError without a turn."""
        ...

    async def drop_old_events(self, before: datetime) -> None:
        """Delete the events of turns that ended before, and requests whose time is over."""
        ...

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        """Make `usage` count these calls, all or none."""
        ...
