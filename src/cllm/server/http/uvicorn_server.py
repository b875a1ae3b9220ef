"""The listening socket and uvicorn's server, with graceful shutdown.

On a signal it rejects new requests, waits for running turns, and cancels and saves the rest. One
process and each of several workers run the same code.
"""

import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from cllm.core.errors import CllmError, UsageError
from cllm.logs import log
from cllm.server.http.app import build_app
from cllm.server.http.http_protocol import HttpProtocol
from cllm.server.http.supervisor import Supervisor
from cllm.server.state import (
    ServerState,
    check_public_access,
    check_store,
    check_trusted_proxies,
    open_server_state,
)
from cllm.settings.load import Settings, server_store
from cllm.settings.sections import ServerSettings

BACKLOG = 2048
SEND_BUFFER_BYTES = 128 * 1024
GRACE_SECONDS = 0.5
"""Time that clients have to read the end of their responses after `stop_seconds`."""
MAX_OPEN_FILES = 65536
TOO_MANY_FILES = (
    "too many open files: new connections are closed; raise the limit of open files, in systemd "
    "LimitNOFILE"
)
OPEN_FILES_SECONDS = 10
"""Between two checks for a free file descriptor, and so between two warnings."""
CERTIFICATE_END, KEY_END = b"CERTIFICATE-----", b"PRIVATE KEY-----"
# A request creates few reference cycles.
GC_THRESHOLD = 10_000
# For mallopt(3): memory of longer texts returns to the system when freed.
M_MMAP_THRESHOLD = -3
MMAP_BYTES = 256 * 1024

OnListen = Callable[[str], None]


def listen(settings: Settings, *, prepare: Callable[[], None], on_listen: OnListen) -> None:
    """Serve until a signal stops the process."""
    server_store(settings)
    check_public_access(settings.server)
    check_trusted_proxies(settings.server)
    raise_open_file_limit()
    server = settings.server
    tls = load_certificate(server)
    listener = bind(server.host, server.port)
    with listener:
        on_start = partial(on_listen, format_address(listener, is_tls=tls is not None))
        prepare()
        if server.workers > 1:
            serve = partial(_serve_as_worker, settings, tls, listener)
            supervisor = Supervisor(
                serve,
                listener=listener,
                workers=server.workers,
                stop_seconds=server.limits.stop_seconds,
                on_start=on_start,
            )
            supervisor.run()
        else:
            _build_server(settings, tls, on_start).run(sockets=[listener])


def _serve_as_worker(
    settings: Settings,
    tls: ssl.SSLContext | None,
    listener: socket.socket,
    on_start: Callable[[], None],
    lifeline: int,
) -> None:
    _build_server(settings, tls, on_start, lifeline=lifeline).run(sockets=[listener])


def _build_server(
    settings: Settings,
    tls: ssl.SSLContext | None,
    on_start: Callable[[], None],
    *,
    lifeline: int | None = None,
) -> "_Server":
    state = open_server_state(settings)
    config = _build_config(build_app(state), settings, tls)
    return _Server(config, state, on_start=on_start, lifeline=lifeline)


def raise_open_file_limit() -> None:
    """Raise the soft limit: each connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


async def warn_if_too_many_files() -> None:
    """Log a warning if no file descriptor is free: libuv then closes new connections silently."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            log("server", logging.WARNING, TOO_MANY_FILES, limit=limit)


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        # create_server() replaces this error, whose numbers are those of other errors on macOS.
        is_unknown = isinstance(error.__context__, socket.gaierror)
        reason = os.strerror(number).lower() if number else str(error)
        if is_unknown:
            reason = "the name cannot be resolved"
        is_address = is_unknown or number == errno.EADDRNOTAVAIL
        advice = "address with --host" if is_address else "port with --port"
        raise UsageError(
            f"Cannot listen on {host}, port {port} ({reason}); choose another {advice}."
        ) from error
    # Connections inherit it; the default is several megabytes.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


def load_certificate(server: ServerSettings) -> ssl.SSLContext | None:
    """Return the context of HTTPS, or None for HTTP."""
    if server.tls_cert is None:
        if server.tls_key is not None:
            raise UsageError("--tls-key needs --tls-cert, the certificate of the key.")
        return None
    certificate = Path(server.tls_cert).expanduser()
    key = certificate if server.tls_key is None else Path(server.tls_key).expanduser()
    texts = _read_tls_file(certificate), _read_tls_file(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    has_password = False

    def read_password() -> str:
        # Without this function OpenSSL would ask for the password on the terminal.
        nonlocal has_password
        has_password = True
        return ""

    try:
        context.load_cert_chain(certificate, key, password=read_password)
    except ssl.SSLError as error:
        if CERTIFICATE_END not in texts[0]:
            problem = f"{certificate} has no certificate in PEM format"
        elif KEY_END not in texts[1]:
            problem = f"{key} has no private key in PEM format"
        elif has_password:
            problem = f"the private key in {key} has a password"
        elif error.reason == "KEY_VALUES_MISMATCH":
            problem = f"the private key in {key} belongs to another certificate"
        else:
            problem = "one of them is damaged"
        raise UsageError(
            f"The certificate {certificate} and its key cannot be used ({problem}); use PEM "
            "files that belong together, and a key without a password."
        ) from error
    return context


def _read_tls_file(path: Path) -> bytes:
    try:
        # Reading a pipe could wait forever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} is not a regular file; use a file in PEM format.")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"Cannot read {path} ({os.strerror(error.errno or 0).lower()}); check the path and "
            "its permissions."
        ) from error


def format_address(listener: socket.socket, *, is_tls: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if is_tls else 'http'}://{name}:{port}"


def _build_config(
    app: ASGIApp, settings: Settings, tls: ssl.SSLContext | None = None
) -> uvicorn.Config:
    limits, proxies = settings.server.limits, settings.server.trusted_proxies
    # uvicorn calls it like a class.
    protocol = partial(HttpProtocol, head_bytes=limits.head_bytes, head_seconds=limits.head_seconds)
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        backlog=BACKLOG,
        callback_notify=warn_if_too_many_files,
        timeout_notify=OPEN_FILES_SECONDS,
        # uvicorn passes it to asyncio.wait_for.
        timeout_graceful_shutdown=cast("int", limits.stop_seconds + GRACE_SECONDS),
    )


def _lower_mmap_threshold() -> None:
    """Make glibc return freed long texts to the system, against fragmentation."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)


class _Server(uvicorn.Server):
    """`lifeline`: a descriptor at whose end of file the server stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        *,
        on_start: Callable[[], None],
        lifeline: int | None,
    ) -> None:
        super().__init__(config)
        self._state = state
        self._on_start = on_start
        self._lifeline = lifeline

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await check_store(self._state.store)
        except CllmError:
            await self._state.app.close()
            raise
        await super().startup(sockets)
        if self._lifeline is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._lifeline, self._stop_without_parent, loop, self._lifeline)
        # The garbage collector can skip the objects loaded so far.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        _lower_mmap_threshold()
        self._on_start()

    def _stop_without_parent(self, loop: asyncio.AbstractEventLoop, lifeline: int) -> None:
        loop.remove_reader(lifeline)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        limit = self._state.settings.limits.stop_seconds
        stop = asyncio.create_task(self._state.turns.stop(within=limit))
        await super().shutdown(sockets)
        await stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Exit with code 0 on a signal, which uvicorn would raise again."""
        previous = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
