"""Processes that are killed while they write."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.postgres import Server
from tests.torture import choose_size

from cllm.core.errors import ConversationNotFoundError
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_contract import answered, start

WORKER = Path(__file__).with_name("worker.py")


def killed_worker(url: str, name: str, how: str, moment: float) -> list[str]:
    """What a process acknowledged before it was killed."""
    command = [sys.executable, str(WORKER), url, name, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moment)
        process.kill()
        whole, _, _ = process.stdout.read().rpartition("\n")
    return whole.split()


@pytest.mark.torture
@pytest.mark.timeout(900)
async def test_kill_9_at_any_moment_loses_nothing_that_was_acknowledged(
    postgres_server: Server, database: str, store: PostgresStore
):
    moments = random.Random(7)  # noqa: S311
    acknowledged: list[str] = []
    for number in range(choose_size(6, full=200)):
        how = "visible" if number % 2 else "hidden"
        moment = moments.uniform(0.05, 0.5)
        acknowledged += killed_worker(postgres_server.url(database), f"p{number}", how, moment)
        try:
            loaded = await store.load("demo")
        except ConversationNotFoundError:
            assert not acknowledged
            continue
        complete = [turn for turn in loaded.turns if turn.state == "complete"]
        stored = [turn.id for turn in complete]
        assert set(acknowledged) <= set(stored)
        assert len(set(stored)) == len(stored)
        assert all(len(turn.messages) == 2 for turn in complete)
        assert sum(turn.state == "running" for turn in loaded.turns) <= 1
        numbers = [sequence for sequence, _, _ in loaded.numbered_messages()]
        assert numbers == list(range(1, loaded.message_count + 1))
    assert acknowledged
    lease = await store.begin_turn("demo", start("last"), wait=5)
    await store.finish_turn(lease, answered(lease))
    loaded = await store.load("demo")
    assert {turn.state for turn in loaded.turns} <= {"complete", "failed"}
