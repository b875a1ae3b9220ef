"""One process that branches, edits and deletes conversations of a store: URL and a NAME.

Prints a line after every round.
"""

import asyncio
import itertools
import random
import sys
from datetime import UTC, datetime

from cllm.core.errors import ConversationNotFoundError, SequenceNotFoundError
from cllm.core.ports import NewConversation
from cllm.stores.registry import open_store
from cllm.testing.store_contract import answered, start


async def main(url: str, name: str) -> None:
    store = open_store(url, clock=lambda: datetime.now(UTC))
    chance = random.Random(name)  # noqa: S311
    print("ready", flush=True)  # noqa: T201
    for number in itertools.count():
        own = f"{name}-{number}"
        source = chance.choice(["demo", f"{name}-{number - 1}"])
        try:
            await store.branch(source, NewConversation(id=own), at=chance.choice([None, 3, 4]))
        except (ConversationNotFoundError, SequenceNotFoundError):
            await store.branch("demo", NewConversation(id=own))
        lease = await store.begin_turn(own, start(f"{own}-turn", f"about {own}"))
        await store.finish_turn(lease, answered(lease))
        await store.delete_from(own, chance.choice([2, 3]))
        if number % 2:
            await store.delete(f"{name}-{number - 1}")
        print(own, flush=True)  # noqa: T201


asyncio.run(main(*sys.argv[1:]))
