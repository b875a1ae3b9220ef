"""One connection to a provider: it reads no more than it has room for, and never stops for good."""

import asyncio

import pytest

from cllm.providers.http_line import MOST_WAITING, Line

LONG = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (10 * MOST_WAITING)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = 16 * 1024


class Wire(asyncio.Transport):
    """Knows whether the line wants to read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True

    def write(self, _data: object) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def line(wire: Wire) -> Line:
    """A line that waits for an answer."""
    made = Line()
    made.connection_made(wire)
    made.send(b"POST / HTTP/1.1\r\n\r\n")
    return made


def read(line: Line, wire: Wire, data: bytes) -> int:
    """How much of the data is read before the line wants no more."""
    for at in range(0, len(data), PIECE):
        if not wire.is_read:
            return at
        line.data_received(data[at : at + PIECE])
    return len(data)


async def test_the_provider_waits_while_much_of_the_body_is_not_taken(line: Line, wire: Wire):
    body = b"x" * (4 * MOST_WAITING)
    line.data_received(LONG)

    first = read(line, wire, body)
    taken = line.taken()
    second = read(line, wire, body)

    assert MOST_WAITING - len(LONG) <= first <= MOST_WAITING + PIECE
    assert len(taken) == first
    assert MOST_WAITING <= second <= MOST_WAITING + PIECE
    assert not wire.is_read


async def test_a_body_that_is_taken_as_it_comes_is_never_waited_with(line: Line, wire: Wire):
    body = b"x" * (4 * MOST_WAITING)
    line.data_received(LONG)
    got = bytearray()

    def take(piece: bytes) -> bool:
        got.extend(piece)
        return True

    giving = asyncio.create_task(line.give(take, 5))
    await asyncio.sleep(0)
    assert read(line, wire, body) == len(body)
    line.connection_lost(None)
    await giving

    assert got == body
    assert wire.is_read


async def test_much_that_is_no_body_does_not_stop_the_reading(line: Line, wire: Wire):
    said = b"2;" + b"x" * (2 * MOST_WAITING) + b"\r\nok\r\n0\r\n\r\n"
    line.data_received(CHUNKED)

    assert read(line, wire, said) == len(said)
    assert await line.more(5) == b"ok"
    assert line.is_whole
