"""The straight way out of a connection."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.flow_control import FlowControl

from cllm.server.connection import Outlet


class Transport:
    def __init__(self) -> None:
        self.closing = False
        self.written = b""

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.written += data


def made() -> tuple[Outlet, Transport, FlowControl]:
    transport = Transport()
    flow = FlowControl(cast("asyncio.Transport", transport))
    return Outlet(cast("Any", transport), flow), transport, flow


async def test_a_piece_is_written_as_a_chunk():
    outlet, transport, _ = made()

    outlet.write(b"data: " + b"x" * 20)

    assert transport.written == b"1a\r\ndata: xxxxxxxxxxxxxxxxxxxx\r\n"


async def test_it_is_closed_while_the_client_has_not_read_enough():
    outlet, _, flow = made()
    assert outlet.is_open

    flow.pause_writing()
    assert not outlet.is_open
    flow.resume_writing()

    assert outlet.is_open


async def test_it_is_closed_once_the_client_is_gone():
    outlet, transport, _ = made()

    transport.closing = True

    assert not outlet.is_open
