"""One process that takes turns in a conversation: FOLDER, a NAME for its turns, how many, how.

Prints the id of every turn after it is saved.
"""

import asyncio
import itertools
import sys
from datetime import UTC, datetime

import msgspec

from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, TurnStart
from cllm.stores.json.store import JsonFileStore


async def take_turn(store: JsonFileStore, turn_id: str, *, visible: bool) -> None:
    question = plain_message("user", turn_id)
    lease = await store.begin_turn(
        "demo",
        TurnStart(id=turn_id, messages=(question,), visible=visible),
        create=NewConversation(id="demo", model="m"),
        wait=None,
    )
    await asyncio.sleep(0.001)
    answer = plain_message("assistant", f"{turn_id}? " + "x" * 2000)
    await store.finish_turn(
        lease, msgspec.structs.replace(lease.turn, state="complete", messages=(question, answer))
    )


async def main(folder: str, name: str, count: int, how: str) -> None:
    store = JsonFileStore(folder, clock=lambda: datetime.now(UTC))
    print("ready", flush=True)  # noqa: T201
    for number in itertools.islice(itertools.count(), count):
        turn_id = f"{name}-{number}"
        await take_turn(store, turn_id, visible=how == "visible")
        print(turn_id, flush=True)  # noqa: T201


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
