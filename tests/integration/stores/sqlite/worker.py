"""One process that takes turns in a conversation: FILE, a NAME for its turns, how many, how.

Prints the id of every turn after it is saved.
"""

import asyncio
import sys
from datetime import UTC, datetime

import msgspec

from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, TurnStart
from cllm.stores.sqlite.store import SqliteStore


async def take_turn(store: SqliteStore, turn_id: str, *, visible: bool) -> None:
    question = plain_message("user", turn_id)
    lease = await store.begin_turn(
        "demo",
        TurnStart(id=turn_id, messages=(question,), visible=visible),
        create=NewConversation(id="demo", model="m"),
        wait=None,
    )
    answer = plain_message("assistant", f"{turn_id}? " + "x" * 2000)
    await store.finish_turn(
        lease, msgspec.structs.replace(lease.turn, state="complete", messages=(question, answer))
    )


async def main(path: str, name: str, count: int, how: str) -> None:
    store = SqliteStore(path, clock=lambda: datetime.now(UTC), lease_seconds=1)
    print("ready", flush=True)  # noqa: T201
    for number in range(count):
        turn_id = f"{name}-{number}"
        await take_turn(store, turn_id, visible=how == "visible")
        print(turn_id, flush=True)  # noqa: T201
    await store.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
