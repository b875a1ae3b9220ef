"""Words that very many messages have: the newest are found, however many there are before them."""

import pytest
from tests.postgres import Server

from cllm.core.ports import ArchiveFilter, Changes, NewConversation
from cllm.stores import search
from cllm.stores.postgres import lists as postgres_lists
from cllm.stores.postgres.list_statements import BLOCK_BITS
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sql.rows import MAX_FILTERED
from cllm.testing.store_contract import say

BLOCK = 2**BLOCK_BITS
NEXT_SHARE = f"""
SELECT setval('messages_number_seq', (last_value / {BLOCK} + 1) * {BLOCK})
FROM messages_number_seq
"""  # noqa: S608

COPY_MESSAGES = f"""
INSERT INTO messages (owner, message_group, ordinal, digest, role, dialect, raw)
SELECT owner, message_group, added, digest, role, dialect, raw
FROM (SELECT * FROM messages ORDER BY number DESC LIMIT 1) AS newest
CROSS JOIN generate_series(2, {MAX_FILTERED - 2}) AS added
"""  # noqa: S608


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_lists, "MAX_RANKED", 5)
    monkeypatch.setattr(search, "MAX_RANKED", 5)


async def found_in(
    store: PostgresStore, word: str, archive_filter: ArchiveFilter = "active"
) -> set[str]:
    found = await store.search(word, limit=100, archive_filter=archive_filter)
    return {hit.conversation for hit in found.items}


class Talk:
    """Conversations whose messages are far apart in the index."""

    def __init__(self, store: PostgresStore, server: Server, database: str) -> None:
        self._store = store
        self._server = server
        self._database = database

    async def say(self, *names: str, word: str) -> None:
        for name in names:
            await say(self._store, name, "t1", word)
        await self._server.execute(NEXT_SHARE, database=self._database)


@pytest.fixture
def talk(store: PostgresStore, postgres_server: Server, database: str) -> Talk:
    return Talk(store, postgres_server, database)


async def test_a_common_word_finds_the_newest_messages(store: PostgresStore):
    for number in range(20):
        await say(store, f"c{number:02}", "t1", "common")
    found = await store.search("common", limit=100)
    assert [hit.conversation for hit in found.items].count("c19") == 2
    assert {hit.conversation for hit in found.items} == {"c17", "c18", "c19"}
    assert (found.total, found.more) == (5, True)


async def test_the_newest_messages_are_found_in_every_block_of_the_index(
    store: PostgresStore, talk: Talk
):
    await talk.say("a1", "a2", "a3", word="common")
    await talk.say("b1", word="common")
    await talk.say("c1", word="other")
    await talk.say("d1", word="common")
    found = await store.search("common", limit=100)
    assert {hit.conversation for hit in found.items} == {"d1", "b1", "a3"}
    assert (found.total, found.more) == (5, True)


async def test_all_words_must_be_in_one_message(store: PostgresStore, talk: Talk):
    await talk.say("a", word="one two")
    await talk.say("b", word="one")
    await talk.say("c", word="two")
    assert await found_in(store, "two one") == {"a"}


async def test_a_rare_word_finds_old_messages(store: PostgresStore, talk: Talk):
    await talk.say("old", word="rare")
    await talk.say("older", word="rare")
    for number in range(5):
        await talk.say(f"c{number:02}", word="common")
    assert await found_in(store, "rare") == {"old", "older"}


async def test_a_formerly_common_word_is_found(store: PostgresStore, talk: Talk):
    await talk.say(*(f"old{number}" for number in range(10)), word="ancient")
    await talk.say(*(f"c{number}" for number in range(10)), word="modern")
    assert await found_in(store, "ancient") == {"old7", "old8", "old9"}


async def test_archived_messages_are_filtered_among_the_newest(store: PostgresStore):
    for number in range(10):
        await say(store, f"c{number}", "t1", "common")
    await store.update("c9", Changes(archived=True))
    assert await found_in(store, "common") == {"c8", "c7", "c6"}
    assert await found_in(store, "common", archive_filter="archived") == {"c9"}


async def test_filters_apply_to_the_newest_matches_and_older_ones_are_reported(
    store: PostgresStore, postgres_server: Server, database: str
):
    await store.create(NewConversation(id="old", model="rare"))
    await say(store, "old", "t1", "common")
    await store.create(NewConversation(id="new", model="other"))
    await say(store, "new", "t1", "common")
    found = await store.search("common", model="rare")
    assert (found.total, found.more) == (2, False)
    await postgres_server.execute(COPY_MESSAGES, database=database)

    found = await store.search("common", model="rare")
    assert (found.total, found.more) == (1, True)
    assert [hit.sequence for hit in found.items] == [2]
    nothing = await store.search("common", model="nobody")
    assert (nothing.total, nothing.more) == (0, True)
    theirs = await store.search("common", owner="eve", model="nobody")
    assert (theirs.total, theirs.more) == (0, False)


async def test_another_owners_words_are_not_found(store: PostgresStore):
    for number in range(10):
        await say(store, f"c{number}", "t1", "common")
    found = await store.search("common", owner="somebody")
    assert (found.total, found.items) == (0, ())
