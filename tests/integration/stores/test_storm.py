import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.torture import choose_size

from cllm.stores.json.store import JsonFileStore


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["visible", "hidden"])
async def test_many_processes_lose_no_turn_and_show_no_partial_file(folder: Path, work, how: str):
    processes, turns = choose_size((5, 2), full=(16, 4))
    running = [work(f"p{number}", turns, how) for number in range(processes)]
    path = folder / "demo.json"
    looks = 0
    while any(process.poll() is None for process in running):
        if path.exists():
            messages = json.loads(path.read_bytes())["messages"]
            assert len(messages) % 2 == 0
            looks += 1
    assert [process.returncode for process in running] == [0] * processes
    assert looks > 0
    loaded = await JsonFileStore(folder, clock=lambda: datetime.now(UTC)).load("demo")
    expected = {f"p{number}-{turn}" for number in range(processes) for turn in range(turns)}
    assert {turn.id for turn in loaded.turns} == expected
    assert len(loaded.turns) == len(expected)
    for turn in loaded.turns:
        question, answer = turn.messages
        assert (turn.state, question.text) == ("complete", turn.id)
        assert answer.text.startswith(f"{turn.id}? ")
    for number in range(processes):
        order = [turn.id for turn in loaded.turns if turn.id.startswith(f"p{number}-")]
        assert order == [f"p{number}-{turn}" for turn in range(turns)]
    assert [entry.name for entry in folder.iterdir() if entry.suffix == ".tmp"] == []
