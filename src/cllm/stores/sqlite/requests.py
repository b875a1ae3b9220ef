"""Requests (as hashes), stream events and calls in SQLite."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import (
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
from cllm.stores.sql.checks import check_text
from cllm.stores.sql.rows import decode_headers, decode_response, encode_json
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.connection import SqliteBase
from cllm.stores.sqlite.reading import ROWS, find
from cllm.stores.sqlite.turns import check_held


class SqliteRequests(SqliteBase):
    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        def write(db: sqlite3.Connection) -> RequestClaim | KeptResponse:
            now = self._clock()
            known = db.execute(sql.REQUEST, (request.owner, request.key)).fetchone()
            if known is not None and ROWS.read_time(known[0]) > now:
                return decode_response(known[1:], request)
            claim = RequestClaim(request=request, until=now + timedelta(seconds=seconds))
            if known is not None and known[1] == request.body and known[2] is None:
                headers = decode_headers(known[3])
                claim = msgspec.structs.replace(claim, headers=headers, body=known[4])
            key = (request.owner, request.key, request.body)
            db.execute(sql.CLAIM_REQUEST, (*key, ROWS.write_time(claim.until), *_content(claim)))
            return claim

        return await self._file.write(write)

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        return await self._hold(claim, seconds)

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        await self._hold(claim, lifetime, status)

    async def _hold(
        self, claim: RequestClaim, seconds: float, status: int | None = None
    ) -> RequestClaim:
        """Extend a claim, which its expiry identifies: a later claim has a later one."""
        held = (claim.request.owner, claim.request.key, ROWS.write_time(claim.until))

        def write(db: sqlite3.Connection) -> RequestClaim:
            until = self._clock() + timedelta(seconds=seconds)
            changed = (ROWS.write_time(until), status, *_content(claim))
            if db.execute(sql.HOLD_REQUEST, (*changed, *held)).rowcount == 0:
                raise RequestInFlightError
            return msgspec.structs.replace(claim, until=until)

        return await self._file.write(write)

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        def write(db: sqlite3.Connection) -> None:
            db.execute(sql.FORGET_RESPONSES, (owner, header, value))

        await self._file.write(write)

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        key = (lease.conversation.owner, lease.conversation.id, lease.turn.id)

        def write(db: sqlite3.Connection) -> None:
            check_held(db, lease, now=self._clock())
            db.executemany(sql.ADD_EVENT, [(*key, event.number, event.data) for event in events])

        await self._file.write(write)

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        def read(db: sqlite3.Connection) -> tuple[StreamEvent, ...]:
            key = find(db, ref, owner)[:2]
            if db.execute(sql.TURN_BY_ID, (*key, turn_id)).fetchone() is None:
                raise TurnNotFoundError(key[1], turn_id)
            rows = db.execute(sql.EVENTS_AFTER, (*key, turn_id, number)).fetchall()
            return tuple(StreamEvent(number=row[0], data=row[1]) for row in rows)

        return await self._reader.read(read)

    async def drop_old_events(self, before: datetime) -> None:
        """Also delete the leases of conversations that were never created."""

        def write(db: sqlite3.Connection) -> None:
            now = self._clock()
            unanswered = ROWS.write_time(now - UNANSWERED_KEPT)
            db.execute(sql.DROP_OLD_EVENTS, (ROWS.write_time(before),))
            db.execute(sql.DROP_OLD_REQUESTS, (ROWS.write_time(now), unanswered))
            db.execute(sql.DROP_OLD_LEASES, (unanswered,))

        await self._file.write(write)

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        for call in calls:
            check_text(call.model)

        def write(db: sqlite3.Connection) -> None:
            db.executemany(sql.ADD_CALL, [(owner, *ROWS.encode_call(call)) for call in calls])

        await self._file.write(write)


def _content(claim: RequestClaim) -> tuple[str | None, bytes | None]:
    return encode_json(claim.headers), claim.body
