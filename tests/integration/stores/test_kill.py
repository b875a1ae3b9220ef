import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.torture import choose_size

from cllm.core.errors import ConversationNotFoundError
from cllm.stores.json.store import JsonFileStore

ENDLESS = 1_000_000


@pytest.mark.torture
@pytest.mark.timeout(900)
async def test_kill_9_at_any_moment_loses_nothing_that_was_acknowledged(folder: Path, work):
    kills = choose_size(8, full=200)
    moments = random.Random(7)  # noqa: S311
    store = JsonFileStore(folder, clock=lambda: datetime.now(UTC))
    acknowledged: list[str] = []
    for number in range(kills):
        process = work(f"p{number}", ENDLESS, "visible" if number % 2 else "hidden")
        assert process.stdout.readline() == "ready\n"
        if number % 4 == 0:  # on a slow machine none would be acknowledged at all
            acknowledged.append(process.stdout.readline().strip())
        time.sleep(moments.uniform(0, 0.03))
        process.kill()
        output, _ = process.communicate()
        whole, _, _ = output.rpartition("\n")
        acknowledged += whole.split()
        try:
            loaded = await store.load("demo")
        except ConversationNotFoundError:
            assert not acknowledged
            continue
        json.loads((folder / "demo.json").read_bytes())
        stored = [turn.id for turn in loaded.turns if turn.state == "complete"]
        assert set(acknowledged) <= set(stored)
        assert len(set(stored)) == len(stored)
        assert all(len(turn.messages) == 2 for turn in loaded.turns if turn.state == "complete")
        assert sum(turn.state == "running" for turn in loaded.turns) <= 1
    assert acknowledged
    last = work("last", 1, "visible")
    assert last.wait() == 0
    loaded = await store.load("demo")
    assert {turn.state for turn in loaded.turns} <= {"complete", "failed"}
    assert [entry.name for entry in folder.iterdir() if entry.suffix == ".tmp"] == []
