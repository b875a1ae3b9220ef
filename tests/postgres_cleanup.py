"""Stops the PostgreSQL servers of test runs and removes their folders.

The folder of a server is named after the first process of its run. The last worker removes it. If a
worker was killed, the end of the run removes it; if the whole run was killed, the next run that
starts a server removes it.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

PREFIX = "cllm-pg-"
STOP_SECONDS = 5.0


def run_id() -> int:
    """Return the ID of the run's first process, the same for all its workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def run_folder() -> Path:
    """Return the folder of the server that all workers of a run share."""
    return Path(tempfile.gettempdir()) / f"{PREFIX}{run_id()}"


def remove_abandoned_servers() -> None:
    """Remove the servers of runs that have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdecimal() and not _is_running(int(owner)):
            remove_server(folder)


def remove_run_servers() -> None:
    """Remove the servers of this run: the shared server and the servers of single tests."""
    shared = run_folder()
    for folder in (shared, *shared.parent.glob(f"{shared.name}-*")):
        remove_server(folder)


def remove_server(folder: Path) -> None:
    """Stop the server that runs in a folder, and delete the folder."""
    # The PID file may be missing, incomplete or of another user.
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int((folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        if _runs_in(pid, folder):
            os.kill(pid, signal.SIGQUIT)
            deadline = time.monotonic() + STOP_SECONDS
            while _runs_in(pid, folder) and time.monotonic() < deadline:
                time.sleep(0.05)
            if _runs_in(pid, folder):  # a background process may ignore SIGQUIT
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's process, or not a process ID
        return True
    return True


def _runs_in(process: int, folder: Path) -> bool:
    """Whether the process is the server of the folder. Its ID may have been reused."""
    try:
        return os.fsencode(folder) in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
