"""What other servers that keep conversations got wrong, line by line, on both engines."""

import asyncio
import inspect
import json
import re
import resource
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.postgres import Server, postgres_server

from cllm.core.errors import ConversationBusyError, ConversationNotFoundError, TurnNotFoundError
from cllm.core.ports import (
    Changes,
    KeptResponse,
    NewConversation,
    RequestKey,
    ServerStore,
    StreamEvent,
)
from cllm.stores.postgres import list_statements, request_statements
from cllm.stores.postgres import statements as postgres_statements
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.registry import open_store
from cllm.stores.sqlite import statements
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import OPENING, answered, say, say_again, start, texts
from cllm.testing.store_paths import find_messages

__all__ = ["postgres_server"]

MANY = 200
HOSTILE = ("'; DROP TABLE turns; --", "a' OR '1'='1", '"', "%", "$1", "{}", "NEAR(", "\u202e")
OF_ONE = {
    "load": (),
    "summary": (),
    "begin_turn": (start("t2"),),
    "update": (Changes(title="x"),),
    "capture": (OPENING,),
    "delete": (),
    "delete_from": (1,),
    "branch": (NewConversation(id="copy"),),
    "choose_variant": ("t1",),
    "events_after": ("t1", 0),
}
OF_ALL = {
    *(
        "list_conversations",
        "count_conversations",
        "search",
        "usage",
        "add",
        "create",
        "count_call",
        "find_paths",
        "list_family",
        "read_overviews",
        "cancel_turn",
    ),
    "forget_responses",
}
STATEMENTS = (postgres_statements, list_statements, request_statements, statements)
A_TABLE = re.compile(
    r"\b(FROM|INTO|UPDATE|JOIN)\s+"
    r"(conversations|turns|messages|leases|requests|events|calls|message_search)\b"
)
WITHOUT_OWNER = {
    "INDEX",
    "UNINDEX",
    "DROP_OLD_REQUESTS",
    "DROP_OLD_EVENTS",
    "MATCHES",
    "HAS_MORE_MATCHES",
}
"""Statements without an owner: rows that a statement with an owner found, old rows, and matches of
SQLite's index, whose query has the owner's term.
"""


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a store has its tables; PostgreSQL has five connections for everybody."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'cllm.db'}?synchronous=normal"
        return
    server: Server = request.getfixturevalue("postgres_server")
    template = asyncio.run(server.head_template())
    name = asyncio.run(server.create_database(template=template))
    yield f"{server.url(name)}&pool_size=5"
    asyncio.run(server.drop_database(name))


@pytest.fixture
async def store(url: str) -> AsyncIterator[ServerStore]:
    opened = open_store(url, clock=now)
    assert isinstance(opened, SqliteStore | PostgresStore)
    yield opened
    await opened.close()


async def test_parallel_turns_never_interleave(store):
    await say(store, "demo", "t0", "first")

    async def attempt(number: int) -> str:
        try:
            lease = await store.begin_turn("demo", start(f"t{number}", f"say {number}"))
        except ConversationBusyError:
            return "refused"
        await asyncio.sleep(0.01)
        await store.finish_turn(lease, answered(lease, f"heard {number}"))
        return "taken"

    assert "taken" in await asyncio.gather(*(attempt(number) for number in range(1, 9)))

    async def queue(number: int) -> None:
        begun = start(f"q{number}", f"say {number}")
        lease = await store.begin_turn("demo", begun, wait=30)
        await store.finish_turn(lease, answered(lease, f"heard {number}"))

    await asyncio.gather(*(queue(number) for number in range(8)))
    found = await store.load("demo")
    messages = texts(found)[2:]
    assert {turn.state for turn in found.turns} == {"complete"}
    assert len([turn for turn in found.turns if turn.id.startswith("q")]) == 8
    pairs = list(zip(messages[::2], messages[1::2], strict=True))
    assert all(heard == question.replace("say", "heard") for question, heard in pairs)


