"""Requests that may be made once only, in the memory of this process. It knows no conversation."""

from datetime import datetime, timedelta

import msgspec

from cllm.core.errors import RequestConflictError, RequestInFlightError
from cllm.core.ports import UNANSWERED_KEPT, KeptResponse, RequestClaim, RequestKey


class _Request(msgspec.Struct, frozen=True):
    """A request that somebody answers, or has answered; then it has a status."""

    claim: RequestClaim
    status: int | None = None


class MemoryRequests:
    """Who answers what, and what was answered."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Request] = {}

    def claim(
        self, request: RequestKey, *, seconds: float, now: datetime
    ) -> RequestClaim | KeptResponse:
        key = (request.owner, request.key)
        claim = RequestClaim(request=request, until=now + timedelta(seconds=seconds))
        known = self._known.get(key)
        if known is not None and known.claim.until > now:
            return _answered(known, request)
        if known is not None and known.status is None and known.claim.request == request:
            claim = msgspec.structs.replace(known.claim, until=claim.until)
        self._known[key] = _Request(claim)
        return claim

    def hold(
        self, claim: RequestClaim, *, seconds: float, now: datetime, status: int | None = None
    ) -> RequestClaim:
        key = (claim.request.owner, claim.request.key)
        known = self._known.get(key)
        if known is None or known.claim.until != claim.until or known.status is not None:
            raise RequestInFlightError
        held = msgspec.structs.replace(claim, until=now + timedelta(seconds=seconds))
        self._known[key] = _Request(held, status)
        return held

    def forget(self, header: str, value: str, *, owner: str) -> None:
        for key, known in list(self._known.items()):
            if key[0] == owner and known.claim.headers.get(header) == value:
                del self._known[key]

    def drop_old(self, now: datetime) -> None:
        for key, known in list(self._known.items()):
            kept = UNANSWERED_KEPT if known.status is None else timedelta()
            if known.claim.until + kept < now:
                del self._known[key]


def _answered(known: _Request, request: RequestKey) -> KeptResponse:
    if known.claim.request != request:
        raise RequestConflictError
    if known.status is None:
        raise RequestInFlightError
    claim = known.claim
    return KeptResponse(status=known.status, headers=claim.headers, body=claim.body or b"")
