"""The pipe between a turn and its client."""

import asyncio

from cllm.server.deadlines import Deadlines
from cllm.server.pipe import Pipe


def make_pipe(*, silence: float = 60, most: int = 100) -> Pipe:
    return Pipe(silence=Deadlines(silence), sign=b": alive\n\n", most=most)


async def test_the_reader_takes_all_there_is_at_once():
    pipe = make_pipe()
    pipe.push(b"one ")
    pipe.push(b"two")

    assert await pipe.take() == b"one two"


async def test_a_waiting_reader_is_woken():
    pipe = make_pipe()
    taking = asyncio.create_task(pipe.take())
    await asyncio.sleep(0)

    pipe.push(b"late")

    assert await taking == b"late"


async def test_at_the_end_there_is_nothing_to_take():
    pipe = make_pipe()
    pipe.push(b"last")
    pipe.end()

    assert await pipe.take() == b"last"
    assert await pipe.take() == b""


async def test_nothing_is_added_after_the_end():
    pipe = make_pipe()
    pipe.end()
    pipe.push(b"too late")

    assert await pipe.take() == b""


async def test_in_silence_the_reader_gets_a_sign_of_life():
    pipe = make_pipe(silence=0.01)

    assert await asyncio.wait_for(pipe.take(), 5) == b": alive\n\n"


async def test_a_writer_waits_while_the_pipe_is_full():
    pipe = make_pipe(most=3)
    pipe.push(b"full")
    waiting = asyncio.create_task(pipe.drained())
    await asyncio.sleep(0)
    assert pipe.is_full
    assert not waiting.done()

    await pipe.take()

    await asyncio.wait_for(waiting, 5)
    assert not pipe.is_full


async def test_a_reader_that_leaves_frees_the_writer_and_the_memory():
    pipe = make_pipe(most=3)
    pipe.push(b"full")
    waiting = asyncio.create_task(pipe.drained())
    await asyncio.sleep(0)

    pipe.leave()

    await asyncio.wait_for(waiting, 5)
    pipe.push(b"to nobody")
    assert await pipe.take() == b""


class Outlet:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.is_open = True
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


async def test_what_comes_while_the_reader_waits_is_out_at_once_and_wakes_nobody():
    pipe, outlet = make_pipe(), Outlet()
    pipe.outlet = outlet
    taking = asyncio.create_task(pipe.take())
    await asyncio.sleep(0)
    assert pipe.is_straight

    pipe.push(b"one ")
    pipe.push(b"two")
    await asyncio.sleep(0)

    assert outlet.written == [b"one ", b"two"]
    assert not taking.done()
    pipe.end()
    assert await taking == b""


async def test_nothing_overtakes_what_the_reader_has_not_taken_yet():
    pipe, outlet = make_pipe(), Outlet()
    pipe.outlet = outlet
    pipe.push(b"before it waits ")
    assert not pipe.is_straight
    assert await pipe.take() == b"before it waits "
    taking = asyncio.create_task(pipe.take())
    await asyncio.sleep(0)

    outlet.is_open = False
    pipe.push(b"while it is closed ")
    outlet.is_open = True
    pipe.push(b"before the reader ran")

    assert await taking == b"while it is closed before the reader ran"
    assert outlet.written == []


async def test_a_closed_outlet_fills_the_pipe():
    pipe, outlet = make_pipe(most=3), Outlet()
    pipe.outlet, outlet.is_open = outlet, False
    taking = asyncio.create_task(pipe.take())
    await asyncio.sleep(0)

    pipe.push(b"full")

    assert pipe.is_full
    assert await taking == b"full"


async def test_a_reader_that_left_is_written_nothing():
    pipe, outlet = make_pipe(), Outlet()
    pipe.outlet = outlet
    taking = asyncio.create_task(pipe.take())
    await asyncio.sleep(0)

    pipe.leave()
    pipe.push(b"to nobody")

    assert not pipe.is_straight
    assert await taking == b""
    assert outlet.written == []


async def test_silence_is_counted_from_what_came_last():
    pipe, outlet = make_pipe(silence=0.3), Outlet()
    pipe.outlet = outlet
    taking = asyncio.create_task(pipe.take())
    for _ in range(10):
        await asyncio.sleep(0.05)
        pipe.push(b"word ")
    assert outlet.written == [b"word "] * 10

    await asyncio.sleep(0.15)
    assert len(outlet.written) == 10
    await asyncio.sleep(1)
    signs = outlet.written[10:]

    assert signs
    assert set(signs) == {b": alive\n\n"}
    assert len(signs) <= 4
    pipe.end()
    assert await taking == b""
