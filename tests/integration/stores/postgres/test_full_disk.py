"""A PostgreSQL server whose disk is full: it says so, loses nothing acknowledged, and goes on."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.postgres import Server, own_server
from tests.postgres_cleanup import PREFIX, run_id

from cllm.core.errors import StoreError, StoreUnavailableError
from cllm.core.ports import NewConversation
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_contract import answered, say, start

MEGABYTE = 2**20
FULL = "disk of the PostgreSQL server is full"


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own with a file on it that can be deleted to make room."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        folder.rmdir()
        pytest.skip("Nobody may mount a disk here.")
    try:
        (folder / "ballast").write_bytes(b"x" * (megabytes * 2 // 3) * MEGABYTE)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def is_alive(server: Server) -> bool:
    """Whether its first process is there; it may have come back by itself."""
    try:
        pid = (server.folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0]
    except FileNotFoundError:
        return False
    return Path(f"/proc/{pid}").exists()


def opened(url: str) -> PostgresStore:
    return PostgresStore(url, clock=lambda: datetime.now(UTC), lease_seconds=3)


async def wait_for_recovery(server: Server) -> None:
    """Wait longer than the store under test does."""
    patient = opened(server.url() + "&pool_patience=60")
    await patient.load("demo", tail=0)
    await patient.close()


async def talk_until_refused(store: PostgresStore) -> tuple[list[str], StoreError]:
    """The acknowledged turns, and the error of the full disk."""
    acknowledged: list[str] = []
    for number in range(1000):
        turn_id = f"t{number}"
        try:
            lease = await store.begin_turn(
                "demo", start(turn_id), create=NewConversation(id="demo"), wait=10, tail=0
            )
            await store.finish_turn(lease, answered(lease, os.urandom(MEGABYTE // 8).hex()))
        except StoreError as error:
            return acknowledged, error
        acknowledged.append(turn_id)
    raise AssertionError("the disk never was full")


async def complete_turns(store: PostgresStore) -> list[str]:
    loaded = await store.load("demo")
    numbers = [number for number, _, _ in loaded.numbered_messages()]
    assert numbers == list(range(1, loaded.message_count + 1))
    return [turn.id for turn in loaded.turns if turn.state == "complete"]


async def go_on(store: PostgresStore, acknowledged: list[str]) -> None:
    """The same store goes on, and has everything."""
    assert await complete_turns(store) == acknowledged
    lease = await store.begin_turn("demo", start("after"), wait=10, tail=0)
    await store.finish_turn(lease, answered(lease))
    assert await complete_turns(store) == [*acknowledged, "after"]
    assert (await store.search("Hello")).total > len(acknowledged)


async def test_a_full_disk_is_reported_and_loses_nothing_acknowledged():
    with own_server() as server, small_disk(Path(f"{server.folder}-disk"), 72) as disk:
        tables = disk / "tables"
        tables.mkdir()
        subprocess.run(["chown", "-R", str(server.system_user or os.getuid()), tables], check=True)
        await server.execute(f"CREATE TABLESPACE small LOCATION '{tables}'")
        await server.execute("CREATE DATABASE small TABLESPACE small")
        store = opened(server.url("small"))
        acknowledged, error = await talk_until_refused(store)
        assert len(acknowledged) > 5
        assert isinstance(error, StoreUnavailableError)
        assert FULL in str(error)
        newest = (await store.load("demo", tail=3)).turns
        assert acknowledged[-1] in [turn.id for turn in newest if turn.state == "complete"]
        (disk / "ballast").unlink()
        await go_on(store, acknowledged)
        await store.close()


async def test_a_full_wal_disk_loses_nothing_acknowledged():
    folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{run_id()}-")
    with folder as parent, small_disk(Path(parent) / "disk", 270) as disk:
        server = Server(disk / "data")
        try:
            store = opened(server.url() + "&pool_patience=1")
            acknowledged, error = await talk_until_refused(store)
            assert len(acknowledged) > 5
            assert isinstance(error, StoreUnavailableError)
            assert str(error).count(". ") == 0
            (disk / "ballast").unlink()
            if not is_alive(server):
                server.start_again()
            await wait_for_recovery(server)
            await go_on(store, acknowledged)
            await store.close()
        finally:
            server.cleanup()


async def test_a_disk_full_error_is_reported(
    postgres_server: Server, database: str, store: PostgresStore
):
    await say(store, "demo", "t1")
    lease = await store.begin_turn("demo", start("t2"))
    for statement in (
        """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END$$""",
        "CREATE TRIGGER full_disk BEFORE INSERT ON messages EXECUTE FUNCTION full_disk()",
    ):
        await postgres_server.execute(statement, database=database)
    with pytest.raises(StoreUnavailableError, match=FULL):
        await store.finish_turn(lease, answered(lease))
    with pytest.raises(StoreUnavailableError, match=FULL):
        await say(store, "other", "t1")
    await postgres_server.execute("DROP TRIGGER full_disk ON messages", database=database)
    await store.finish_turn(lease, answered(lease))
    assert await complete_turns(store) == ["t1", "t2"]
    await say(store, "other", "t1")
