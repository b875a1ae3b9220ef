"""Runs commands in subprocesses, in sessions that end at a limit or a cancellation."""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence

from cllm.commands.command_line import CommandEnvironment, Invocation, Pipeline, Plan, shell_plan
from cllm.history.context import CommandOutcome, ContextCommand, OutcomeState

MAX_OUTPUT_BYTES = 256 * 1024
MAX_ERROR_LENGTH = 200
CHUNK = 64 * 1024
POLL_SECONDS = 0.05
GRACE_SECONDS = 0.2


async def run_commands(
    commands: Sequence[ContextCommand], env: CommandEnvironment
) -> tuple[CommandOutcome, ...]:
    """Run all commands in parallel, each in a shell."""
    plans = [(command, shell_plan(command.command)) for command in commands]
    return await _run_plans(plans, env)


async def run_plan(command: ContextCommand, plan: Plan, env: CommandEnvironment) -> CommandOutcome:
    (outcome,) = await _run_plans([(command, plan)], env)
    return outcome


async def _run_plans(
    plans: Sequence[tuple[ContextCommand, Plan]], env: CommandEnvironment
) -> tuple[CommandOutcome, ...]:
    running = [_Running(command, plan, env) for command, plan in plans]
    work = asyncio.ensure_future(asyncio.to_thread(_read_all, running))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        for one in running:
            one.end("timed_out")
        await work
        raise
    return tuple(one.outcome() for one in running)


def _read_all(running: Sequence["_Running"]) -> None:
    with selectors.DefaultSelector() as selector:
        for one in running:
            one.register(selector)
        while waiting := [one for one in running if one.state is None]:
            remaining = min(one.deadline for one in waiting) - time.monotonic()
            for key, _ in selector.select(max(0.0, min(remaining, POLL_SECONDS))):
                owner, pipe = key.data
                owner.read(pipe)
            for one in waiting:
                one.poll_state()
    for one in running:
        one.close()


class _Running:
    """`state` is None while the plan runs."""

    def __init__(self, command: ContextCommand, plan: Plan, env: CommandEnvironment) -> None:
        self.state: OutcomeState | None = None
        self._command = command
        self._env = env
        self._pending = deque(plan)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._status = 0
        self._selector: selectors.BaseSelector | None = None
        self._ended_at: float | None = None
        self.deadline = time.monotonic() + command.timeout
        pipes = (os.pipe(), os.pipe())
        self._read_ends = [read for read, _ in pipes]
        self._write_ends = [write for _, write in pipes]
        self._output = {read: bytearray() for read in self._read_ends}
        self._open: set[int] = set()
        self._start_next()

    def _start_next(self) -> None:
        self._processes = []
        while self._pending and not self._processes and self.state is None:
            pipeline = self._pending.popleft()
            succeeded = self._status == 0
            if pipeline.condition == "always" or succeeded == (pipeline.condition == "success"):
                self._start(pipeline)
        if not self._pending:
            self._close_write_ends()

    def _start(self, pipeline: Pipeline) -> None:
        piped: int | None = None
        try:
            for invocation in pipeline.invocations:
                is_last = invocation is pipeline.invocations[-1]
                read_end, write_end = (None, self._write_ends[0]) if is_last else os.pipe()
                try:
                    process = self._start_process(invocation, stdin=piped, stdout=write_end)
                    self._processes.append(process)
                finally:
                    _close([piped, None if is_last else write_end])
                    piped = read_end
        except (OSError, ValueError):
            self.end("not_started")
            _close([piped])

    def _start_process(
        self, invocation: Invocation, *, stdin: int | None, stdout: int
    ) -> subprocess.Popen[bytes]:
        out = subprocess.DEVNULL if invocation.stdout == "discard" else stdout
        errors = {
            "error": self._write_ends[1],
            "output": stdout,
            "discard": subprocess.DEVNULL,
        }
        return subprocess.Popen(
            invocation.arguments,
            executable=invocation.path,
            cwd=self._env.directory,
            env=dict(self._env.environment),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=out,
            stderr=errors[invocation.stderr],
            start_new_session=True,
        )

    def register(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        for pipe in self._read_ends:
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ, (self, pipe))
            self._open.add(pipe)

    def read(self, pipe: int) -> None:
        try:
            piece = os.read(pipe, CHUNK)
        except BlockingIOError:
            return
        if not piece or self.state is not None:
            self._unregister(pipe)
            return
        self._output[pipe] += piece
        if sum(map(len, self._output.values())) > MAX_OUTPUT_BYTES:
            self.end("cut")

    def _unregister(self, pipe: int) -> None:
        if self._selector is not None and pipe in self._open:
            self._selector.unregister(pipe)
            self._open.discard(pipe)

    def poll_state(self) -> None:
        if self.state is not None:
            return
        now = time.monotonic()
        codes = [process.poll() for process in self._processes]
        if None in codes:
            if now >= self.deadline:
                self.end("timed_out")
            return
        if codes:
            self._status = codes[-1] or 0
        if self._pending:
            self._signal(signal.SIGKILL)
            self._start_next()
            return
        # Background processes may keep the pipes open; they are not waited for.
        self._ended_at = self._ended_at or now
        if not self._open or now - self._ended_at > GRACE_SECONDS:
            self.end("ok" if self._status == 0 else "failed")

    def end(self, state: OutcomeState) -> None:
        """End the processes. SIGTERM lets a nested cllm end its children."""
        self.state = self.state or state
        self._signal(signal.SIGTERM if state in ("timed_out", "cut") else signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)

    def close(self) -> None:
        # A process of another user cannot be killed and is not waited for.
        for _ in range(2):
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_SECONDS)
            self._signal(signal.SIGKILL)
        self._close_write_ends()
        _close(self._read_ends)

    def _close_write_ends(self) -> None:
        _close(self._write_ends)
        self._write_ends = []

    def outcome(self) -> CommandOutcome:
        state = self.state or "failed"
        texts = [bytes(output).decode("utf-8", "replace") for output in self._output.values()]
        output = "\n".join(text.rstrip("\n") for text in texts if text)
        error = next(filter(None, map(str.strip, texts[-1].splitlines())), "")
        return CommandOutcome(
            command=self._command,
            state=state,
            output=output.replace("\0", "")[:MAX_OUTPUT_BYTES],
            error=error.replace("\0", "")[:MAX_ERROR_LENGTH],
            exit_code=self._status if state in ("ok", "failed") else None,
        )


def _close(descriptors: Sequence[int | None]) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)
