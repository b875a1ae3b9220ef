"""Measures other libraries that store conversations, for `history_growth.py`.

Runs in the environment where these libraries are installed. Reads lines
`NAME MESSAGES COPIES FOLDER`, fills this many conversations of this length once, and prints
the CPU and wall seconds of one more turn. The turns go through the conversations in a circle.

LangGraph's checkpointer loads the state and writes it as a graph with one node does: the input,
then the reply. The Agents SDK's session loads the newest 40 items and adds two. Both sync every
commit to the disk.
"""

import asyncio
import itertools
import sqlite3
import sys
import uuid
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from measurement import measure_for

TEXT = "Tell me more about this. " * 41
WINDOW = 40
MEASURED_SECONDS = 0.1
MAX_TURNS = 8


@cache
def langgraph(messages: int, copies: int, folder: str) -> Callable[[], None]:
    saver: Any = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    base: Any = import_module("langgraph.checkpoint.base")
    core: Any = import_module("langchain_core.messages")
    storage = saver(sqlite3.connect(f"{folder}/langgraph.db", check_same_thread=False))

    def put(config: dict[str, Any], history: list[Any], source: str) -> None:
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(history)}
        checkpoint["channel_versions"] = {"messages": len(history)}
        metadata = {"source": source, "step": len(history), "parents": {}}
        storage.put(config, checkpoint, metadata, {"messages": len(history)})

    def add_question(history: list[Any]) -> None:
        history.append(core.HumanMessage(TEXT, id=str(uuid.uuid4())))

    def add_reply(history: list[Any]) -> None:
        history.append(core.AIMessage(TEXT, id=str(uuid.uuid4())))

    def start(number: int) -> dict[str, Any]:
        history: list[Any] = []
        for _ in range(messages // 2):
            add_question(history)
            add_reply(history)
        thread = f"{messages}-{number}"
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        put(config, history, "loop")
        return config

    configs = itertools.cycle([start(number) for number in range(copies)])

    def turn() -> None:
        config = next(configs)
        history = storage.get_tuple(config).checkpoint["channel_values"]["messages"]
        add_question(history)
        put(config, history, "input")
        add_reply(history)
        put(config, history, "loop")

    return turn


@cache
def agents(messages: int, copies: int, folder: str) -> Callable[[], None]:
    session: Any = import_module("agents.memory.sqlite_session").SQLiteSession
    loop = asyncio.new_event_loop()
    question, reply = ({"role": role, "content": TEXT} for role in ("user", "assistant"))

    def start(number: int) -> Any:
        storage = session(f"{messages}-{number}", f"{folder}/agents.db")
        loop.run_until_complete(storage.add_items([question, reply] * (messages // 2)))
        return storage

    sessions = itertools.cycle([start(number) for number in range(copies)])

    async def turn() -> None:
        storage = next(sessions)
        await storage.get_items(limit=WINDOW)
        await storage.add_items([question])
        await storage.add_items([reply])

    return lambda: loop.run_until_complete(turn())


PEERS = {"langgraph": langgraph, "agents": agents}


def main() -> None:
    for line in sys.stdin:
        name, messages, copies, folder = line.split()
        turn = PEERS[name](int(messages), int(copies), folder)
        cost = measure_for(turn, MEASURED_SECONDS, max_times=MAX_TURNS)
        print(cost.cpu, cost.wall, flush=True)


if __name__ == "__main__":
    main()
