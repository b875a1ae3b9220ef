import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cllm.core.errors import ConversationNotFoundError, StaleLeaseError, UsageError
from cllm.core.ports import Lease, NewConversation
from cllm.stores.leases import ProcessLock
from cllm.stores.sqlite import turns
from cllm.stores.sqlite.reader import find_conversation, load
from cllm.stores.sqlite.turn_cache import TurnCache
from cllm.testing.store_harness import OPENING, answered, start

NOW = datetime(2026, 11, 16, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DEMO = NewConversation(id="demo")
PROCESS = ProcessLock(Path("/nonexistent/a.db"))


def begin(
    db: sqlite3.Connection,
    turn_id: str,
    *,
    now: datetime = NOW,
    create: NewConversation | None = DEMO,
    visible: bool = True,
) -> Lease | None:
    return turns.begin_turn(
        db,
        "demo",
        start(turn_id, visible=visible),
        owner="local",
        create=create,
        tail=None,
        now=now,
        lease_seconds=60,
        cache=TurnCache(),
        process=PROCESS,
    )


def finish(db: sqlite3.Connection, lease: Lease, *, now: datetime = NOW) -> None:
    turns.finish_turn(db, lease, answered(lease), opening=OPENING, now=now, cache=TurnCache())


def texts(db: sqlite3.Connection) -> list[str]:
    conversation = load(db, find_conversation(db, "demo", "local"))
    return [message.text for message in conversation.messages]


@pytest.mark.parametrize("visible", [True, False])
def test_a_finished_turn_is_loaded_with_its_opening(db: sqlite3.Connection, visible: bool):
    lease = begin(db, "t1", visible=visible)
    assert lease is not None
    finish(db, lease)
    conversation = load(db, find_conversation(db, "demo", "local"))
    assert [turn.state for turn in conversation.turns] == ["complete"]
    assert (conversation.system, conversation.title) == (OPENING.system, "Hello")


def test_a_valid_lease_blocks_another_turn_until_it_expires(db: sqlite3.Connection):
    first = begin(db, "t1")
    assert first is not None
    assert begin(db, "t2") is None
    assert turns.find_lease_holder(db, "demo", "local", DEMO) == "t1"
    second = begin(db, "t2", now=NOW + MINUTE)
    assert second is not None
    assert second.fence > first.fence
    with pytest.raises(StaleLeaseError):
        finish(db, first, now=NOW + MINUTE)
    assert [turn.state for turn in second.conversation.turns] == ["failed"]


def test_a_renewed_lease_is_valid_longer(db: sqlite3.Connection):
    lease = begin(db, "t1")
    assert lease is not None
    turns.renew_lease(db, lease, now=NOW, expires_at=NOW + 2 * MINUTE)
    turns.check_lease(db, lease, now=NOW + MINUTE)
    with pytest.raises(StaleLeaseError):
        turns.check_lease(db, lease, now=NOW + 2 * MINUTE)
    with pytest.raises(StaleLeaseError):
        turns.renew_lease(db, lease, now=NOW + 2 * MINUTE, expires_at=NOW + 3 * MINUTE)


def test_a_released_lease_frees_the_conversation(db: sqlite3.Connection):
    lease = begin(db, "t1")
    assert lease is not None
    turns.release_lease(db, lease, cache=TurnCache())
    assert begin(db, "t2") is not None


def test_dropping_the_first_turn_deletes_its_conversation(db: sqlite3.Connection):
    lease = begin(db, "t1")
    assert lease is not None
    turns.drop_turn(db, lease, now=NOW, cache=TurnCache())
    with pytest.raises(ConversationNotFoundError):
        find_conversation(db, "demo", "local")


def test_dropping_a_later_turn_keeps_the_others(db: sqlite3.Connection):
    first = begin(db, "t1")
    assert first is not None
    finish(db, first)
    second = begin(db, "t2")
    assert second is not None
    turns.drop_turn(db, second, now=NOW, cache=TurnCache())
    assert texts(db) == ["Be brief.", "Hello", "Hi"]


def test_a_missing_conversation_needs_create(db: sqlite3.Connection):
    with pytest.raises(ConversationNotFoundError):
        begin(db, "t1", create=None)


@pytest.mark.parametrize("visible", [True, False])
def test_a_turn_id_is_used_once(db: sqlite3.Connection, visible: bool):
    lease = begin(db, "t1")
    assert lease is not None
    finish(db, lease)
    with pytest.raises(UsageError, match="already has a turn 't1'"):
        begin(db, "t1", visible=visible)
