"""A word that very many messages have: what is looked at for it has a bound, and is the newest."""

import pytest

from cllm.core.ports import ArchiveFilter, Changes
from cllm.stores.sql import postgres_lists
from cllm.stores.sql.postgres import PostgresStore
from cllm.testing.store_contract import say


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_lists, "_FEW", 5)
    monkeypatch.setattr(postgres_lists, "_WALKED", 8)


async def found_in(
    store: PostgresStore, word: str, archive_filter: ArchiveFilter = "active"
) -> set[str]:
    found = await store.search(word, limit=100, archive_filter=archive_filter)
    return {hit.conversation for hit in found.items}


async def test_of_a_common_word_the_newest_messages_are_found(store: PostgresStore):
    for number in range(20):
        await say(store, f"c{number:02}", "t1", "common")
    found = await found_in(store, "common")
    assert found >= {"c16", "c17", "c18", "c19"}
    assert len(found) < 20


async def test_of_a_rare_word_everything_is_found_however_old(store: PostgresStore):
    await say(store, "old", "t1", "rare")
    await say(store, "older", "t1", "rare")
    for number in range(20):
        await say(store, f"c{number:02}", "t1", "common")
    assert await found_in(store, "rare") == {"old", "older"}


async def test_a_word_that_was_common_once_is_found_still(store: PostgresStore):
    for number in range(10):
        await say(store, f"old{number}", "t1", "ancient")
    for number in range(10):
        await say(store, f"c{number}", "t1", "modern")
    found = await found_in(store, "ancient")
    assert found
    assert all(name.startswith("old") for name in found)


async def test_what_is_archived_is_found_apart_among_the_newest(store: PostgresStore):
    for number in range(10):
        await say(store, f"c{number}", "t1", "common")
    await store.update("c9", Changes(archived=True))
    assert "c9" not in await found_in(store, "common")
    assert await found_in(store, "common", archive_filter="archived") == {"c9"}


async def test_another_owners_words_are_not_walked_through(store: PostgresStore):
    for number in range(10):
        await say(store, f"c{number}", "t1", "common")
    found = await store.search("common", owner="somebody")
    assert (found.total, found.items) == (0, ())
