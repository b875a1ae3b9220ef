"""The log of a stream's events: writes in order, one at a time, and in bounded batches."""

import asyncio
from datetime import UTC, datetime

from cllm.core.ports import NewConversation, TurnStart
from cllm.server.turns.event_log import MAX_UNSAVED_BYTES, DelayedWriter, EventLog
from cllm.stores.memory import MemoryStore


class SlowWriter(DelayedWriter):
    """Counts the writes that run at once; each waits until it may end."""

    def __init__(self) -> None:
        super().__init__(seconds=0)
        self.running = 0
        self.most_running = 0
        self.ended = 0
        self.may_end = asyncio.Event()

    async def _write(self) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await self.may_end.wait()
        self.running -= 1
        self.ended += 1

    async def begin(self) -> None:
        """Schedule a write and let its timer end."""
        self._schedule()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_write_waits_for_the_one_before():
    writer = SlowWriter()
    await writer.begin()
    await writer.begin()
    writer.may_end.set()
    await writer.close()

    assert (writer.most_running, writer.ended) == (1, 2)


async def test_closing_waits_for_the_write_that_runs():
    writer = SlowWriter()
    await writer.begin()
    assert writer.running == 1
    writer.may_end.set()

    await writer.close()

    assert writer.ended == 1


async def test_too_many_bytes_are_saved_before_more_are_taken():
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
