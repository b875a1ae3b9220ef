import sqlite3
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import plain_message
from cllm.core.ports import Tail, TurnPart
from cllm.stores.sql.rows import UnreadableRowError
from cllm.stores.sqlite.edits import add_conversation
from cllm.stores.sqlite.reader import (
    SQLITE_CODEC,
    decode_lossy,
    fetch_rows,
    find_conversation,
    load,
    load_outline,
    load_summary,
    messages_from,
    with_replacements,
)

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def turn(key: str, place: str | None = None) -> Turn:
    return Turn(
        id=key,
        place=place or key,
        state="complete",
        messages=(plain_message("user", key), plain_message("assistant", f"{key}?")),
        started_at=NOW,
    )


@pytest.fixture
def filled(db: sqlite3.Connection) -> sqlite3.Connection:
    turns = (turn("t1"), turn("t2"), turn("t3"))
    add_conversation(
        db,
        StoredConversation(
            id="demo",
            name="cats",
            title="Cats",
            created_at=NOW,
            updated_at=NOW,
            turns=turns,
            variants=(turn("v1", "t1"),),
        ),
    )
    return db


@pytest.mark.parametrize(
    ("tail", "ids", "variants"),
    [
        (None, ["t1", "t2", "t3"], ["v1"]),
        (100, ["t1", "t2", "t3"], ["v1"]),
        (3, ["t2", "t3"], []),
        (0, [], []),
        ("window", ["t1", "t2", "t3"], ["v1"]),
    ],
)
def test_a_tail_loads_whole_turns(
    filled: sqlite3.Connection, tail: Tail, ids: list[str], variants: list[str]
):
    loaded = load(filled, find_conversation(filled, "cats", "local"), tail)
    assert [each.id for each in loaded.turns] == ids
    assert [each.id for each in loaded.variants] == variants
    assert loaded.message_count == 6


def test_an_unknown_conversation_is_not_found(filled: sqlite3.Connection):
    for find in (find_conversation, load_summary, load_outline):
        with pytest.raises(ConversationNotFoundError):
            find(filled, "demo", "eve")
    assert messages_from(filled, "none", [TurnPart(turn="t1")], most=1, owner="local") == ()


def test_an_outline_has_counts_and_no_messages(filled: sqlite3.Connection):
    outline = load_outline(filled, "demo", "local")
    assert outline.counts == {"t1": 2, "t2": 2, "t3": 2, "v1": 2}
    assert all(each.messages == () for each in outline.conversation.turns)


def test_messages_are_read_in_the_order_of_the_parts(filled: sqlite3.Connection):
    parts = [TurnPart(turn="t3"), TurnPart(turn="t1", start=1), TurnPart(turn="none")]
    messages = messages_from(filled, "demo", parts, most=10_000, owner="local")
    assert [[each.text for each in part] for part in messages] == [["t3", "t3?"], ["t1?"], []]


def test_reading_messages_stops_at_the_byte_limit(filled: sqlite3.Connection):
    parts = [TurnPart(turn="t1"), TurnPart(turn="t2")]
    messages = messages_from(filled, "demo", parts, most=1, owner="local")
    assert [[each.text for each in part] for part in messages] == [["t1"]]


def test_text_that_is_not_utf8_is_shown_with_replacements(filled: sqlite3.Connection):
    filled.execute("UPDATE conversations SET title = CAST(x'43ff' AS TEXT)")
    assert load_summary(filled, "demo", "local").title == "C\ufffd"
    filled.execute("UPDATE messages SET raw = CAST(x'ff' AS TEXT)")
    with pytest.raises(UnreadableRowError, match="not UTF-8"):
        load(filled, find_conversation(filled, "demo", "local"))


def test_only_titles_models_and_names_are_replaced():
    columns = ("id", "name", "title")
    assert with_replacements(("a", "b", "c"), columns) == ("a", "b", "c")
    assert with_replacements((b"\xff", b"\xff", b"\xff"), columns) == (b"\xff", None, "\ufffd")
    assert decode_lossy("é") == "é"


def test_rows_of_other_errors_are_raised(db: sqlite3.Connection):
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        fetch_rows(db, "SELECT * FROM none", ())


def test_times_are_stored_in_utc():
    local = datetime(2026, 11, 16, 7, tzinfo=timezone(timedelta(hours=7)))
    assert SQLITE_CODEC.encode_time(local) == "2026-11-16 00:00:00.000000"
    assert SQLITE_CODEC.decode_time("2026-11-16 00:00:00.000000") == NOW


def test_a_message_of_another_program_is_unreadable(filled: sqlite3.Connection):
    filled.execute("UPDATE messages SET role = 'pirate'")
    with pytest.raises(UnreadableRowError, match="not a message"):
        load(filled, find_conversation(filled, "demo", "local"))
