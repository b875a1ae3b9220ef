"""Backups and restores that are killed or cannot write."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command import Cllm
from tests.home import Home

COUNT = 150
LIMIT_FILES = (
    "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


@pytest.fixture
def saved(cllm: Cllm, home: Home) -> Path:
    """A backup of many conversation files, with a key that cllm does not know."""
    for number in range(COUNT):
        home.write_old_conversation(f"c{number}", ("user", "Hello " * 50), ("assistant", "Hi"))
    path = home.file("c0")
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | {"colour": "red"}), encoding="utf-8")
    cllm("backup", "saved.zip").succeeded()
    return home.work / "saved.zip"


def wait_until(condition: Callable[[], bool], is_running: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and is_running() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_a_killed_backup_has_no_file_under_its_name(cllm: Cllm, home: Home, saved: Path) -> None:
    running = cllm.start("backup", "new.zip")
    wait_until(lambda: any(home.work.glob(".new.zip.*")), lambda: running.process.poll() is None)
    running.process.kill()
    running.process.wait()
    new = home.work / "new.zip"
    if new.exists():  # It was complete before it was killed.
        cllm("verify", "new.zip").succeeded()
    else:
        cllm("backup", "new.zip").succeeded()
    assert saved.exists()


@pytest.mark.parametrize("target", ["json:new", "sqlite:new.db"])
def test_a_killed_restore_is_repeated(cllm: Cllm, home: Home, saved: Path, target: str) -> None:
    place = home.work / target.partition(":")[2]

    def has_started() -> bool:
        return place.is_file() or (place.is_dir() and any(place.glob("*.json")))

    running = cllm.start("restore", saved.name, "--store", target)
    wait_until(has_started, lambda: running.process.poll() is None)
    running.process.kill()
    running.process.wait()
    again = cllm("restore", saved.name, "--store", target).succeeded()
    assert "0 skipped" in again.out
    verified = cllm("verify", "--store", target).succeeded()
    assert verified.out.startswith(f"Checked {COUNT} conversations")
    if target == "json:new":
        assert (place / "c0.json").read_bytes() == home.file("c0").read_bytes()


def test_a_full_disk_leaves_no_part_of_a_backup(cllm: Cllm, home: Home, saved: Path) -> None:
    before = sorted(path.name for path in home.work.iterdir())
    limited = ("python3", "-c", LIMIT_FILES, "2000")
    cllm("backup", "new.zip", wrapper=limited).failed_with_one_sentence("Cannot write new.zip")
    assert sorted(path.name for path in home.work.iterdir()) == before
    assert saved.exists()


def test_a_restore_continues_when_the_disk_has_space_again(
    cllm: Cllm, home: Home, saved: Path
) -> None:
    limited = ("python3", "-c", LIMIT_FILES, "200")
    store = ("--store", "json:new")
    cllm("restore", saved.name, *store, wrapper=limited).failed_with_one_sentence("Cannot write")
    assert list((home.work / "new").glob("*.json")) == []
    cllm("restore", saved.name, *store).succeeded()
    cllm("verify", *store).succeeded()


def test_a_missing_database_is_neither_complete_nor_created(cllm: Cllm, home: Home) -> None:
    for arguments in (("verify",), ("backup", "new.zip")):
        failed = cllm(*arguments, "--store", "sqlite:typo.db")
        failed.failed_with_one_sentence("typo.db does not exist")
    assert not (home.work / "typo.db").exists()
    assert not (home.work / "new.zip").exists()
