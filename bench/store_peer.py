"""Conversations kept by others, for `store_sql.py`: measured where they are installed, when asked.

Reads a line `NAME TURNS FOLDER`: fills a conversation with so many turns, once, and answers with
the seconds of processor time that one more turn takes, and with the size of its database.
LangGraph's checkpointer loads the state and writes it as its graphs do with one node: the input,
then the answer. The Agents SDK's session loads the newest 40 items and adds two.
"""

import asyncio
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

SAID = "Tell me more about this. " * 41
WINDOW = 40
TURNS = 10


@cache
def langgraph(turns: int, folder: str) -> Callable[[], None]:
    saver: Any = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    base: Any = import_module("langgraph.checkpoint.base")
    core: Any = import_module("langchain_core.messages")
    path = f"{folder}/langgraph-{turns}.db"
    keeper = saver(sqlite3.connect(path, check_same_thread=False))
    config: dict[str, Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    said: list[Any] = []

    def put(number: int, source: str) -> None:
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(said)}
        checkpoint["channel_versions"] = {"messages": number}
        metadata = {"source": source, "step": number, "parents": {}}
        keeper.put(config, checkpoint, metadata, {"messages": number})

    def turn() -> None:
        keeper.get_tuple(config)
        said.append(core.HumanMessage(SAID, id=str(uuid.uuid4())))
        put(len(said), "input")
        said.append(core.AIMessage(SAID, id=str(uuid.uuid4())))
        put(len(said), "loop")

    for _ in range(turns):
        turn()
    return turn


@cache
def agents(turns: int, folder: str) -> Callable[[], None]:
    session: Any = import_module("agents.memory.sqlite_session").SQLiteSession
    keeper = session("1", f"{folder}/agents-{turns}.db")
    loop = asyncio.new_event_loop()

    async def turn() -> None:
        await keeper.get_items(limit=WINDOW)
        await keeper.add_items([{"role": "user", "content": SAID}])
        await keeper.add_items([{"role": "assistant", "content": SAID}])

    for _ in range(turns):
        loop.run_until_complete(turn())
    return lambda: loop.run_until_complete(turn())


PEERS = {"langgraph": langgraph, "agents": agents}


def main() -> None:
    for line in sys.stdin:
        name, turns, folder = line.split()
        turn = PEERS[name](int(turns), folder)
        size = sum(path.stat().st_size for path in Path(folder).glob(f"{name}-{turns}.db*"))
        began = time.process_time()
        for _ in range(TURNS):
            turn()
        print((time.process_time() - began) / TURNS, size, flush=True)


if __name__ == "__main__":
    main()
