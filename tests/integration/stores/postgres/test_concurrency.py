"""Many turns at once, much in one conversation, several stores on one database."""

import asyncio
import time

import msgspec
import pytest

from cllm.core.errors import ConversationBusyError
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_contract import answered, say, start, texts

from .conftest import Open

THINKING = 0.5


async def test_a_pool_of_5_serves_200_parallel_turns(open_store: Open):
    store = await open_store("&pool_size=5")
    await store.create(NewConversation(id="first"))
    running = 0
    most = 0

    async def turn(number: int) -> None:
        nonlocal running, most
        ref = f"c{number}"
        lease = await store.begin_turn(ref, start("t1"), create=NewConversation(id=ref))
        running += 1
        most = max(most, running)
        await asyncio.sleep(THINKING)
        await store.renew_lease(lease)
        running -= 1
        await store.finish_turn(lease, answered(lease))

    await asyncio.gather(*(turn(number) for number in range(200)))
    assert most > 100
    pool = store._connections._pool
    assert pool is not None
    assert pool.get_size() <= 5
    assert pool.get_idle_size() == pool.get_size()
    assert await store.count_conversations() == 201


async def test_a_running_turn_uses_no_connection(open_store: Open):
    store = await open_store("&pool_size=1")
    leases = [
        await store.begin_turn(ref, start("t1"), create=NewConversation(id=ref))
        for ref in ("one", "two", "three")
    ]
    assert (await store.load("two")).turns[0].state == "running"
    for lease in leases:
        await store.finish_turn(lease, answered(lease))


async def test_turns_of_many_stores_in_one_conversation_never_interleave(open_store: Open):
    stores = [await open_store("&pool_size=2") for _ in range(4)]
    await stores[0].create(NewConversation(id="demo"))

    async def talk(store: PostgresStore, name: str) -> None:
        for number in range(8):
            question = f"{name} {number}"
            turn_start = start(f"{name}-{number}", question, visible=number % 2 == 0)
            lease = await store.begin_turn("demo", turn_start, wait=None)
            await store.finish_turn(lease, answered(lease, f"{question}?"))

    await asyncio.gather(*(talk(store, f"s{at}") for at, store in enumerate(stores)))
    conversation_texts = texts(await stores[0].load("demo"))
    assert len(conversation_texts) == 64
    assert all(
        answer == f"{question}?"
        for question, answer in zip(conversation_texts[::2], conversation_texts[1::2], strict=True)
    )
    for at in range(4):
        own = [text for text in conversation_texts[::2] if text.startswith(f"s{at}")]
        assert own == [f"s{at} {number}" for number in range(8)]


async def test_one_of_many_first_turns_creates_the_conversation(open_store: Open):
    stores = [await open_store("&pool_size=2") for _ in range(4)]

    async def first(store: PostgresStore, name: str, *, visible: bool) -> bool:
        new = NewConversation(id="demo", name="by-name")
        turn_start = start(name, visible=visible)
        lease = await store.begin_turn("by-name", turn_start, create=new, wait=None)
        await store.finish_turn(lease, answered(lease))
        return lease.created

    created = await asyncio.gather(
        *(first(stores[at % 4], f"t{at}", visible=at % 2 == 0) for at in range(12))
    )
    assert sum(created) == 1
    assert len((await stores[0].load("demo")).turns) == 12


async def test_a_busy_error_has_the_id_of_the_running_turn(store: PostgresStore):
    await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    with pytest.raises(ConversationBusyError) as caught:
        await store.begin_turn("demo", start("t2"))
    assert caught.value.turn_id == "t1"


async def test_50_megabytes_in_one_conversation_do_not_slow_another(store: PostgresStore):
    await say(store, "small", "t0")
    alone = await _time_of_turns(store, "small", "a")
    lease = await store.begin_turn("large", start("t1"), create=NewConversation(id="large"))
    words = " ".join(f"word{number}" for number in range(100_000))
    large = plain_message("assistant", (words * 60)[:50_000_000])
    turn = msgspec.structs.replace(
        lease.turn, state="complete", messages=(*lease.turn.messages, large)
    )
    await store.finish_turn(lease, turn)
    assert await _time_of_turns(store, "small", "b") < 3 * alone + 0.05
    assert (await store.load("large")).turns[0].messages[1] == large


async def _time_of_turns(store: PostgresStore, ref: str, name: str) -> float:
    taken = []
    for number in range(10):
        began = time.perf_counter()
        await say(store, ref, f"{name}{number}")
        taken.append(time.perf_counter() - began)
    return sorted(taken)[len(taken) // 2]


async def test_a_cancelled_start_releases_the_conversation(store: PostgresStore):
    await say(store, "demo", "t0")
    for number in range(1, 30):
        task = asyncio.create_task(store.begin_turn("demo", start(f"c{number}")))
        await asyncio.sleep(0.0002 * number)
        task.cancel()
        try:
            lease = await task
        except asyncio.CancelledError:
            continue
        await store.drop_turn(lease)
    await say(store, "demo", "last")
    assert [turn.id for turn in (await store.load("demo")).turns] == ["t0", "last"]


async def test_the_terms_of_a_long_text_of_rare_characters_fit(store: PostgresStore):
    text = "".join(chr(0x20000 + number % 40_000) for number in range(300_000))
    await say(store, "demo", "t1", text)
    assert (await store.search(text[:2])).total == 2
