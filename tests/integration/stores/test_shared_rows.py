"""Branches share the stored messages of their path, which are deleted with their last user."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from tests.torture import choose_size

from cllm.core.ports import NewConversation, ServerStore
from cllm.stores.registry import open_store
from cllm.stores.sql.database import Database
from cllm.testing.store_contract import say, say_again, texts
from cllm.testing.store_harness import answered, start

UNUSED = """SELECT count(*) FROM messages m WHERE NOT EXISTS (
    SELECT 1 FROM turns t WHERE t.owner = m.owner AND t.message_group = m.message_group)"""
LOST = """SELECT count(*) FROM turns t WHERE t.state = 'complete' AND NOT EXISTS (
    SELECT 1 FROM messages m WHERE m.owner = t.owner AND m.message_group = t.message_group)"""
INDEXED = "SELECT count(*) FROM message_search_docsize"
TABLES = ("conversations", "turns", "messages", "leases", "requests", "events")


@pytest.fixture
async def store(url: str) -> AsyncIterator[ServerStore]:
    opened = cast("ServerStore", open_store(url, clock=lambda: datetime.now(UTC)))
    yield opened
    await opened.close()


def query(url: str, text: str) -> list[Any]:
    return Database(url).run(lambda bind: [tuple(row) for row in bind.execute(sa.text(text))])


def count(url: str, text: str = "SELECT count(*) FROM messages") -> int:
    return int(query(url, text)[0][0])


async def fill(store: ServerStore, turns: int = 10) -> None:
    for number in range(1, turns + 1):
        await say(store, "demo", f"t{number}", f"zebra {number}")


async def test_a_hundred_branches_store_each_message_once(url: str, store: ServerStore):
    await fill(store)
    for number in range(100):
        await store.branch("demo", NewConversation(id=f"b{number}"))
        lease = await store.begin_turn(f"b{number}", start("own"), tail=2)
        await store.finish_turn(lease, answered(lease))
    assert count(url) == 20 + 100 * 2
    assert len(texts(await store.load("b99"))) == 22


async def test_a_branch_within_a_turn_copies_the_messages_of_this_turn(
    url: str, store: ServerStore
):
    await fill(store)
    await store.branch("demo", NewConversation(id="copy"), at=19)
    assert count(url) == 20 + 1


async def test_a_branch_of_a_chosen_path_shares_its_messages(url: str, store: ServerStore):
    await fill(store)
    await say_again(store, "demo", "again", place="t10", text="better")
    stored = count(url)
    path = [f"t{number}" for number in range(1, 11)]
    await store.branch("demo", NewConversation(id="copy"), path=path)
    await store.branch("demo", NewConversation(id="short"), path=path[:4])
    assert count(url) == stored


async def test_messages_with_another_path_are_copied(url: str, store: ServerStore):
    await fill(store, 3)
    await say_again(store, "demo", "again", place="t3", text="better")
    await say(store, "demo", "t4", "four")
    await store.branch("demo", NewConversation(id="copy"))
    stored = count(url)
    await store.choose_variant("demo", "t3")
    assert count(url) == stored + 2
    await store.choose_variant("demo", "again")
    assert count(url) == stored + 2


async def test_no_text_remains_after_the_last_branch_is_deleted(url: str, store: ServerStore):
    await fill(store, 3)
    await store.branch("demo", NewConversation(id="first", title="x"))
    await store.branch("first", NewConversation(id="second", title="x"), at=3)
    await store.branch("second", NewConversation(id="third", title="x"))
    for ref in ("first", "demo", "third", "second"):
        assert "zebra" in str(query(url, "SELECT raw FROM messages"))
        await store.delete(ref)
    assert [count(url, f"SELECT count(*) FROM {table}") for table in TABLES] == [0] * len(TABLES)  # noqa: S608
    if url.startswith("sqlite"):
        assert count(url, INDEXED) == 0
        assert b"zebra 1" not in Path(url.partition(":")[2]).read_bytes()


class Workers:
    def __init__(self, url: str) -> None:
        self._url = url
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, name: str) -> "subprocess.Popen[str]":
        script = Path(__file__).with_name("branch_worker.py")
        process = subprocess.Popen(
            [sys.executable, str(script), self._url, name], stdout=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture
def workers(url: str) -> Iterator[Workers]:
    started = Workers(url)
    yield started
    for process in started.processes:
        kill(process)


def read_lines(process: "subprocess.Popen[str]", number: int) -> None:
    assert process.stdout is not None
    assert all(process.stdout.readline() for _ in range(number))


def check(url: str, whole: list[str], loaded: list[list[str]]) -> None:
    assert (count(url, UNUSED), count(url, LOST)) == (0, 0)
    for path in loaded:
        common = [text for text in path if text.startswith("zebra")]
        assert common == whole[: len(common)]


async def load_all(store: ServerStore) -> list[list[str]]:
    page = await store.list_conversations(limit=1000)
    return [texts(await store.load(item.id)) for item in page.items]


@pytest.mark.timeout(300)
async def test_two_processes_branch_and_delete(url: str, store: ServerStore, workers: Workers):
    await fill(store, 3)
    whole = texts(await store.load("demo"))
    both = [workers.start("p"), workers.start("q")]
    for process in both:
        await asyncio.to_thread(read_lines, process, choose_size(6, full=60))
    for process in both:
        kill(process)
    check(url, whole, await load_all(store))
    assert texts(await store.load("demo")) == whole


@pytest.mark.timeout(300)
async def test_a_kill_leaves_no_unused_and_no_lost_messages(
    url: str, store: ServerStore, workers: Workers
):
    await fill(store, 3)
    whole = texts(await store.load("demo"))
    moments = random.Random(7)  # noqa: S311
    for number in range(choose_size(4, full=60)):
        process = workers.start(f"p{number}")
        read_lines(process, 1)
        time.sleep(moments.uniform(0, 0.05))
        kill(process)
        check(url, whole, await load_all(store))
