"""What test runs leave behind is cleared, and what is still in use is not."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.postgres_cleanup import (
    PREFIX,
    remove_abandoned_servers,
    remove_run_servers,
    remove_server,
    run_id,
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_folders_of_runs_that_are_no_more_go_and_others_stay(place: Path):
    abandoned = [place / f"{PREFIX}{ended_process()}", place / f"{PREFIX}{ended_process()}-abc"]
    names = (f"{os.getpid()}", "somebody", "9" * 30)
    kept = [place / f"{PREFIX}{name}" for name in names]
    for folder in (*abandoned, *kept):
        folder.mkdir()

    remove_abandoned_servers()

    assert not any(folder.exists() for folder in abandoned)
    assert all(folder.exists() for folder in kept)


def test_a_server_that_runs_in_the_folder_is_stopped(place: Path):
    folder = place / f"{PREFIX}1"
    folder.mkdir()
    waiting = [sys.executable, "-c", "input('ready\\n')", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(waiting, stdin=pipe, stdout=pipe) as server:
        # A process that was just started has no words to be known by yet.
        assert server.stdout is not None
        server.stdout.readline()
        (folder / "postmaster.pid").write_text(f"{server.pid}\n", encoding="utf-8")
        remove_server(folder)

        assert server.wait(10) < 0
    assert not folder.exists()


def test_another_process_with_its_number_is_left_alone(place: Path):
    folder = place / f"{PREFIX}1"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (folder / "postmaster.pid").write_text(f"{other.pid}\n", encoding="utf-8")
        remove_server(folder)

        assert other.poll() is None
        other.kill()
    assert not folder.exists()


def test_at_the_end_of_a_run_all_its_folders_go_and_no_others(place: Path):
    ours = [place / f"{PREFIX}{run_id()}", place / f"{PREFIX}{run_id()}-abc"]
    theirs = [place / f"{PREFIX}{run_id()}0", place / f"{PREFIX}{os.getppid()}1-abc"]
    for folder in (*ours, *theirs):
        folder.mkdir()

    remove_run_servers()

    assert not any(folder.exists() for folder in ours)
    assert all(folder.exists() for folder in theirs)


@pytest.mark.parametrize("found", [b"", b"\n\n", b"no number\n", b"\xff\n", None])
def test_a_folder_in_which_no_server_can_be_found_goes_too(place: Path, found: bytes | None):
    folder = place / f"{PREFIX}1"
    folder.mkdir()
    noted = folder / "postmaster.pid"
    if found is None:
        noted.mkdir()
    else:
        noted.write_bytes(found)

    remove_server(folder)

    assert not folder.exists()
