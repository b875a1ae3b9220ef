"""The queue between a turn task and its response."""

import asyncio

from cllm.server.turns.event_log import EventQueue


def make_queue(max_bytes: int = 100) -> EventQueue:
    return EventQueue(max_bytes)


async def test_the_reader_gets_everything_at_once():
    queue = make_queue()
    queue.put(b"one ")
    queue.put(b"two")

    assert queue.take() == b"one two"


async def test_a_waiting_reader_wakes_up():
    queue = make_queue()
    reading = asyncio.create_task(queue.wait_until_readable(5))
    await asyncio.sleep(0)

    queue.put(b"late")

    assert await reading
    assert queue.take() == b"late"


async def test_a_reader_waits_no_longer_than_it_says():
    assert not await make_queue().wait_until_readable(0)


async def test_a_reader_that_is_cancelled_loses_nothing():
    queue = make_queue()
    reading = asyncio.create_task(queue.wait_until_readable(5))
    await asyncio.sleep(0)
    queue.put(b"kept")
    reading.cancel()
    await asyncio.wait([reading])

    queue.put(b" and more")

    assert queue.take() == b"kept and more"


async def test_after_the_last_bytes_a_closed_queue_gives_none():
    queue = make_queue()
    queue.put(b"last")
    queue.close()

    assert queue.take() == b"last"
    assert queue.take() == b""
    assert queue.take() == b""


async def test_a_closed_queue_ignores_more_bytes():
    queue = make_queue()
    queue.close()
    queue.put(b"too late")

    assert queue.take() == b""


async def test_a_writer_waits_while_the_queue_is_full():
    queue = make_queue(max_bytes=3)
    queue.put(b"full")
    waiting = asyncio.create_task(queue.wait_for_room())
    await asyncio.sleep(0)
    assert queue.is_full
    assert not waiting.done()

    queue.take()

    await asyncio.wait_for(waiting, 5)
    assert not queue.is_full


async def test_an_abandoned_queue_wakes_the_writer_and_holds_nothing():
    queue = make_queue(max_bytes=3)
    queue.put(b"full")
    waiting = asyncio.create_task(queue.wait_for_room())
    await asyncio.sleep(0)

    queue.abandon()

    await asyncio.wait_for(waiting, 5)
    queue.put(b"to nobody")
    assert queue.take() == b""
