"""What a server keeps beside conversations in an open SQLite database: requests, events, calls.

Runs in the file's thread; each function is one transaction. Of a request only hashes are kept.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from cllm.core.errors import (
    RequestConflictError,
    RequestInFlightError,
    TurnNotFoundError,
)
from cllm.core.ports import (
    UNANSWERED_KEPT,
    CallRecord,
    KeptResponse,
    Lease,
    RequestClaim,
    RequestKey,
    StreamEvent,
)
from cllm.stores.sql.rows import (
    Row,
    decode_headers,
    encode_json,
)
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.reading import ROWS, find
from cllm.stores.sqlite.turns import check_held


def claim_request(
    db: sqlite3.Connection, request: RequestKey, *, now: datetime, seconds: float
) -> RequestClaim | KeptResponse:
    known = db.execute(sql.REQUEST, (request.owner, request.key)).fetchone()
    if known is not None and ROWS.read_time(known[1]) > now:
        return _answered(known, request)
    claim = RequestClaim(request=request, until=now + timedelta(seconds=seconds))
    if known is not None and known[0] == request.body and known[2] is None:
        claim = msgspec.structs.replace(claim, headers=decode_headers(known[3]), body=known[4])
    key = (request.owner, request.key, request.body)
    db.execute(sql.CLAIM_REQUEST, (*key, ROWS.write_time(claim.until), *_content(claim)))
    return claim


def _answered(known: Row, request: RequestKey) -> KeptResponse:
    body, _, status, headers, response = known
    if body != request.body:
        raise RequestConflictError
    if status is None:
        raise RequestInFlightError
    return KeptResponse(status=status, headers=decode_headers(headers), body=response)


def hold_request(
    db: sqlite3.Connection,
    claim: RequestClaim,
    *,
    now: datetime,
    seconds: float,
    status: int | None = None,
) -> RequestClaim:
    """A claim is known by when it runs out: whoever takes it over gets a later time."""
    until = now + timedelta(seconds=seconds)
    held = (claim.request.owner, claim.request.key, ROWS.write_time(claim.until))
    changed = (ROWS.write_time(until), status, *_content(claim))
    if db.execute(sql.HOLD_REQUEST, (*changed, *held)).rowcount == 0:
        raise RequestInFlightError
    return msgspec.structs.replace(claim, until=until)


def forget_responses(db: sqlite3.Connection, header: str, value: str, *, owner: str) -> None:
    db.execute(sql.FORGET_RESPONSES, (owner, header, value))


def _content(claim: RequestClaim) -> tuple[str | None, bytes | None]:
    return encode_json(claim.headers), claim.body


def add_events(
    db: sqlite3.Connection, lease: Lease, events: Sequence[StreamEvent], *, now: datetime
) -> None:
    check_held(db, lease, now=now)
    key = (lease.conversation.owner, lease.conversation.id, lease.turn.id)
    db.executemany(sql.ADD_EVENT, [(*key, event.number, event.data) for event in events])


def drop_old(db: sqlite3.Connection, before: datetime, *, now: datetime) -> None:
    """Events of turns that ended before that, and requests that nobody can ask about now.

    Also the leases of conversations that were never made: nobody takes those again.
    """
    db.execute(sql.DROP_OLD_EVENTS, (ROWS.write_time(before),))
    unanswered = ROWS.write_time(now - UNANSWERED_KEPT)
    db.execute(sql.DROP_OLD_REQUESTS, (ROWS.write_time(now), unanswered))
    db.execute(sql.DROP_OLD_LEASES, (unanswered,))


def count_calls(db: sqlite3.Connection, calls: Sequence[CallRecord], owner: str) -> None:
    db.executemany(sql.ADD_CALL, [(owner, *ROWS.encode_call(call)) for call in calls])


def events_after(
    db: sqlite3.Connection, ref: str, owner: str, turn_id: str, number: int
) -> tuple[StreamEvent, ...]:
    key: tuple[Any, ...] = find(db, ref, owner)[:2]
    if db.execute(sql.TURN_BY_ID, (*key, turn_id)).fetchone() is None:
        raise TurnNotFoundError(key[1], turn_id)
    rows = db.execute(sql.EVENTS_AFTER, (*key, turn_id, number)).fetchall()
    return tuple(StreamEvent(number=row[0], data=row[1]) for row in rows)
