"""What test runs leave behind is cleared, and what is still in use is not."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.leftovers import PREFIX, clear, clear_abandoned


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
    kept = [place / f"{PREFIX}{os.getpid()}", place / f"{PREFIX}somebody"]
    for folder in (*abandoned, *kept):
        folder.mkdir()

    clear_abandoned()

    assert not any(folder.exists() for folder in abandoned)
    assert all(folder.exists() for folder in kept)


def test_a_server_that_runs_in_the_folder_is_stopped(place: Path):
    folder = place / f"{PREFIX}1"
    folder.mkdir()
    waiting = [sys.executable, "-c", "input()", str(folder)]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE) as server:
        (folder / "postmaster.pid").write_text(f"{server.pid}\n", encoding="utf-8")
        clear(folder)

        assert server.wait(10) < 0
    assert not folder.exists()


def test_another_process_with_its_number_is_left_alone(place: Path):
    folder = place / f"{PREFIX}1"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (folder / "postmaster.pid").write_text(f"{other.pid}\n", encoding="utf-8")
        clear(folder)

        assert other.poll() is None
        other.kill()
    assert not folder.exists()
