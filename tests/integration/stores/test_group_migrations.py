"""Revision 0008: message groups. A downgrade copies shared messages, an upgrade loses nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from cllm.core.ports import NewConversation
from cllm.stores.registry import open_store
from cllm.stores.sql import migrate
from cllm.stores.sql.database import Database
from cllm.testing.store_contract import failed, say, say_again, start, texts
from cllm.testing.store_paths import find

T = TypeVar("T")


@pytest.fixture
def url(empty_url: str) -> str:
    return empty_url


def with_store(url: str, work: Callable[[Any], Awaitable[T]]) -> T:
    async def run() -> T:
        store = open_store(url, clock=lambda: datetime.now(UTC))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def count_messages(url: str) -> int:
    query = sa.text("SELECT count(*) FROM messages")
    return int(Database(url).run(lambda bind: bind.execute(query).scalar_one()))


def convert_again(url: str) -> int:
    """Downgrade and upgrade; return the number of messages at revision 0007."""
    Database(url).run(lambda bind: migrate.downgrade(bind, "0007"))
    assert Database(url).run(migrate.find_differences) == []
    copied = count_messages(url)
    Database(url).run(migrate.upgrade)
    assert Database(url).run(migrate.find_differences) == []
    return copied


async def _fill(store: Any) -> None:
    await say(store, "demo", "t1", "one")
    lease = await store.begin_turn("demo", start("t2", "two"))
    await store.finish_turn(lease, failed(lease))
    await say(store, "demo", "t3", "three")
    await say_again(store, "demo", "t4", place="t3", text="better")
    await store.branch("demo", NewConversation(id="first"))
    await store.branch("first", NewConversation(id="second"), at=2)


async def _read(store: Any) -> list[Any]:
    loaded = [await store.load(ref) for ref in ("demo", "first", "second")]
    hits = [await store.search(word) for word in ("one", "better")]
    found = [{(hit.conversation, hit.sequence) for hit in each.items} for each in hits]
    paths = [{(m.conversation, m.sequence) for m in await find(store, "one", "one?")}]
    return [*loaded, *found, *paths]


def test_a_downgrade_copies_shared_messages_and_an_upgrade_reads_them(url: str):
    with_store(url, _fill)
    before, shared = with_store(url, _read), count_messages(url)
    assert shared == 2 + 1 + 2 + 2
    assert convert_again(url) == 2 * shared + 2
    assert with_store(url, _read) == before


def test_upgraded_conversations_continue_and_are_deleted(url: str):
    async def use(store: Any) -> None:
        await say(store, "demo", "t5", "four")
        assert texts(await store.load("demo"))[-2:] == ["four", "four?"]
        await store.branch("demo", NewConversation(id="third"))
        for ref in ("demo", "first", "second", "third"):
            await store.delete(ref)
        assert (await store.search("one")).items == ()

    with_store(url, _fill)
    convert_again(url)
    with_store(url, use)
    assert count_messages(url) == 0
