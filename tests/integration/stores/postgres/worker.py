"""One process that takes turns in a conversation: URL, a NAME for its turns, whether they show.

Prints the id of every turn after it is saved.
"""

import asyncio
import itertools
import sys
from datetime import UTC, datetime

from cllm.core.errors import StaleLeaseError
from cllm.core.ports import NewConversation
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_contract import answered, start


async def main(url: str, name: str, how: str) -> None:
    store = PostgresStore(url, clock=lambda: datetime.now(UTC), lease_seconds=0.3)
    new = NewConversation(id="demo")
    print("ready", flush=True)  # noqa: T201
    for number in itertools.count():
        begun = start(f"{name}-{number}", visible=how == "visible")
        lease = await store.begin_turn("demo", begun, create=new, wait=None, tail="window")
        try:
            await store.finish_turn(lease, answered(lease))
        except StaleLeaseError:  # a slow machine: the lease is short
            continue
        print(lease.turn.id, flush=True)  # noqa: T201


asyncio.run(main(*sys.argv[1:]))
