import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import ConversationExistsError, SequenceNotFoundError
from cllm.core.message import plain_message
from cllm.stores import edits
from cllm.stores.leases import ProcessLock
from cllm.stores.sqlite.edits import (
    add_conversation,
    delete_conversation,
    edit_conversation,
    insert_conversation,
    is_held,
)
from cllm.stores.sqlite.reader import SQLITE_CODEC, find_conversation, load

NOW = datetime(2026, 11, 16, tzinfo=UTC)
PROCESS = ProcessLock(Path("/nonexistent/a.db"))


def turn(key: str, place: str | None = None) -> Turn:
    return Turn(
        id=key,
        place=place or key,
        state="complete",
        messages=(plain_message("user", key), plain_message("assistant", f"{key}?")),
        started_at=NOW,
    )


DEMO = StoredConversation(
    id="demo",
    name="cats",
    created_at=NOW,
    updated_at=NOW,
    turns=(turn("t1"), turn("t2")),
    variants=(turn("v1", "t1"),),
)


def stored(db: sqlite3.Connection, ref: str = "demo") -> StoredConversation:
    return load(db, find_conversation(db, ref, "local"))


def count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


def test_an_added_conversation_is_loaded_unchanged(db: sqlite3.Connection):
    add_conversation(db, DEMO)
    assert stored(db) == DEMO
    assert stored(db, "cats") == DEMO


@pytest.mark.parametrize("ref", ["demo", "cats"])
def test_an_id_or_name_is_used_once(db: sqlite3.Connection, ref: str):
    add_conversation(db, DEMO)
    new = StoredConversation(id=ref, created_at=NOW, updated_at=NOW)
    with pytest.raises(ConversationExistsError):
        insert_conversation(db, new, source=None, change=lambda new: new, now=NOW, process=PROCESS)


def test_a_branch_is_inserted_from_its_source(db: sqlite3.Connection):
    add_conversation(db, DEMO)
    new = StoredConversation(id="copy", created_at=NOW, updated_at=NOW)

    def change(source: StoredConversation) -> StoredConversation:
        return edits.build_branch(source, new, at=2, opening=None)

    insert_conversation(db, new, source="cats", change=change, now=NOW, process=PROCESS)
    assert [each.id for each in stored(db, "copy").turns] == ["t1"]


def test_choosing_a_variant_moves_the_turns(db: sqlite3.Connection):
    add_conversation(db, DEMO)
    edit_conversation(
        db,
        "demo",
        "local",
        lambda old: edits.with_chosen_variant(old, "v1", now=NOW),
        reads="whole",
    )
    assert [each.id for each in stored(db).turns] == ["v1", "t2"]
    assert [each.id for each in stored(db).variants] == ["t1"]


def test_deleting_messages_reads_only_the_outline(db: sqlite3.Connection):
    add_conversation(db, DEMO)
    edit_conversation(
        db, "demo", "local", lambda old: edits.truncate_from(old, 4, now=NOW), reads=4
    )
    assert [(each.id, each.state) for each in stored(db).turns] == [
        ("t1", "complete"),
        ("t2", "incomplete"),
    ]
    assert count(db, "messages") == 5


@pytest.mark.parametrize("sequence", [0, 5])
def test_an_unknown_sequence_is_refused(db: sqlite3.Connection, sequence: int):
    add_conversation(db, DEMO)
    with pytest.raises(SequenceNotFoundError):
        edit_conversation(db, "demo", "local", lambda old: old, reads=sequence)


def test_a_head_edit_keeps_the_turns(db: sqlite3.Connection):
    add_conversation(db, DEMO)
    edit_conversation(
        db,
        "demo",
        "local",
        lambda old: msgspec.structs.replace(old, title="Cats"),
        reads="head",
    )
    assert stored(db) == msgspec.structs.replace(DEMO, title="Cats")


def test_a_deleted_conversation_leaves_no_rows(db: sqlite3.Connection):
    add_conversation(db, DEMO)
    delete_conversation(db, "cats", "local")
    assert [count(db, table) for table in ("conversations", "turns", "messages")] == [0, 0, 0]


def test_a_lease_row_is_held_until_its_expiry():
    row = ("t1", 1, SQLITE_CODEC.encode_time(NOW), None)
    assert not is_held(row, NOW, PROCESS)
    assert not is_held(row, datetime(2025, 11, 15, tzinfo=UTC), PROCESS)
    assert is_held(row, datetime(2026, 11, 15, 23, 59, tzinfo=UTC), PROCESS)


def test_a_lease_row_of_a_dead_process_is_not_held(tmp_path: Path):
    holder, reader = ProcessLock(tmp_path / "a.db"), ProcessLock(tmp_path / "a.db")
    row = ("t1", 1, SQLITE_CODEC.encode_time(NOW), holder.name())
    before = datetime(2026, 11, 15, 23, 59, tzinfo=UTC)
    assert is_held(row, before, reader)
    holder.release()
    assert not is_held(row, before, reader)
