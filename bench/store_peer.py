"""Measures other libraries that store conversations, for `store_sqlite.py`.

Runs in the environment where these libraries are installed. Reads lines `NAME TURNS FOLDER`, fills
a conversation with this number of turns once, and prints the CPU seconds of one more turn and the
size of the database in bytes. LangGraph's checkpointer loads the state and writes it as a graph
with one node does: the input, then the reply. The Agents SDK's session loads the newest 40 items
and adds two.
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

TEXT = "Tell me more about this. " * 41
WINDOW = 40
TURNS = 10


@cache
def langgraph(turns: int, folder: str) -> Callable[[], None]:
    saver: Any = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    base: Any = import_module("langgraph.checkpoint.base")
    core: Any = import_module("langchain_core.messages")
    path = f"{folder}/langgraph-{turns}.db"
    storage = saver(sqlite3.connect(path, check_same_thread=False))
    config: dict[str, Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    messages: list[Any] = []

    def put(number: int, source: str) -> None:
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(messages)}
        checkpoint["channel_versions"] = {"messages": number}
        metadata = {"source": source, "step": number, "parents": {}}
        storage.put(config, checkpoint, metadata, {"messages": number})

    def turn() -> None:
        storage.get_tuple(config)
        messages.append(core.HumanMessage(TEXT, id=str(uuid.uuid4())))
        put(len(messages), "input")
        messages.append(core.AIMessage(TEXT, id=str(uuid.uuid4())))
        put(len(messages), "loop")

    for _ in range(turns):
        turn()
    return turn


@cache
def agents(turns: int, folder: str) -> Callable[[], None]:
    session: Any = import_module("agents.memory.sqlite_session").SQLiteSession
    storage = session("1", f"{folder}/agents-{turns}.db")
    loop = asyncio.new_event_loop()

    async def turn() -> None:
        await storage.get_items(limit=WINDOW)
        await storage.add_items([{"role": "user", "content": TEXT}])
        await storage.add_items([{"role": "assistant", "content": TEXT}])

    for _ in range(turns):
        loop.run_until_complete(turn())
    return lambda: loop.run_until_complete(turn())


PEERS = {"langgraph": langgraph, "agents": agents}


def main() -> None:
    for line in sys.stdin:
        name, turns, folder = line.split()
        turn = PEERS[name](int(turns), folder)
        size = sum(path.stat().st_size for path in Path(folder).glob(f"{name}-{turns}.db*"))
        start = time.process_time()
        for _ in range(TURNS):
            turn()
        print((time.process_time() - start) / TURNS, size, flush=True)


if __name__ == "__main__":
    main()
