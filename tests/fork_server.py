"""A process that imports modules and then forks into commands; `tests/forking.py` sends requests.

Run as a script. Arguments: the descriptor of a listening socket, then what to import (`module`) or
to call (`module:function`). It ends when its standard input does, so that it never outlives the
tests. A fork takes on all that a command is started with (arguments, environment, folder, streams,
signals) and then runs `cllm` as `python -m` does, or a program as `python -c` does.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
import types
from typing import Any

LENGTH = 8
"""The size of the length prefix of a request, which is sent with three descriptors."""
STREAMS = 3
PEER = struct.Struct("3i")
"""A process, its user and its group."""


def serve(listener: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for every request; return the request in the fork, and None at the end."""
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        if not is_same_user(connection, os.getuid()):
            connection.close()
            continue
        try:
            request, streams = receive(connection)
        except EOFError:  # the client has ended
            connection.close()
            continue
        attendant = os.fork()
        if attendant == 0:
            listener.close()
            return supervise(connection, request, streams)
        connection.close()
        for descriptor in streams:
            os.close(descriptor)


def is_same_user(connection: socket.socket, user: int) -> bool:
    """Whether the client is this user: every user can see the name of the socket."""
    asking = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    _, uid, _ = PEER.unpack(asking)
    return bool(uid == user)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive a request and its streams; an error if it is incomplete."""
    head, streams, _, _ = socket.recv_fds(connection, LENGTH, STREAMS)
    left = int.from_bytes(head, "big")
    parts = []
    while left:
        parts.append(connection.recv(min(left, 65536)))
        left -= len(parts[-1])
        if not parts[-1]:
            break
    if left or len(head) < LENGTH or len(streams) < STREAMS:
        for descriptor in streams:
            os.close(descriptor)
        raise EOFError("The request ended in its middle.")
    return json.loads(b"".join(parts)), streams


def supervise(
    connection: socket.socket, request: dict[str, Any], streams: list[int]
) -> tuple[dict[str, Any], list[int]]:
    """Fork again; the parent reports the process ID and the exit code of the child."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command == 0:
        connection.close()
        return request, streams
    for descriptor in streams:
        os.close(descriptor)
    with contextlib.suppress(OSError):  # nobody waits any more
        connection.sendall(command.to_bytes(LENGTH, "big"))
    _, status = os.waitpid(command, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        connection.sendall(code.to_bytes(LENGTH, "big", signed=True))
    os._exit(0)


def apply_request(request: dict[str, Any], streams: list[int]) -> None:
    """Apply arguments, environment, directory and streams of the request."""
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
    os.closerange(3, max(streams) + 1)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    if request["memory"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"],) * 2)
    os.chdir(request["directory"])
    sys.path[0] = os.getcwd()  # noqa: PTH109
    sys.argv = ["-c" if request["source"] is not None else "cllm", *request["arguments"]]
    for target, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = reopen_stream(target, getattr(sys, name), mode)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def reopen_stream(descriptor: int, like: io.TextIOWrapper, mode: str) -> io.TextIOWrapper:
    """Reopen a standard stream as the interpreter does."""
    return io.TextIOWrapper(
        io.open(descriptor, f"{mode}b", closefd=False),  # noqa: UP020
        encoding=like.encoding,
        errors=like.errors,
        newline="\n",
        line_buffering=descriptor == 2,
    )


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    sys.path[0] = ""
    for name in sys.argv[2:]:
        if ":" in name:
            pkgutil.resolve_name(name)()
        else:
            importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    to_run = serve(listener)
    if to_run is not None:
        request, _ = to_run
        apply_request(*to_run)
        run(request["source"])


def run(source: str | None) -> None:
    """Run `cllm`, or the source of a program."""
    if source is not None:
        program = types.ModuleType("__main__")
        sys.modules["__main__"] = program
        exec(compile(source, "<string>", "exec"), program.__dict__)  # noqa: S102
        return
    code: object = None
    try:
        runpy.run_module("cllm", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    exit_process(code)


def exit_process(code: object) -> None:
    """Exit like the interpreter, without module cleanup, which takes longer than a fork.

    What it would print then is printed: of garbage here, and of a stream that cannot be flushed by
    the interpreter itself.
    """
    if code is None or isinstance(code, int):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        gc.collect()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit((code or 0) & 0xFF)
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
