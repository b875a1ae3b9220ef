"""Text that is not UTF-8 in an SQLite file: lists, searches and sums show everything else."""

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.errors import StoreUnavailableError
from cllm.core.ports import Changes
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import say

MARK = "\N{REPLACEMENT CHARACTER}"
NO_TEXT = "CAST(x'436174ff73' AS TEXT)"
MARKED = f"Cat{MARK}s"
OF_BAD = "WHERE message_group IN (SELECT message_group FROM turns WHERE conversation_id = 'bad')"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqliteStore]:
    """Two conversations, of which one is about to be damaged."""
    opened = SqliteStore(database, clock=lambda: datetime.now(UTC))
    await say(opened, "good", "t1", "zebra")
    await say(opened, "bad", "t1", "zebra")
    yield opened
    await opened.close()


def spoil(database: Path, change: str) -> None:
    own = sqlite3.connect(database)
    own.execute(change.replace("NO_TEXT", NO_TEXT).replace("OF_BAD", OF_BAD))
    own.commit()
    own.close()


def spoil_row(database: Path, column: str, value: str = NO_TEXT) -> None:
    change = "UPDATE conversations SET column = value WHERE id = 'bad'"
    spoil(database, change.replace("column", column).replace("value", value))


@pytest.mark.parametrize("value", [NO_TEXT, "x'436174ff73'"])
@pytest.mark.parametrize("column", ["title", "model"])
async def test_text_that_is_not_utf8_is_listed_with_a_replacement_and_a_notice(
    database: Path, store: SqliteStore, column: str, value: str
):
    spoil_row(database, column, value)
    page = await store.list_conversations()
    shown = {item.id: getattr(item, column) for item in page.items}
    assert shown["bad"] == MARKED
    assert MARK not in str(shown["good"])
    (notice,) = page.notices
    assert (notice.code, notice.path) == ("conversation_damaged", "bad")
    assert "'bad'" in notice.message
    assert "UTF-8" in notice.message


async def test_a_name_that_is_not_utf8_is_omitted(database: Path, store: SqliteStore):
    spoil_row(database, "name")
    page = await store.list_conversations()
    assert [item.ref for item in page.items] == ["bad", "good"]
    assert [notice.code for notice in page.notices] == ["conversation_damaged"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("metadata", "CAST(x'7b22ff' AS TEXT)"),
        ("metadata", "'{'"),
        ("created_at", "'yesterday'"),
        ("updated_at", NO_TEXT),
        ("archived_at", "''"),
        ("message_count", "'many'"),
    ],
)
async def test_an_unreadable_row_is_skipped_with_a_notice(
    database: Path, store: SqliteStore, column: str, value: str
):
    spoil_row(database, column, value)
    page = await store.list_conversations(archive_filter="all")
    assert [item.id for item in page.items] == ["good"]
    assert [(notice.code, notice.path) for notice in page.notices] == [
        ("conversation_skipped", "bad")
    ]


async def test_an_id_that_is_not_utf8_is_skipped_with_a_notice(database: Path, store: SqliteStore):
    await store.close()
    spoil(
        database,
        "INSERT INTO conversations (owner, id, created_at, updated_at, metadata, message_count)"
        " SELECT owner, x'ff', created_at, updated_at, metadata, 0"
        " FROM conversations WHERE id = 'bad'",
    )
    page = await store.list_conversations()
    assert {item.id for item in page.items} == {"good", "bad"}
    assert [(notice.code, notice.path) for notice in page.notices] == [
        ("conversation_skipped", MARK)
    ]


async def test_pages_continue_after_unreadable_rows(database: Path, store: SqliteStore):
    for number in range(6):
        await say(store, f"c{number}", "t1")
    spoil(database, "UPDATE conversations SET metadata = '{' WHERE id IN ('c1', 'c3', 'c4', 'c5')")
    seen, notice_paths, cursor = [], set(), None
    while True:
        page = await store.list_conversations(limit=2, cursor=cursor)
        assert page.items
        seen += [item.id for item in page.items]
        notice_paths |= {notice.path for notice in page.notices}
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == ["c2", "c0", "bad", "good"]
    assert notice_paths == {"c1", "c3", "c4", "c5"}


async def test_a_page_of_unreadable_rows_has_notices(database: Path, store: SqliteStore):
    spoil(database, "UPDATE conversations SET metadata = '{'")
    page = await store.list_conversations(limit=1)
    assert (page.items, page.next_cursor) == ((), None)
    assert [notice.path for notice in page.notices] == ["bad", "good"]


async def test_a_page_after_many_unreadable_rows_respects_its_limit(
    database: Path, store: SqliteStore
):
    for number in range(4):
        await say(store, f"c{number}", "t1")
    spoil(database, "UPDATE conversations SET metadata = '{' WHERE id IN ('c2', 'c3')")
    page = await store.list_conversations(limit=1)
    assert [item.id for item in page.items] == ["c1"]
    assert [notice.path for notice in page.notices] == ["c3", "c2"]
    after = await store.list_conversations(limit=1, cursor=page.next_cursor)
    assert [item.id for item in after.items] == ["c0"]