async def test_a_busy_error_names_the_running_turn(store):
    await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    with pytest.raises(ConversationBusyError) as caught:
        await store.begin_turn("demo", start("t2"))
    assert caught.value.turn_id == "t1"


async def test_another_owners_id_is_unknown_to_every_operation(store):
    await say(store, "demo", "t1", "an apple")
    before = await store.load("demo")
    for name, arguments in OF_ONE.items():
        with pytest.raises(ConversationNotFoundError) as theirs:
            await getattr(store, name)("demo", *arguments, owner="eve")
        with pytest.raises(ConversationNotFoundError) as unknown:
            await getattr(store, name)("nothing", *arguments, owner="eve")
        assert str(theirs.value).replace("demo", "nothing") == str(unknown.value)
    assert (await store.list_conversations(owner="eve", archive_filter="all")).items == ()
    assert await store.count_conversations(owner="eve") == 0
    assert (await store.search("apple", owner="eve")).total == 0
    assert await store.usage(owner="eve") == ()
    messages = [message for turn in before.turns for message in turn.messages]
    assert await find_messages(store, messages)
    assert await find_messages(store, messages, owner="eve") == ()
    assert [found.id for found in await store.list_family("demo")] == ["demo"]
    assert await store.list_family("demo", owner="eve") == ()
    assert not await store.cancel_turn("demo", "t1", owner="eve")
    assert await store.load("demo") == before


def test_every_operation_with_an_owner_is_tested():
    named = {
        name
        for name, operation in inspect.getmembers(ServerStore, inspect.isfunction)
        if "owner" in inspect.signature(operation).parameters
    }
    assert named == set(OF_ONE) | OF_ALL


def _texts(module: object) -> list[tuple[str, str]]:
    found = []
    for name, value in vars(module).items():
        if name.isupper():
            values = value.values() if isinstance(value, dict) else [value]
            found += [(name, text) for text in values if isinstance(text, str)]
    return [(name, text) for name, text in found if A_TABLE.search(text)]


@pytest.mark.parametrize("module", STATEMENTS, ids=lambda module: module.__name__)
def test_the_owner_is_part_of_every_lookup_and_never_changes(module):
    texts_of = _texts(module)
    assert texts_of
    for name, text in texts_of:
        assert "owner" in text or name.strip("_") in WITHOUT_OWNER, name
        assert not re.search(r"SET\s[^()]*\bowner\s*=[^=]*WHERE", text), name


