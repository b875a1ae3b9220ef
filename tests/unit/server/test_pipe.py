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
