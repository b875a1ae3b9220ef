"""A manual edit of messages that a summary covers makes the summary invalid."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import StandingSummary
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, TurnStart
from cllm.stores.json.store import JsonFileStore

FIRST = StandingSummary(text="The first turn.", through=2, tokens=9)
SECOND = StandingSummary(text="Three turns.", through=6, tokens=9, before=FIRST)


@pytest.fixture
async def store(tmp_path: Path) -> JsonFileStore:
    """Four turns, three of which a summary tells of."""
    store = JsonFileStore(tmp_path, clock=lambda: datetime.now(UTC))
    await store.create(NewConversation(id="demo", model="m"))
    for number in range(4):
        questions = (plain_message("user", f"Question {number}"),)
        lease = await store.begin_turn("demo", TurnStart(id=f"t{number}", messages=questions))
        messages = (*questions, plain_message("assistant", f"Answer {number}"))
        turn = msgspec.structs.replace(lease.turn, messages=messages, state="complete")
        await store.finish_turn(lease, turn)
    await store.update("demo", Changes(summary=FIRST))
    await store.update("demo", Changes(summary=SECOND))
    return store


def edit(folder: Path, change: Any) -> None:
    path = folder / "demo.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document["messages"])
    path.write_text(json.dumps(document), encoding="utf-8")


def _reword(place: int) -> Any:
    return lambda messages: messages[place].update(content="Something else")


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        (lambda _: None, SECOND),
        (_reword(7), SECOND),
        (lambda messages: messages.append({"role": "user", "content": "More"}), SECOND),
        (_reword(4), FIRST),
        (_reword(2), FIRST),
        (_reword(0), None),
        (lambda messages: messages.__delitem__(slice(2, 4)), FIRST),
        (lambda messages: messages.insert(0, {"role": "user", "content": "First"}), None),
        (lambda messages: messages.__delitem__(slice(1, None)), None),
    ],
    ids=[
        "nothing",
        "behind it",
        "more",
        "reworded",
        "reworded before",
        "the first reworded",
        "a turn deleted",
        "put before all",
        "nearly all deleted",
    ],
)
async def test_a_summary_is_valid_until_its_messages_change(change, standing, store, tmp_path):
    edit(tmp_path, change)

    assert (await store.load("demo")).summary == standing