async def test_a_hundred_items_of_one_second_are_paged_in_order(store):
    for number in range(100):
        await store.create(NewConversation(id=f"c{number:02}"))
    listed: list[str] = []
    cursor = None
    while True:
        page = await store.list_conversations(limit=7, cursor=cursor)
        listed += [item.id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == [f"c{number:02}" for number in reversed(range(100))]


async def test_deleting_archiving_and_branching_work_together(store):
    await say(store, "parent", "t1", "an apple")
    await store.branch("parent", NewConversation(id="fork"))
    await store.delete("parent")
    assert [hit.conversation for hit in (await store.search("apple")).items] == ["fork", "fork"]
    assert texts(await store.load("fork")) == ["an apple", "an apple?"]
    await store.update("fork", Changes(archived=True))
    assert (await store.list_conversations()).items == ()
    assert (await store.search("apple")).total == 0
    assert (await store.search("apple", archive_filter="archived")).total == 2
    assert texts(await store.load("fork")) == ["an apple", "an apple?"]


async def test_a_variant_moves_the_path_and_an_unknown_turn_stores_nothing(
    store,
):
    await say(store, "demo", "t1")
    await say_again(store, "demo", "t2", place="t1", text="another")
    found = await store.load("demo")
    assert [turn.id for turn in found.turns] == ["t2"]
    assert [turn.id for turn in found.variants] == ["t1"]
    with pytest.raises(TurnNotFoundError):
        await store.begin_turn("demo", start("t3", place="nothing"))
    assert await store.load("demo") == found


async def test_an_idempotency_key_replays_the_same_bytes(store):
    request = RequestKey(owner="local", key="hash-of-key", body="hash-of-body")
    claim = await store.claim_request(request, seconds=60)
    response = KeptResponse(status=200, headers={"a": "b"}, body=b"\x00\xffbytes")
    answered = msgspec.structs.replace(claim, headers=response.headers, body=response.body)
    await store.keep_response(answered, status=response.status, lifetime=60)
    assert await store.claim_request(request, seconds=60) == response


async def test_200_turns_run_in_parallel_without_locks(store):
    """A pool of five serves them; SQLite has one connection that writes, and one that reads."""
    everybody = asyncio.Event()
    begun = 0

    async def take(number: int) -> None:
        nonlocal begun
        ref = f"c{number}"
        lease = await store.begin_turn(ref, start("t1"), create=NewConversation(id=ref))
        begun += 1
        if begun == MANY:
            everybody.set()
        await everybody.wait()
        await store.finish_turn(lease, answered(lease))

    async with asyncio.timeout(60):
        await asyncio.gather(*(take(number) for number in range(MANY)))
    assert await store.count_conversations() == MANY


async def test_memory_is_bounded_with_200_parallel_readers(store):
    """They share few connections, so few whole conversations are read at one time."""
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    await store.finish_turn(lease, answered(lease, "word " * 200_000))

    async def read() -> None:
        assert (await store.load("demo")).message_count == 2

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await asyncio.gather(*(read() for _ in range(MANY)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < MANY / 2 * 1_000_000


async def test_hostile_keys_and_values_are_data(store):
    for number, text in enumerate(HOSTILE):
        ref = f"c{number}"
        await say(store, ref, "t1", f"apple {text} pear")
        await store.update(ref, Changes(title=text, metadata={text: {text: [text]}}))
        summary = await store.summary(ref)
        assert (summary.title, summary.metadata) == (text, {text: {text: [text]}})
        assert (await store.load(ref)).turns[0].messages[0].text == f"apple {text} pear"
        assert (await store.search(f"{text} apple")).total >= 2
    assert await store.count_conversations() == len(HOSTILE)


async def test_missed_events_are_read_once_in_order(store):
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    for number in range(1, 7):
        await store.add_events(lease, [StreamEvent(number=number, data=b"%d" % number)])
    seen = await store.events_after("demo", "t1", 2)
    assert [event.number for event in seen] == [3, 4, 5, 6]
    await store.add_events(lease, [StreamEvent(number=7, data=b"7")])
    rest = await store.events_after("demo", "t1", seen[-1].number)
    assert [event.data for event in rest] == [b"7"]


async def test_a_concurrent_summary_never_overwrites_a_turn(store):
    await say(store, "demo", "t1")
    before = (await store.load("demo")).turns
    await store.update("demo", Changes(title="Cats", metadata={"a": 1}))
    after = await store.load("demo")
    assert (after.turns, after.title) == (before, "Cats")
    await store.delete("demo")
    with pytest.raises(ConversationNotFoundError):
        await store.update("demo", Changes(title="late"))


async def test_stored_data_is_plain_json(tmp_path):
    store = SqliteStore(tmp_path / "cllm.db", clock=now)
    new = NewConversation(id="demo", metadata={"tags": ["é", 1, None]})
    lease = await store.begin_turn("demo", start("t1", str(uuid.uuid4())), create=new)
    await store.finish_turn(lease, answered(lease), opening=OPENING)
    await store.close()
    db = sqlite3.connect(tmp_path / "cllm.db")
    for query in (
        "SELECT metadata FROM conversations",
        "SELECT system FROM conversations",
        "SELECT system_record FROM conversations",
        "SELECT raw FROM messages",
    ):
        rows = db.execute(query).fetchall()
        assert rows
        assert all(isinstance(json.loads(value), dict) for (value,) in rows)
    db.close()
