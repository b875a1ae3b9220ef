"""What a server keeps beside conversations in an open SQLite database: requests, events, calls.

Runs in the file's thread; each function is one transaction. Of a request only hashes are kept.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

import msgspec

from cllm.core.errors import RequestConflictError, RequestInFlightError
from cllm.core.ports import CallRecord, KeptResponse, Lease, RequestKey, StreamEvent
from cllm.stores.sql import statements as sql
from cllm.stores.sql.rows import encode_json
from cllm.stores.sql.sqlite_reading import ROWS
from cllm.stores.sql.sqlite_turns import check_held

_headers = msgspec.json.Decoder(dict[str, str])


def claim_request(
    db: sqlite3.Connection, request: RequestKey, *, now: datetime, until: datetime
) -> KeptResponse | None:
    known = db.execute(sql.REQUEST, (request.owner, request.key)).fetchone()
    if known is None or ROWS.read_time(known[1]) <= now:
        db.execute(sql.DROP_OLD_REQUESTS, (ROWS.write_time(now),))
        claimed = (request.owner, request.key, request.body, ROWS.write_time(until))
        db.execute(sql.CLAIM_REQUEST, claimed)
        return None
    body, _, status, headers, response = known
    if body != request.body:
        raise RequestConflictError
    if status is None:
        raise RequestInFlightError
    return KeptResponse(status=status, headers=_headers.decode(headers), body=response)


def keep_response(db: sqlite3.Connection, request: RequestKey, response: KeptResponse) -> None:
    kept = (response.status, encode_json(response.headers), response.body)
    db.execute(sql.KEEP_RESPONSE, (*kept, request.owner, request.key, request.body))


def drop_request(db: sqlite3.Connection, request: RequestKey) -> None:
    db.execute(sql.DROP_REQUEST, (request.owner, request.key, request.body))


def add_events(
    db: sqlite3.Connection, lease: Lease, events: Sequence[StreamEvent], *, now: datetime
) -> None:
    check_held(db, lease, now=now)
    key = (lease.conversation.owner, lease.conversation.id, lease.turn.id)
    db.executemany(sql.ADD_EVENT, [(*key, event.number, event.data) for event in events])


def drop_old_events(db: sqlite3.Connection, before: datetime) -> None:
    db.execute(sql.DROP_OLD_EVENTS, (ROWS.write_time(before),))


def count_calls(db: sqlite3.Connection, calls: Sequence[CallRecord], owner: str) -> None:
    db.executemany(sql.ADD_CALL, [(owner, *ROWS.encode_call(call)) for call in calls])
