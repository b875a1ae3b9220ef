"""The server listens: a socket, uvicorn, and an end that loses nothing.

Asked to stop, it takes no more requests, lets running turns end for a while, and keeps the rest as
incomplete.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from cllm.core.errors import UsageError
from cllm.server.http.app import build
from cllm.server.http.connection import Connection
from cllm.server.serving import Serving, check_reach, open_serving
from cllm.settings.load import Settings, server_store

BACKLOG = 2048
UNREAD_BYTES = 128 * 1024
GRACE = 1.0
MOST_OPEN = 65536
# A request leaves few cycles behind, so that they need not be looked for after every few of them.
OBJECTS_LOOKED_THROUGH = 10_000
M_MMAP_THRESHOLD = -3
LONG_TEXT = 256 * 1024

Say = Callable[[str], None]


def listen(settings: Settings, *, prepare: Callable[[], None], say: Say, worker: str) -> None:
    """Serve until the process is asked to stop.

    Once it is clear that it can, `prepare` is called, and `say` with the address when it listens.
    `worker` names, as `module:function`, what makes the application in each of several processes.
    """
    server_store(settings)
    check_reach(settings.server)
    allow_connections()
    server = settings.server
    bound = bind(server.host, server.port)
    with bound:
        address = shown_address(bound)
        prepare()
        if server.workers > 1:
            say(address)
            Multiprocess(_config(worker, settings), [bound]).run()
            return
        serving = open_serving(settings)
        config = _config(build(serving), settings)
        _Server(config, serving, began=lambda: say(address)).run(sockets=[bound])


def allow_connections() -> None:
    """Let this process have as many connections as it may: most systems begin with a thousand."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN if most == resource.RLIM_INFINITY else min(most, MOST_OPEN)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def bind(host: str, port: int) -> socket.socket:
    """A socket that nobody else listens on; UsageError if there is none to be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number).lower() if number and number > 0 else str(error)
        raise UsageError(
            f"Cannot listen on {host}, port {port} ({reason}); choose another with --port."
        ) from error
    # Each connection has it from here. The system would hold megabytes for a client that is slow.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD_BYTES)
    return bound


def shown_address(bound: socket.socket) -> str:
    """Where clients find the server."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: ASGIApp | str, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.server.workers,
        loop="uvloop",
        http=_connection(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(settings.server.limits.stop_seconds + 2 * GRACE),
    )


def _connection(settings: Settings) -> type[asyncio.Protocol]:
    """What makes a connection, which uvicorn calls as if it were a class."""
    limits = settings.server.limits
    made = partial(Connection, head_bytes=limits.head_bytes, head_seconds=limits.head_seconds)
    return cast("type[asyncio.Protocol]", made)


def give_long_texts_back() -> None:
    """Have the memory of a long text given back to the system as soon as nobody has the text.

    Else the C library, after the first of them, keeps it in pieces that the next may not fit into.
    Where the library is another one, nothing is done.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LONG_TEXT)


class _Server(uvicorn.Server):
    """Uvicorn's server, which says that it began and sees running turns to their end."""

    def __init__(
        self, config: uvicorn.Config, serving: Serving, *, began: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._serving = serving
        self._began = began

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What is loaded by now stays; looking through it again and again would cost every request.
        gc.collect()
        gc.freeze()
        gc.set_threshold(OBJECTS_LOOKED_THROUGH)
        give_long_texts_back()
        self._began()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        limit = self._serving.settings.limits.stop_seconds
        stopping = asyncio.create_task(self._serving.turns.stop(within=limit))
        await super().shutdown(sockets)
        await stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop when asked to, and end as a command that did what it was told."""
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
