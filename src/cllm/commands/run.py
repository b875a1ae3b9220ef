"""Context commands run in a shell, all at once, each in a process group of its own.

A command that takes too long, says too much, or whose reader goes away is ended with everything it
started. Decides nothing about what the output is for.
"""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from cllm.core.context import CommandOutcome, ContextCommand, OutcomeState

MAX_OUTPUT_BYTES = 256 * 1024
CHUNK = 64 * 1024
LOOK_EVERY = 0.05
GRACE = 0.2


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where commands run."""

    directory: Path
    environment: Mapping[str, str]


async def run_commands(
    commands: Sequence[ContextCommand], surroundings: Surroundings
) -> tuple[CommandOutcome, ...]:
    """Run all of them at the same time; their outcomes in the order they were given."""
    running = [_Running(command, surroundings) for command in commands]
    work = asyncio.ensure_future(asyncio.to_thread(_listen, running))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        for one in running:
            one.end("timed_out")
        await work
        raise
    return tuple(one.outcome() for one in running)


def _listen(running: Sequence["_Running"]) -> None:
    """Hear all of them until each has ended, one way or another."""
    with selectors.DefaultSelector() as selector:
        for one in running:
            one.listen_with(selector)
        while waiting := [one for one in running if one.state is None]:
            soonest = min(one.next_look for one in waiting)
            for key, _ in selector.select(max(0.0, soonest - time.monotonic())):
                heard, pipe = key.data
                heard.hear(pipe)
            for one in waiting:
                one.look()
    for one in running:
        one.close()


class _Running:
    """One command, from its start to its end. `state` is None while it runs."""

    def __init__(self, command: ContextCommand, surroundings: Surroundings) -> None:
        self.state: OutcomeState | None = None
        self._command = command
        self._said: dict[IO[bytes], bytearray] = {}
        self._open: set[IO[bytes]] = set()
        self._selector: selectors.BaseSelector | None = None
        self._ended_at: float | None = None
        self._deadline = time.monotonic() + command.timeout
        self._process = self._started(surroundings)

    def _started(self, surroundings: Surroundings) -> subprocess.Popen[bytes] | None:
        try:
            return subprocess.Popen(  # noqa: S602 - a shell line is what a context command is
                self._command.command,
                shell=True,
                cwd=surroundings.directory,
                env=dict(surroundings.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError):
            self.state = "not_started"
            return None

    def listen_with(self, selector: selectors.BaseSelector) -> None:
        if self._process is None:
            return
        self._selector = selector
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, (self, pipe))
                self._said[pipe] = bytearray()
                self._open.add(pipe)

    def hear(self, pipe: IO[bytes]) -> None:
        """Take what a pipe holds; at its end, or with enough of it, it is listened to no more."""
        try:
            piece = os.read(pipe.fileno(), CHUNK)
        except BlockingIOError:
            return
        if not piece or self.state is not None:
            self._leave(pipe)
            return
        self._said[pipe] += piece
        if sum(map(len, self._said.values())) > MAX_OUTPUT_BYTES:
            self.end("cut")

    def _leave(self, pipe: IO[bytes]) -> None:
        """Listen to a pipe no more; who writes on after the command's end is not heard."""
        if self._selector is not None and pipe in self._open:
            self._selector.unregister(pipe)
            self._open.discard(pipe)

    @property
    def next_look(self) -> float:
        """When to look at the process again, should it say nothing until then."""
        return min(self._deadline, time.monotonic() + LOOK_EVERY)

    def look(self) -> None:
        """See whether the process has ended, or its time is over."""
        if self.state is not None or self._process is None:
            return
        now = time.monotonic()
        code = self._process.poll()
        if code is not None:
            # What it left running may hold the pipes open, and is not waited for.
            self._ended_at = self._ended_at or now
            if not self._open or now - self._ended_at > GRACE:
                self.end("ok" if code == 0 else "failed")
        elif now >= self._deadline:
            self.end("timed_out")

    def end(self, state: OutcomeState) -> None:
        """End the process with everything it started that stayed in its group.

        One that can end what it started elsewhere, as another cllm does, is given a moment to.
        """
        self.state = self.state or state
        self._signal(signal.SIGTERM if state in ("timed_out", "cut") else signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        if self._process is not None:
            # A process of another user could not be ended, and is not waited for.
            for _ in range(2):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(GRACE)
                self._signal(signal.SIGKILL)
            for pipe in self._said:
                pipe.close()

    def outcome(self) -> CommandOutcome:
        state = self.state or "failed"
        code = None if self._process is None else self._process.returncode
        texts = [bytes(said).decode("utf-8", "replace") for said in self._said.values() if said]
        output = "\n".join(text.rstrip("\n") for text in texts)
        return CommandOutcome(
            command=self._command,
            state=state,
            output=output.replace("\0", "")[:MAX_OUTPUT_BYTES],
            exit_code=code if state in ("ok", "failed") else None,
        )
