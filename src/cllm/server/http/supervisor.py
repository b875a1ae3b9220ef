"""The parent process of `--workers N`: starts the workers, replaces dead ones, and stops them all.

The workers are forked, so they have the settings and the listening socket of the parent. The first
worker opens the store alone; the others start when it accepts connections. The parent has no
threads and no event loop.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import FrameType

from cllm.core.errors import CllmError
from cllm.logs import log
from cllm.server.http.metrics import remove_process, share_metrics

RESTART_SECONDS = 1.0
KILL_SECONDS = 2.0
"""A worker that has not ended this long after its stop time is killed."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Serve = Callable[[Callable[[], None], int], None]
"""Serves until a signal. Calls the function when it accepts connections; the descriptor is at its
end of file when the parent process is gone."""

_fork = multiprocessing.get_context("fork")


class _Worker:
    """A process, and the pipe on which it reports its start: empty, or the text of its error."""

    def __init__(self, process: ForkProcess, report: Connection) -> None:
        self.process = process
        self.report = report
        self.is_started = False
        self.error = ""

    @property
    def pid(self) -> int:
        assert self.process.pid is not None  # noqa: S101 - it has been started
        return self.process.pid

    def read_report(self) -> None:
        try:
            self.error = self.report.recv()
            self.is_started = not self.error
        except EOFError:
            pass
        self.report.close()


class Supervisor:
    """`listener` is the socket of all workers; it is closed when they stop.

    `stop_seconds` is the time that running turns have after a signal.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        listener: socket.socket,
        workers: int,
        stop_seconds: float,
        on_start: Callable[[], None],
    ) -> None:
        self._serve = serve
        self._stop_seconds = stop_seconds
        self._listener = listener
        self._count = workers
        self._on_start = on_start
        self._workers: list[_Worker] = []
        self._is_stopping = False
        # Only the parent has the other end, so a worker sees the end of file when the parent dies.
        self._lifeline, self._parent_end = os.pipe()

    def run(self) -> None:
        """Return after a signal and the end of all workers; raise the error of the first start."""
        with share_metrics(), self._catch_signals() as signals:
            try:
                self._add_worker()
                while not self._is_stopping and not self._workers[0].is_started:
                    self._wait(signals)
                    self._check_first_start()
                while not self._is_stopping and len(self._workers) < self._count:
                    self._add_worker()
                self._supervise(signals)
            finally:
                self._stop_workers()

    def _supervise(self, signals: socket.socket) -> None:
        is_announced = False
        while not self._is_stopping:
            if not is_announced and all(worker.is_started for worker in self._workers):
                is_announced = True
                self._on_start()
            self._wait(signals)
            if not is_announced:
                self._check_first_start()
            for worker in [one for one in self._workers if not one.process.is_alive()]:
                self._replace(worker, signals)

    def _wait(self, signals: socket.socket) -> None:
        """Wait for a signal, a report or the end of a worker."""
        sentinels = [worker.process.sentinel for worker in self._workers]
        reports = {one.report: one for one in self._workers if not one.report.closed}
        ready = wait([signals, *sentinels, *reports])
        if signals in ready:
            signals.recv(1024)
        for report in reports.keys() & set(ready):
            reports[report].read_report()

    def _check_first_start(self) -> None:
        for worker in self._workers:
            if worker.error:
                raise CllmError(worker.error)
            if not worker.process.is_alive() and not worker.is_started:
                raise CllmError("A worker process ended while it started; see the log.")

    def _replace(self, worker: _Worker, signals: socket.socket) -> None:
        worker.process.join()
        log(
            "server",
            logging.ERROR,
            "worker ended",
            pid=worker.pid,
            code=worker.process.exitcode,
            reason=worker.error or None,
        )
        self._workers.remove(worker)
        remove_process(worker.pid)
        if not worker.is_started:
            # For example, the database is down: do not start one worker after the other.
            wait([signals], RESTART_SECONDS)
        if not self._is_stopping:
            self._add_worker()

    def _add_worker(self) -> None:
        report, child_end = _fork.Pipe(duplex=False)
        process = _fork.Process(target=self._run_worker, args=(child_end,))
        process.start()
        child_end.close()
        self._workers.append(_Worker(process, report))

    def _run_worker(self, report: Connection) -> None:
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.close(self._parent_end)
        if self._is_stopping:
            return
        try:
            self._serve(lambda: report.send(""), self._lifeline)
        except CllmError as error:
            report.send(str(error))
            sys.exit(1)

    def _stop_workers(self) -> None:
        # Otherwise the system would accept connections that no worker serves.
        self._listener.close()
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + self._stop_seconds + KILL_SECONDS
        for worker in self._workers:
            worker.process.join(max(0, deadline - time.monotonic()))
            if worker.process.is_alive():
                log("server", logging.ERROR, "worker killed", pid=worker.pid)
                worker.process.kill()
                worker.process.join()

    @contextmanager
    def _catch_signals(self) -> Iterator[socket.socket]:
        """Yield a socket that has data after each signal."""
        receiver, sender = socket.socketpair()
        sender.settimeout(0)
        with receiver, sender:
            previous_descriptor = signal.set_wakeup_fd(sender.fileno())
            previous = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
            try:
                yield receiver
            finally:
                signal.set_wakeup_fd(previous_descriptor)
                for number, handler in previous.items():
                    signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True
