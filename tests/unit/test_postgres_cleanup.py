"""Servers of ended test runs are removed; servers in use are not."""

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
def folder_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def run_ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_folders_of_ended_runs_are_removed_and_others_stay(folder_root: Path):
    abandoned = [
        folder_root / f"{PREFIX}{run_ended_process()}",
        folder_root / f"{PREFIX}{run_ended_process()}-abc",
    ]
    names = (f"{os.getpid()}", "somebody", "9" * 30)
    in_use = [folder_root / f"{PREFIX}{name}" for name in names]
    for folder in (*abandoned, *in_use):
        folder.mkdir()

    remove_abandoned_servers()

    assert not any(folder.exists() for folder in abandoned)
    assert all(folder.exists() for folder in in_use)


def test_a_server_that_runs_in_the_folder_is_stopped(folder_root: Path):
    folder = folder_root / f"{PREFIX}1"
    folder.mkdir()
    command = [sys.executable, "-c", "input('ready\\n')", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as server:
        # The command line of a process is empty until it has started.
        assert server.stdout is not None
        server.stdout.readline()
        (folder / "postmaster.pid").write_text(f"{server.pid}\n", encoding="utf-8")
        remove_server(folder)

        assert server.wait(10) < 0
    assert not folder.exists()


def test_another_process_with_the_same_id_is_not_stopped(folder_root: Path):
    folder = folder_root / f"{PREFIX}1"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (folder / "postmaster.pid").write_text(f"{other.pid}\n", encoding="utf-8")
        remove_server(folder)

        assert other.poll() is None
        other.kill()
    assert not folder.exists()


def test_the_end_of_a_run_removes_its_folders_only(folder_root: Path):
    own = [folder_root / f"{PREFIX}{run_id()}", folder_root / f"{PREFIX}{run_id()}-abc"]
    others = [folder_root / f"{PREFIX}{run_id()}0", folder_root / f"{PREFIX}{os.getppid()}1-abc"]
    for folder in (*own, *others):
        folder.mkdir()

    remove_run_servers()

    assert not any(folder.exists() for folder in own)
    assert all(folder.exists() for folder in others)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"no number\n", b"\xff\n", None])
def test_a_folder_without_a_valid_pid_file_is_removed(folder_root: Path, content: bytes | None):
    folder = folder_root / f"{PREFIX}1"
    folder.mkdir()
    pid_file = folder / "postmaster.pid"
    if content is None:
        pid_file.mkdir()
    else:
        pid_file.write_bytes(content)

    remove_server(folder)

    assert not folder.exists()
