"""Numbers, texts and cursors chosen to do harm, on both engines: they end as data, or refused."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from cllm.core.errors import SequenceNotFoundError, UsageError
from cllm.core.message import Message
from cllm.core.ports import CallRecord, Changes, NewConversation, ServerStore
from cllm.core.reply import Usage
from cllm.stores.registry import open_store
from cllm.testing.store_contract import answered, say, start

BEYOND = 2**70
FORGED_CURSORS = (
    *(
        "0001-01-01T00:00:00+14:00~x",
        "9999-12-31T23:59:59-14:00~x",
        "2026-01-01~x",
        "~",
        "x" * 10**6,
    ),
    *("2026-01-01T00:00:00+00:00", "NaN~x", "2026-99-01T00:00:00+00:00~x"),
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[ServerStore]:
    opened = cast("ServerStore", open_store(url, clock=lambda: datetime.now(UTC)))
    await say(opened, "demo", "t1", "hello")
    yield opened
    await opened.close()


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("cursor", FORGED_CURSORS)
async def test_a_forged_cursor_is_refused_with_a_short_message(store: ServerStore, cursor: str):
    with pytest.raises(UsageError, match="is not a cursor") as caught:
        await store.list_conversations(cursor=cursor)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("last", ["' OR 1=1 --", "%", "_", "x" * 10_000, "\u202e"])
async def test_a_cursor_with_any_id_shows_no_other_owner(store: ServerStore, last: str):
    page = await store.list_conversations(
        owner="somebody", cursor=f"9000-01-01T00:00:00+00:00~{last}"
    )
    assert page.items == ()


async def test_a_search_page_has_limits(store: ServerStore):
    for limit in (0, -1):
        with pytest.raises(UsageError, match="request 1 or more"):
            await store.search("hello", limit=limit)
    assert len((await store.search("hello", limit=BEYOND, offset=-BEYOND)).items) == 2
    assert (await store.search("hello", offset=BEYOND)).items == ()


async def test_numbers_beyond_64_bits_are_refused_or_not_found(store: ServerStore):
    for sequence in (BEYOND, -BEYOND):
        with pytest.raises(SequenceNotFoundError):
            await store.delete_from("demo", sequence)
        with pytest.raises(SequenceNotFoundError):
            await store.branch("demo", NewConversation(id="b"), at=sequence)
        with pytest.raises(SequenceNotFoundError):
            await store.update("demo", Changes(pins=(sequence,)))
        with pytest.raises(UsageError, match="too large"):
            await store.events_after("demo", "t1", sequence)
        loaded = await store.load("demo", tail=sequence)
        assert loaded.message_count == 2
        page = await store.list_conversations(limit=BEYOND, offset=max(sequence, 0))
        assert len(page.items) == (0 if sequence > 0 else 1)
    call = CallRecord(model="m", usage=Usage(input=BEYOND), cost=1.0, ended_at=datetime.now(UTC))
    with pytest.raises(UsageError, match="too large"):
        await store.count_call(call)


async def test_usage_beyond_64_bits_releases_the_lease(store: ServerStore):
    lease = await store.begin_turn("demo", start("t2"))
    turn = msgspec.structs.replace(answered(lease), usage=Usage(input=BEYOND))
    with pytest.raises(UsageError, match="too large"):
        await store.finish_turn(lease, turn)
    await say(store, "demo", "t3")
    assert (await store.load("demo")).turns[-1].state == "complete"


@pytest.mark.parametrize(
    "metadata", [nested(1_000_000), {"n": object()}, {"a\0": 1}, {"a": "\ud800"}]
)
async def test_metadata_that_is_not_plain_json_is_refused(store: ServerStore, metadata: Any):
    with pytest.raises(UsageError):
        await store.create(NewConversation(id="m", metadata=metadata))
    with pytest.raises(UsageError):
        await store.update("demo", Changes(metadata=metadata))


async def test_large_numbers_in_metadata_are_unchanged(store: ServerStore):
    await store.create(NewConversation(id="m", metadata={"n": BEYOND}))
    assert (await store.load("m")).metadata == {"n": BEYOND}


async def test_deeply_nested_messages_are_stored(store: ServerStore):
    raw = b'{"role":"assistant","content":' + b"[" * 5000 + b"]" * 5000 + b"}"
    lease = await store.begin_turn("demo", start("t2"))
    deep = Message(role="assistant", raw=raw)
    turn = msgspec.structs.replace(answered(lease), messages=(*lease.turn.messages, deep))
    await store.finish_turn(lease, turn)
    assert (await store.load("demo")).messages[-1].raw == raw


async def test_a_very_long_title_is_stored(store: ServerStore):
    await store.update("demo", Changes(title="é" * 3_000_000))
    assert (await store.list_conversations()).items[0].title == "é" * 3_000_000


async def test_names_too_long_for_an_index_are_refused_or_stored(url: str, store: ServerStore):
    long = os.urandom(5000).hex()
    if url.startswith("sqlite:"):
        await store.create(NewConversation(id="demo"), owner=long)
        assert (await store.load("demo", owner=long)).owner == long
        return
    with pytest.raises(UsageError, match="shorter"):
        await store.create(NewConversation(id="demo"), owner=long)
    with pytest.raises(UsageError, match="shorter"):
        await store.begin_turn("demo", start(long))
    await say(store, "demo", "t2")
