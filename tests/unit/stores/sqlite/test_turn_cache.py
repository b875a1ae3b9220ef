import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.conversation import StoredConversation, Turn, WindowRecord
from cllm.core.message import plain_message
from cllm.core.ports import Tail
from cllm.stores.sqlite.turn_cache import (
    MAX_ROWS,
    MAX_RUNNING,
    TurnCache,
    TurnRows,
    select_cached_tail,
)

NOW = datetime(2026, 11, 16, tzinfo=UTC)
KEY = ("local", "demo")


def turn(key: str, text: str = "Hello", *, place: str | None = None, cut: int = 1) -> Turn:
    return Turn(
        id=key,
        place=place or key,
        state="complete",
        messages=(plain_message("user", text), plain_message("assistant", "Hi")),
        started_at=NOW,
        window=WindowRecord(first_sequence=cut, sent_messages=1),
    )


def conversation(*turns: Turn, key: str = "demo", first: int = 1) -> StoredConversation:
    return StoredConversation(
        id=key,
        created_at=NOW,
        updated_at=NOW,
        turns=turns,
        variants=(turn("v1", place="t1"),),
        first_sequence=first,
    )


def test_an_entry_is_returned_once():
    cache = TurnCache()
    cache.put(conversation(turn("t1")), turn("t2"), message_count=4)
    entry = cache.pop(KEY)
    assert entry is not None
    assert [each.id for each in entry.turns] == ["t1", "t2"]
    assert cache.pop(KEY) is None


def test_the_oldest_entries_are_evicted():
    cache = TurnCache(max_bytes=30_000)
    for number in range(30):
        new = conversation(key=f"c{number}")
        cache.put(new, turn("t1", "x" * 500), message_count=2)
    assert cache.pop(("local", "c0")) is None
    assert cache.pop(("local", "c29")) is not None


def test_a_conversation_over_its_share_is_not_cached():
    cache = TurnCache(max_bytes=8_000)
    cache.put(conversation(), turn("t1", "x" * 2_000), message_count=2)
    assert cache.pop(KEY) is None


def test_a_write_of_another_connection_clears_the_cache(db: sqlite3.Connection, tmp_path: Path):
    cache = TurnCache()
    cache.check_version(db)
    cache.put(conversation(), turn("t1"), message_count=2)
    cache.check_version(db)
    assert cache.pop(KEY) is not None
    cache.put(conversation(), turn("t1"), message_count=2)
    other = sqlite3.connect(tmp_path / "cllm.db")
    other.execute("PRAGMA user_version = 7")
    other.close()
    cache.check_version(db)
    assert cache.pop(KEY) is None


def test_the_rows_of_running_turns_are_limited():
    cache = TurnCache()
    for number in range(MAX_RUNNING + 1):
        cache.put_running(KEY, f"t{number}", TurnRows(number, number, [number]))
    cache.put_running(KEY, "long", TurnRows(1, 1, range(MAX_ROWS + 1)))
    assert cache.pop_running(KEY, "t0") is None
    assert cache.pop_running(KEY, "long") is None
    assert cache.pop_running(KEY, "t1") == TurnRows(1, 1, [1])
    cache.clear()
    assert cache.pop_running(KEY, "t2") is None


@pytest.mark.parametrize(
    ("tail", "pins", "ids"),
    [
        (1, (), ["t3"]),
        (3, (), ["t2", "t3"]),
        ("window", (), ["t2", "t3"]),
        ("window", (1,), None),
        (None, (), None),
        (0, (), None),
    ],
)
def test_a_tail_is_selected_if_the_entry_has_it(
    tail: Tail, pins: tuple[int, ...], ids: list[str] | None
):
    cache = TurnCache()
    cache.put(conversation(turn("t2"), first=3), turn("t3", cut=4), message_count=6)
    entry = cache.pop(KEY)
    assert entry is not None
    selected = select_cached_tail(entry, pins, tail)
    assert (None if selected is None else [each.id for each in selected.turns]) == ids


def test_the_variants_of_earlier_turns_are_not_selected():
    cache = TurnCache()
    cache.put(conversation(turn("t1")), turn("t2"), message_count=4)
    entry = cache.pop(KEY)
    assert entry is not None
    whole, newest = select_cached_tail(entry, (), None), select_cached_tail(entry, (), 1)
    assert whole is not None
    assert [each.id for each in whole.variants] == ["v1"]
    assert newest is not None
    assert newest.variants == ()
