"""Revision 0007: the digests and families of conversations that earlier revisions stored."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from cllm.cli.db import DOWNGRADE_HELP
from cllm.core.ports import NewConversation
from cllm.stores.registry import open_store
from cllm.stores.sql import migrate
from cllm.stores.sql.database import Database
from cllm.testing.store_contract import answered, failed, say, say_again, start
from cllm.testing.store_paths import find, list_family

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


def execute(url: str, *statements: str) -> None:
    def work(bind: sa.Connection) -> None:
        for statement in statements:
            bind.execute(sa.text(statement))

    Database(url).run(work)


def convert_again(url: str, *statements: str) -> None:
    """Downgrade to revision 0006, change the database, and upgrade it."""
    Database(url).run(lambda bind: migrate.downgrade(bind, "0006"))
    assert Database(url).run(migrate.find_differences) == []
    execute(url, *statements)
    Database(url).run(migrate.upgrade)
    assert Database(url).run(migrate.find_differences) == []


async def _fill(store: Any) -> None:
    await say(store, "demo", "t1", "one")
    lease = await store.begin_turn("demo", start("t2", "two"))
    await store.finish_turn(lease, failed(lease))
    await say(store, "demo", "t3", "three")
    await say_again(store, "demo", "t4", place="t3", text="better")
    await say(store, "demo", "t5", "four")
    await say(store, "other", "t1", "one")


async def _find_all(store: Any) -> list[Any]:
    paths = (
        ("one", "one?", "two"),
        ("one", "one?", "three", "three?"),
        ("one", "one?", "Hello", "better", "four", "four?"),
        ("one", "one?"),
    )
    return [await find(store, *path) for path in paths]


def test_the_messages_of_an_earlier_revision_are_found(url: str):
    with_store(url, _fill)
    before = with_store(url, _find_all)
    assert [len(matches) for matches in before] == [1, 1, 1, 2]
    convert_again(url)
    assert with_store(url, _find_all) == before


def test_a_conversation_of_an_earlier_revision_is_continued(url: str):
    async def look(store: Any) -> None:
        await say(store, "demo", "t6", "five")
        whole = ("one", "one?", "Hello", "better", "four", "four?", "five", "five?")
        (match,) = await find(store, *whole)
        assert (match.turn, match.ordinal) == ("t6", 1)
        matches = await store.search("five")
        assert [hit.conversation for hit in matches.items] == ["demo", "demo"]
        assert len((await store.search("better")).items) == 1

    with_store(url, _fill)
    convert_again(url)
    with_store(url, look)


def test_a_damaged_message_has_no_digest_and_stops_nothing(url: str):
    async def look(store: Any) -> None:
        # The damaged message, and those after it, are not found.
        first, *_ = await _find_all(store)
        assert [match.conversation for match in first] == ["other"]
        lease = await store.begin_turn("demo", start("t6", "five"), tail=1)
        await store.finish_turn(lease, answered(lease))

    with_store(url, _fill)
    link = "conversation_id" if url.startswith("sqlite") else "conversation"
    linked = "id" if url.startswith("sqlite") else "number"
    damage = (
        f"UPDATE messages SET role = 'nobody' WHERE turn = 1 AND ordinal = 1 AND {link} = "  # noqa: S608
        f"(SELECT {linked} FROM conversations WHERE id = 'demo')"
    )
    convert_again(url, damage)
    with_store(url, look)


def test_branches_of_an_earlier_revision_have_families(url: str):
    async def make(store: Any) -> None:
        await say(store, "root", "t1", "one")
        for parent, branch in (("root", "first"), ("first", "second"), ("root", "x"), ("x", "y")):
            await store.branch(parent, NewConversation(id=branch))
        await store.delete("root")

    async def look(store: Any) -> None:
        assert await list_family(store, "root") == ["second", "first"]
        assert await list_family(store, "x") == ["y", "x"]
        assert (await store.load("second")).family == "root"

    with_store(url, make)
    convert_again(url, "UPDATE conversations SET parent_id = 'y' WHERE id = 'x'")
    with_store(url, look)


def test_a_downgrade_keeps_the_messages(url: str):
    with_store(url, _fill)
    before = with_store(url, lambda store: store.load("demo"))
    convert_again(url)
    assert with_store(url, lambda store: store.load("demo")) == before


def test_a_downgrade_loses_what_its_help_names(url: str):
    async def make(store: Any) -> None:
        new = NewConversation(id="side", source="opencode:subagent", family="s:1", is_side=True)
        await store.begin_turn("side", start("t1"), create=new)

    with_store(url, make)
    convert_again(url)
    loaded = with_store(url, lambda store: store.load("side"))
    assert (loaded.source, loaded.family_key, loaded.is_side) == (None, "side", False)
    for lost in ("sources", "sessions of clients", "side conversations"):
        assert lost in " ".join(DOWNGRADE_HELP.split())


def test_what_a_downgrade_deletes_is_counted(url: str):
    async def make(store: Any) -> None:
        await _fill(store)
        new = NewConversation(id="side", source="opencode:subagent", family="s:1", is_side=True)
        await store.begin_turn("side", start("t1"), create=new)

    with_store(url, make)
    database = Database(url)
    lost = {
        revision: database.run(partial(migrate.list_lost_data, to=revision))
        for revision in ("0007", "0006", "0002")
    }
    kinds = "sources, sessions and kinds of conversations: 1"
    turns = "models, usage, costs and windows of turns: 7"
    assert lost == {"0007": [], "0006": [kinds], "0002": [kinds, turns, "variants: 1"]}


def test_after_an_upgrade_a_downgrade_deletes_nothing(url: str):
    with_store(url, _fill)
    database = Database(url)
    database.run(lambda bind: migrate.downgrade(bind, "0002"))
    database.run(migrate.upgrade)
    assert database.run(lambda bind: migrate.list_lost_data(bind, "0001")) == []
