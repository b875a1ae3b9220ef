"""The port of stores that a server can use, and what it keeps there beside conversations."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.ports.store import Lease, Store
from cllm.core.reply import Usage

UNANSWERED_KEPT = timedelta(days=1)
"""How long it is known of a request that nobody answered which turn was begun for it."""


class RequestKey(msgspec.Struct, frozen=True, kw_only=True):
    """A request that may be made once only: hashes of the client's key for it and of its body."""

    owner: str
    key: str
    body: str


class KeptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered to a request, for whoever sends the same one again."""

    status: int
    headers: dict[str, str]
    body: bytes


class RequestClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to answer a request, until then; whoever answers for longer renews it.

    `headers` and `body` are what is known of the answer so far. In a claim that was taken over they
    are what whoever had it before knew.
    """

    request: RequestKey
    until: datetime
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a turn's stream as it went out; numbers count from 1."""

    number: int
    data: bytes


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a call used of which nothing else is kept."""

    model: str
    usage: Usage
    cost: float | None
    ended_at: datetime


class ServerStore(Store, Protocol):
    """A store that also keeps what a server has to know beside conversations."""

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        """Take the right to answer a request for so long, or get what was answered to it.

        RequestInFlightError while somebody else has it, and RequestConflictError if the key
        stands for another body. A claim that ran out is taken over.
        """
        ...

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        """Keep the claim, with what is known of the answer, for so long from now on.

        With no seconds at all it is given back. RequestInFlightError if it was lost.
        """
        ...

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        """Keep the claim's answer for so long; RequestInFlightError if the claim was lost."""
        ...

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        """Delete the owner's answers, and what is known of others, whose head says this."""
        ...

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        """Keep some events of the stream of a turn that runs."""
        ...

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        """The events of a turn's stream after that number; TurnNotFoundError if there is none."""
        ...

    async def drop_old_events(self, before: datetime) -> None:
        """Delete the events of turns that ended before that.

        Also answers whose time is over, and what is known of requests that nobody answered within
        `UNANSWERED_KEPT`.
        """
        ...

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        """Have `usage` count calls that belong to no conversation, all or none of them."""
        ...
