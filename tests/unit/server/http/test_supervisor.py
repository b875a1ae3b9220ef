"""The parent of several worker processes."""

import os
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import prometheus_client
import pytest
from tests.fake_provider import WAIT
from tests.waits import wait_until

from cllm.core.errors import CllmError, UsageError
from cllm.server.http import supervisor
from cllm.server.http.supervisor import Serve, Supervisor

# It reads the folder of shared metrics when it is imported. The supervisor sets the folder, and
# would change the metrics of later tests in this process.
assert prometheus_client


def run(
    serve: Serve, *, workers: int, on_start: Callable[[], None], stop_seconds: float = WAIT
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Supervisor(
            serve,
            listener=listener,
            workers=workers,
            stop_seconds=stop_seconds,
            on_start=on_start,
        ).run()
        assert listener.fileno() == -1


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def serve_until_a_signal(on_start: Callable[[], None], lifeline: int) -> None:
    on_start()
    select.select([lifeline], [], [])


def test_the_start_is_reported_once_when_all_workers_have_started(tmp_path: Path):
    def serve(on_start: Callable[[], None], lifeline: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        serve_until_a_signal(on_start, lifeline)

    numbers: list[int] = []

    def on_start() -> None:
        numbers.append(len(list(tmp_path.iterdir())))
        stop_this_process()

    run(serve, workers=3, on_start=on_start)

    assert numbers == [3]


def test_the_error_of_the_first_start_ends_the_parent(tmp_path: Path):
    def serve(_on_start: Callable[[], None], _lifeline: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        raise UsageError("The store is not a store.")

    with pytest.raises(CllmError, match="The store is not a store"):
        run(serve, workers=3, on_start=stop_this_process)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_worker_that_dies_while_it_starts_ends_the_parent():
    with pytest.raises(CllmError, match="ended while it started"):
        run(lambda *_: os._exit(9), workers=2, on_start=stop_this_process)


def test_a_worker_that_cannot_start_again_is_started_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "RESTART_SECONDS", 0.01)
    attempts, announced = tmp_path / "attempts", tmp_path / "announced"

    def serve(on_start: Callable[[], None], lifeline: int) -> None:
        with attempts.open("a", encoding="ascii") as file:
            file.write("x")
        count = attempts.stat().st_size
        if count in (3, 4):
            raise UsageError("The database is down.")
        on_start()
        if count == 2:
            wait_until(announced.exists)
            os._exit(1)
        if count == 5:
            os.kill(os.getppid(), signal.SIGTERM)
        select.select([lifeline], [], [])

    run(serve, workers=2, on_start=announced.touch)

    assert attempts.stat().st_size == 5


def test_the_handlers_of_signals_are_restored():
    before = signal.getsignal(signal.SIGTERM)

    run(serve_until_a_signal, workers=1, on_start=stop_this_process)

    assert signal.getsignal(signal.SIGTERM) is before


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "KILL_SECONDS", 0.01)

    def serve(on_start: Callable[[], None], _lifeline: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / str(os.getpid())).touch()
        on_start()
        while True:
            signal.pause()

    run(serve, workers=2, on_start=stop_this_process, stop_seconds=0.1)

    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
