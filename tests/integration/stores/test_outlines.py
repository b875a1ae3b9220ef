"""A conversation read in parts is the conversation of one moment, whatever is done to it then."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

import asyncpg
import msgspec
import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import ConversationNotFoundError, TurnNotFoundError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, OutlinedStore, Store, TurnPart
from cllm.engine.transfer import PagedConversation, open_paged
from cllm.stores.memory import MemoryStore
from cllm.stores.registry import open_store
from cllm.testing.store_harness import answered, failed, say, say_again, start

replace = msgspec.structs.replace


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = open_store(url, clock=lambda: datetime.now(UTC))
    yield opened
    await opened.close()


@pytest.fixture
def change(url: str) -> Callable[[str], None]:
    """Change something in the database behind the store's back."""

    def run(statement: str) -> None:
        scheme, _, path = url.partition(":")
        if scheme == "sqlite":
            with closing(sqlite3.connect(path)) as own:
                own.execute(statement)
                own.commit()
            return

        async def there() -> None:
            own = await asyncpg.connect(url)
            await own.execute(statement)
            await own.close()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, there()).result()

    return run


async def fill(store: Store, *, turns: int = 5) -> None:
    """A conversation with a variant, a turn of many messages, and one that failed."""
    for number in range(turns):
        await say(store, "demo", f"t{number}", f"question {number}")
    await say_again(store, "demo", "v1", place=f"t{turns - 1}", text="another answer")
    lease = await store.begin_turn("demo", start("long", "calls"))
    more = [plain_message("assistant", f"step {number}") for number in range(20)]
    turn = answered(lease)
    await store.finish_turn(lease, replace(turn, messages=(*turn.messages, *more)))
    lease = await store.begin_turn("demo", start("lost", "no answer"))
    await store.finish_turn(lease, failed(lease))


async def gathered(read: PagedConversation) -> StoredConversation:
    """The whole conversation, read in parts."""
    conversation = read.conversation

    async def whole(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        messages: dict[str, list[Message]] = {turn.id: [] for turn in turns}
        ended = []
        async for part in read.iter_messages(turns):
            messages[part.turn.id] += part.messages
            ended += [part.turn.id] if part.is_complete else []
        assert ended == list(messages)
        return tuple(replace(turn, messages=tuple(messages[turn.id])) for turn in turns)

    return replace(
        conversation,
        turns=await whole(conversation.turns),
        variants=await whole(conversation.variants),
    )


@pytest.mark.parametrize("most", [1, 100, 10**6])
async def test_the_parts_add_up_to_the_conversation(store: Store, most: int):
    await fill(store)
    assert isinstance(store, OutlinedStore)
    read = await open_paged(store, "demo", most=most)
    assert all(turn.messages == () for turn in read.conversation.turns)
    assert await gathered(read) == await store.load("demo")


async def test_many_turns_are_read_in_order(store: Store):
    await say(store, "demo", "t0")
    for number in range(1, 120):
        lease = await store.begin_turn("demo", start(f"t{number}", f"{number}?"), tail=0)
        await store.finish_turn(lease, answered(lease))
    read = await open_paged(store, "demo", most=2_000)
    assert await gathered(read) == await store.load("demo")


@pytest.mark.parametrize("most", [1, 10**6])
async def test_a_store_without_outlines_is_read_the_same_way(most: int):
    store = MemoryStore(clock=lambda: datetime.now(UTC))
    await fill(store)
    assert not isinstance(store, OutlinedStore)
    read = await open_paged(store, "demo", most=most)
    assert await gathered(read) == await store.load("demo")


@pytest.mark.parametrize("most", [1, 10**6])
@pytest.mark.parametrize("moved", ["ordinal + 1", "-5 - ordinal", "ordinal * 2"])
async def test_renumbered_messages_are_read_once(
    store: Store, change: Callable[[str], None], moved: str, most: int
):
    await say(store, "demo", "t1")
    await say(store, "demo", "t2")
    change("UPDATE messages SET ordinal = 1000 + (MOVED)".replace("MOVED", moved))
    change("UPDATE messages SET ordinal = ordinal - 1000")
    loaded = await store.load("demo")
    messages = {turn.id: set(turn.messages) for turn in loaded.turns}
    found = await gathered(await open_paged(store, "demo", most=most))
    assert {turn.id: set(turn.messages) for turn in found.turns} == messages
    assert found.message_count == loaded.message_count


async def test_later_messages_are_not_read(store: Store):
    await fill(store)
    lease = await store.begin_turn("demo", start("runs", "and now?"))
    before = await store.load("demo")
    read = await open_paged(store, "demo", most=50)
    await store.finish_turn(lease, answered(lease))
    await say(store, "demo", "later", "one thing more")
    await store.update("demo", Changes(title="Another"))
    assert await gathered(read) == before


async def test_choosing_a_variant_does_not_change_a_running_read(store: Store):
    await say(store, "demo", "t1")
    await say_again(store, "demo", "v1", place="t1", text="another answer")
    before = await store.load("demo")
    read = await open_paged(store, "demo", most=50)
    await store.choose_variant("demo", "t1")
    found = await gathered(read)
    assert found == before
    assert found.turns[0].id == "v1"


@pytest.mark.parametrize("first", [1, 8, 12])
async def test_reading_a_truncated_conversation_is_an_error(store: Store, first: int):
    await fill(store)
    read = await open_paged(store, "demo", most=50)
    await store.delete_from("demo", first)
    with pytest.raises(TurnNotFoundError):
        await gathered(read)


async def test_reading_a_deleted_conversation_is_an_error(store: Store):
    await fill(store)
    read = await open_paged(store, "demo", most=50)
    await store.delete("demo")
    with pytest.raises(TurnNotFoundError):
        await gathered(read)


async def test_other_owners_read_nothing(store: Store):
    await fill(store)
    assert isinstance(store, OutlinedStore)
    with pytest.raises(ConversationNotFoundError):
        await store.outline("demo", owner="ann")
    part = TurnPart(turn="t1")
    assert any(await store.messages_from("demo", [part], most=100))
    assert not any(await store.messages_from("demo", [part], most=100, owner="ann"))