async def test_a_search_shows_a_replacement_in_the_title_with_a_notice(
    database: Path, store: SqliteStore
):
    spoil_row(database, "title")
    hits = await store.search("zebra")
    titles = {hit.conversation: hit.title for hit in hits.items}
    assert titles["bad"] == MARKED
    assert hits.total == 4
    assert [(notice.code, notice.path) for notice in hits.notices] == [
        ("conversation_damaged", "bad")
    ]


@pytest.mark.parametrize("value", [NO_TEXT, "'noon'"])
async def test_an_unreadable_match_has_a_notice(database: Path, store: SqliteStore, value: str):
    change = "UPDATE turns SET started_at = value WHERE conversation_id = 'bad'"
    spoil(database, change.replace("value", value))
    hits = await store.search("zebra")
    assert {hit.conversation for hit in hits.items} == {"good"}
    assert [(notice.code, notice.path) for notice in hits.notices] == [("message_skipped", "bad")]


@pytest.mark.parametrize(
    "damage",
    [
        "role = x'fffe'",
        "role = 'nobody'",
        "ordinal = 'x'",
        "ordinal = x'7a'",
        "ordinal = 9e99",
    ],
)
async def test_a_match_with_an_invalid_role_or_ordinal_has_a_notice(
    database: Path, store: SqliteStore, damage: str
):
    spoil(database, f"UPDATE messages SET {damage} OF_BAD AND role = 'user'")  # noqa: S608
    hits = await store.search("zebra")
    assert [hit.role for hit in hits.items if hit.conversation == "bad"] == ["assistant"]
    assert [(notice.code, notice.path) for notice in hits.notices] == [("message_skipped", "bad")]


@pytest.mark.parametrize("damage", ["'x'", "x'7a'", "9e99"])
async def test_a_match_with_an_invalid_sequence_has_a_notice(
    database: Path, store: SqliteStore, damage: str
):
    change = "UPDATE turns SET first_sequence = value WHERE conversation_id = 'bad'"
    spoil(database, change.replace("value", damage))
    hits = await store.search("zebra")
    assert {hit.conversation for hit in hits.items} == {"good"}
    assert [(notice.code, notice.path) for notice in hits.notices] == [("message_skipped", "bad")]


async def test_sums_have_a_replacement_in_the_model(database: Path, store: SqliteStore):
    spoil(
        database,
        "UPDATE turns SET ended_at = started_at, input_tokens = 1, output_tokens = 1, "
        "cache_read_tokens = 0, cache_write_tokens = 0, reasoning_tokens = 0, "
        "cache_write_hour_tokens = 0, estimated = 0",
    )
    before = await store.usage(by="model")
    spoil(database, "UPDATE turns SET model = NO_TEXT WHERE conversation_id = 'bad'")
    after = await store.usage(by="model")
    assert MARKED in {each.key for each in after}
    assert sum(each.calls for each in after) == sum(each.calls for each in before) == 2


async def test_a_damaged_title_can_be_shown_and_changed(database: Path, store: SqliteStore):
    spoil_row(database, "title")
    assert (await store.summary("bad")).title == MARKED
    assert (await store.load("bad")).title == MARKED
    await store.update("bad", Changes(title="Cats"))
    page = await store.list_conversations()
    assert {item.id: item.title for item in page.items}["bad"] == "Cats"
    assert page.notices == ()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE messages SET raw = NO_TEXT OF_BAD",
        "UPDATE turns SET model = NO_TEXT WHERE conversation_id = 'bad'",
        "UPDATE conversations SET metadata = NO_TEXT WHERE id = 'bad'",
        "UPDATE messages SET dialect = 'esperanto' OF_BAD",
        "UPDATE messages SET role = 'nobody' OF_BAD",
        "UPDATE messages SET raw = '-5' OF_BAD",
        "UPDATE messages SET raw = '\"zebra\"' OF_BAD",
        "UPDATE messages SET raw = 'x\"<' OF_BAD",
        "UPDATE messages SET raw = '' OF_BAD",
        "UPDATE turns SET input_tokens = 'many' WHERE conversation_id = 'bad'",
        "UPDATE turns SET input_tokens = 1, output_tokens = NULL WHERE conversation_id = 'bad'",
    ],
)
async def test_an_unreadable_conversation_is_reported(
    database: Path, store: SqliteStore, damage: str
):
    spoil(database, damage)
    with pytest.raises(StoreUnavailableError, match="a row that cannot be read"):
        await store.load("bad")
    assert (await store.load("good")).message_count == 2


async def test_an_error_of_the_file_is_still_reported(database: Path, store: SqliteStore):
    spoil(database, "ALTER TABLE turns RENAME TO others")
    with pytest.raises(StoreUnavailableError, match="no such table"):
        await store.search("zebra")
