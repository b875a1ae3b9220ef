"""The database's own processes are killed while many write: its first one, and those that work."""

import asyncio
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.postgres import Server, own_server
from tests.torture import choose_size
from tests.waits import wait_until_async

from cllm.core.errors import StoreError
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_contract import say

WRITERS = 4


def first_process(server: Server) -> int:
    return int((server.folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])


def working_processes(server: Server) -> list[int]:
    """The processes that work for somebody who is connected."""
    first = first_process(server)
    children = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii").split()
    return [int(child) for child in children if b"[local]" in _title(child)]


def _title(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


class Writers:
    """Conversations that continue after every error until they are stopped."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.acknowledged: list[tuple[str, str]] = []
        self.refusals: Counter[str] = Counter()
        self.stopped = False

    async def write(self, name: str) -> None:
        number = 0
        while not self.stopped:
            number += 1
            try:
                await say(self.store, name, f"{name}-{number}")
            except StoreError as error:
                self.refusals[str(error)] += 1
            else:
                self.acknowledged.append((name, f"{name}-{number}"))

    async def wait_for_another(self) -> None:
        """Until somebody has been acknowledged once more."""
        known = len(self.acknowledged)
        await wait_until_async(lambda: len(self.acknowledged) > known, 60)

    async def check(self) -> None:
        """Everything that was acknowledged is there, once, whole and in order."""
        for name in {name for name, _ in self.acknowledged}:
            loaded = await self.store.load(name)
            complete = [turn for turn in loaded.turns if turn.state == "complete"]
            stored = [turn.id for turn in complete]
            assert [mine for whose, mine in self.acknowledged if whose == name] == [
                turn_id for turn_id in stored if (name, turn_id) in set(self.acknowledged)
            ]
            assert len(stored) == len(set(stored))
            assert all(len(turn.messages) == 2 for turn in complete)
            numbers = [number for number, _, _ in loaded.numbered_messages()]
            assert numbers == list(range(1, loaded.message_count + 1))
            assert sum(turn.state == "running" for turn in loaded.turns) <= 1
        for sentence in self.refusals:
            assert sentence.count(". ") == 0
            assert sentence.endswith(".")


async def kill_worker(server: Server, chance: random.Random) -> None:
    victims: list[int] = []

    def find_victims() -> list[int]:
        victims[:] = working_processes(server)
        return victims

    await wait_until_async(find_victims, 60)
    os.kill(chance.choice(victims), signal.SIGKILL)


async def kill_server(server: Server, _chance: random.Random) -> None:
    server.kill()
    await asyncio.to_thread(server.start_again)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kill", "full"), [(kill_worker, 100), (kill_server, 100)])
async def test_kill_9_of_the_database_loses_nothing_that_was_acknowledged(kill, full: int):
    chance = random.Random(11)  # noqa: S311
    with own_server() as server:
        url = server.url() + "&pool_patience=30"
        store = PostgresStore(url, clock=lambda: datetime.now(UTC), lease_seconds=2)
        writers = Writers(store)
        talking = [asyncio.create_task(writers.write(f"c{number}")) for number in range(WRITERS)]
        kills = choose_size(3, full=full)
        for _ in range(kills):
            await writers.wait_for_another()
            await asyncio.sleep(chance.uniform(0, 0.1))
            await kill(server, chance)
        await writers.wait_for_another()
        writers.stopped = True
        await asyncio.gather(*talking)
        await writers.check()
        assert len(writers.acknowledged) > kills
        await store.close()
