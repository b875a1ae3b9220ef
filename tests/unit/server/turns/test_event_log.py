"""The event log (writes in order, one at a time, in bounded batches) and the event queue."""

import asyncio
from datetime import UTC, datetime

from cllm.core.ports import NewConversation, TurnStart
from cllm.server.turns.event_log import MAX_UNSAVED_BYTES, DelayedWriter, EventLog, EventQueue
from cllm.stores.memory import MemoryStore


class SlowWriter(DelayedWriter):
    """Counts concurrent writes; each waits until it may end."""

    def __init__(self) -> None:
        super().__init__(seconds=0)
        self.running = 0
        self.max_running = 0
        self.completed = 0
        self.may_end = asyncio.Event()

    async def _write(self) -> None:
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        await self.may_end.wait()
        self.running -= 1
        self.completed += 1

    async def start(self) -> None:
        """Schedule a write and let its timer end."""
        self._schedule()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_write_waits_for_the_previous_one():
    writer = SlowWriter()
    await writer.start()
    await writer.start()
    writer.may_end.set()
    await writer.close()

    assert (writer.max_running, writer.completed) == (1, 2)


async def test_close_waits_for_the_running_write():
    writer = SlowWriter()
    await writer.start()
    assert writer.running == 1
    writer.may_end.set()

    await writer.close()

    assert writer.completed == 1


async def test_the_log_saves_events_when_too_many_bytes_are_pending():
    store = MemoryStore(clock=lambda: datetime.now(UTC))
    start = TurnStart(id="t1", messages=())
    lease = await store.begin_turn("c1", start, create=NewConversation(id="c1"))
    log = EventLog(store, lease, on_save=lambda _: None)
    log.add(b"data: short\n\n")
    await log.make_room()
    assert await store.events_after("c1", "t1", 0) == ()

    log.add(b"x" * MAX_UNSAVED_BYTES)
    await log.make_room()

    assert [event.number for event in await store.events_after("c1", "t1", 0)] == [1, 2]
    await log.close()


async def test_the_log_reports_a_lost_lease():
    store = MemoryStore(clock=lambda: datetime.now(UTC))
    start = TurnStart(id="t1", messages=())
    lease = await store.begin_turn("c1", start, create=NewConversation(id="c1"))
    losses: list[str] = []
    log = EventLog(store, lease, on_save=lambda _: None, on_lost=lambda: losses.append("lost"))
    log.add(b"data: one\n\n")
    await log.flush()
    assert not losses

    assert await store.cancel_turn("c1", "t1")
    log.add(b"data: two\n\n")
    await log.flush()

    assert losses == ["lost"]
    assert len(await store.events_after("c1", "t1", 0)) == 1


def make_queue(max_bytes: int = 100) -> EventQueue:
    return EventQueue(max_bytes)


async def test_the_reader_takes_all_pending_bytes():
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


async def test_the_reader_stops_waiting_at_the_timeout():
    assert not await make_queue().wait_until_readable(0)


async def test_a_cancelled_reader_loses_no_bytes():
    queue = make_queue()
    reading = asyncio.create_task(queue.wait_until_readable(5))
    await asyncio.sleep(0)
    queue.put(b"first")
    reading.cancel()
    await asyncio.wait([reading])

    queue.put(b" and more")

    assert queue.take() == b"first and more"


async def test_a_closed_queue_is_empty_after_its_last_bytes():
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


async def test_an_abandoned_queue_wakes_the_writer_and_stays_empty():
    queue = make_queue(max_bytes=3)
    queue.put(b"full")
    waiting = asyncio.create_task(queue.wait_for_room())
    await asyncio.sleep(0)

    queue.abandon()

    await asyncio.wait_for(waiting, 5)
    queue.put(b"ignored")
    assert queue.take() == b""
