import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.ports import NewConversation
from cllm.stores.search import MAX_RANKED, SearchTerm, build_match, owner_term
from cllm.stores.sql.rows import MAX_FILTERED, UnreadableRowError
from cllm.stores.sqlite.lists import (
    are_summary_rows,
    check_summary_row,
    summary_ref,
)
from cllm.stores.sqlite.statements import INDEX
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_harness import TickingClock, say

TIME = "2026-11-16 00:00:00.000000"
ROW = ("demo", TIME, TIME, 2, "m", "cats", "Title", None, "{}", None, 0, None, None, None)


COPY_MESSAGE = """INSERT INTO messages (owner, message_group, ordinal, digest, role, dialect, raw)
SELECT owner, message_group, ?, digest, role, dialect, raw FROM messages WHERE number = 4"""


def with_value(index: int, value: object) -> tuple[object, ...]:
    return (*ROW[:index], value, *ROW[index + 1 :])


def test_a_summary_row_has_the_expected_types():
    check_summary_row(ROW)
    assert are_summary_rows([ROW, with_value(5, None)])
    assert are_summary_rows([])


@pytest.mark.parametrize(("index", "value"), [(0, 1), (3, "2"), (6, b"\xff")])
def test_a_row_with_another_type_is_unreadable(index: int, value: object):
    row = with_value(index, value)
    assert not are_summary_rows([ROW, row])
    with pytest.raises(UnreadableRowError):
        check_summary_row(row)


def test_a_row_is_referred_to_by_its_name_or_id():
    assert summary_ref(ROW) == "cats"
    assert summary_ref(with_value(5, None)) == "demo"
    assert summary_ref((b"\xff", *with_value(5, None)[1:])) == "\ufffd"


def test_a_match_has_every_word_and_the_owner():
    words = [SearchTerm("cat"), SearchTerm("猫", prefix=True)]
    word, prefix, owner = build_match(words, owner_term("local")).split(" AND ")
    assert (word, prefix) == ('"cat"', '"猫"*')
    assert owner.startswith('"_')
    assert build_match([SearchTerm("cat", forms=("cats",))], "x").startswith(
        '("cat" OR "cats") AND '
    )


async def test_filters_apply_to_the_newest_matches_and_older_ones_are_reported(tmp_path: Path):
    store = SqliteStore(tmp_path / "cllm.db", clock=TickingClock())
    await store.create(NewConversation(id="old", model="rare"))
    await say(store, "old", "t1", "apple")
    await store.create(NewConversation(id="new", model="common"))
    await say(store, "new", "t1", "apple")
    found = await store.search("apple", model="rare")
    assert (found.total, found.more) == (2, False)
    db = sqlite3.connect(tmp_path / "cllm.db")
    added = range(MAX_FILTERED - 3)
    db.executemany(COPY_MESSAGE, [(2 + number,) for number in added])
    db.executemany(INDEX, [(5 + number, f"{owner_term('local')} apple") for number in added])
    db.commit()
    db.close()

    found = await store.search("apple", model="rare")
    assert (found.total, found.more) == (1, True)
    assert [hit.sequence for hit in found.items] == [2]
    other = await store.search("apple", model="common")
    assert (other.total, other.more) == (MAX_RANKED, True)
    nothing = await store.search("apple", model="nobody")
    assert (nothing.total, nothing.more) == (0, True)
    theirs = await store.search("apple", owner="eve", model="nobody")
    assert (theirs.total, theirs.more) == (0, False)
    await store.close()


async def test_a_damaged_row_is_a_notice_and_hides_no_other(tmp_path: Path):
    store = SqliteStore(tmp_path / "cllm.db", clock=TickingClock())
    for ref in ("one", "bad", "two"):
        await store.create(NewConversation(id=ref))
    db = sqlite3.connect(tmp_path / "cllm.db")
    db.execute("UPDATE conversations SET metadata = 'no JSON' WHERE id = 'bad'")
    db.commit()
    db.close()
    page = await store.list_conversations(limit=2)
    assert [item.id for item in page.items] == ["two"]
    assert [(notice.code, notice.path) for notice in page.notices] == [
        ("conversation_skipped", "bad")
    ]
    rest = await store.list_conversations(limit=2, cursor=page.next_cursor)
    assert [item.id for item in rest.items] == ["one"]
    assert await store.count_conversations() == 3
    await store.close()


async def test_usage_is_limited_to_a_period(tmp_path: Path):
    store = SqliteStore(tmp_path / "cllm.db", clock=TickingClock())
    await say(store, "demo", "t1")
    assert await store.usage(until=datetime(2020, 1, 1, tzinfo=UTC)) == ()
    await store.close()
