"""What a test run could leave on the machine, and clearing it away when the run is over.

A PostgreSQL server's folder is named after the process whose run it belongs to. It goes with the
worker that leaves last; where a worker was killed, at the end of the run; where the whole run was
killed, when the next run starts a server.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

PREFIX = "cllm-pg-"
STOPPING_SECONDS = 5.0


def run_id() -> int:
    """The process that a run begins with, the same for all its workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def run_folder() -> Path:
    """Where the server is that the workers of a run share."""
    return Path(tempfile.gettempdir()) / f"{PREFIX}{run_id()}"


def remove_abandoned_servers() -> None:
    """Clear what belongs to runs that are no more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdecimal() and not _is_running(int(owner)):
            remove_server(folder)


def remove_run_servers() -> None:
    """Clear what belongs to this run: the server that its tests share, and those of single ones."""
    shared = run_folder()
    for folder in (shared, *shared.parent.glob(f"{shared.name}-*")):
        remove_server(folder)


def remove_server(folder: Path) -> None:
    """Stop a server that is still running in the folder, and delete it."""
    # It may be somebody else's, half written, or no server's at all.
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = int((folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        if _runs_in(first, folder):
            os.kill(first, signal.SIGQUIT)
            deadline = time.monotonic() + STOPPING_SECONDS
            while _runs_in(first, folder) and time.monotonic() < deadline:
                time.sleep(0.05)
            if _runs_in(first, folder):  # whoever runs in the background may not hear the first
                os.kill(first, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # it is another user's, or no number of a process
        return True
    return True


def _runs_in(process: int, folder: Path) -> bool:
    """Whether it is the server of that folder; the number may be another's by now."""
    try:
        return os.fsencode(folder) in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
