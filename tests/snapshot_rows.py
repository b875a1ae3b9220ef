"""Rows of a server that are not part of a conversation, for tests of snapshots and backups."""

from datetime import UTC, datetime, timedelta

from cllm.core.conversation import Turn
from cllm.core.message import plain_message
from cllm.core.ports import (
    CallRecord,
    KeptResponse,
    NewConversation,
    RequestKey,
    ServerStore,
    StreamEvent,
    TurnStart,
)
from cllm.core.ports.snapshot import ServerRow, SnapshotStore
from cllm.core.reply import Usage

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CALL = CallRecord(model="m", usage=Usage(input=3, output=2), cost=None, ended_at=MOMENT)
PRICED = CallRecord(
    model="m", usage=Usage(input=1, estimated=True), cost=0.25, ended_at=MOMENT + timedelta(days=1)
)
REQUEST = RequestKey(owner="ann", key="k", body="b")


async def fill_server_store(store: ServerStore) -> None:
    """Add three calls, two of them equal, a stored response, an open request and two events."""
    await store.count_call(CALL, CALL, PRICED, owner="ann")
    claim = await store.claim_request(REQUEST, seconds=1000)
    assert not isinstance(claim, KeptResponse)
    await store.keep_response(claim, status=200, lifetime=1000)
    await store.claim_request(RequestKey(owner="ann", key="open", body="b"), seconds=1000)
    start = TurnStart(id="t1", messages=(plain_message("user", "Hello"),), model="m")
    lease = await store.begin_turn("cats", start, owner="ann", create=NewConversation(id="cats"))
    await store.add_events(
        lease, [StreamEvent(number=number, data=bytes([number, 255])) for number in (1, 2)]
    )
    turn = Turn(
        id="t1",
        place="t1",
        state="complete",
        messages=(*start.messages, plain_message("assistant", "Hi")),
        started_at=MOMENT,
        ended_at=MOMENT,
    )
    await store.finish_turn(lease, turn)


async def list_server_rows(store: SnapshotStore) -> list[ServerRow]:
    rows: list[ServerRow] = []
    async with store.open_snapshot() as snapshot:
        async for row in snapshot.read_server_rows():
            assert not isinstance(row, Exception)
            rows.append(row)
    return rows
