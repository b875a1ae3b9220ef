"""Conversations in a SQLite database, for servers of the browser tests."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cllm.app import new_id, now
from cllm.core.conversation import StoredConversation, SystemRecord, Turn
from cllm.core.message import plain_message
from cllm.core.reply import Usage
from cllm.stores.registry import open_store

DYNAMIC = SystemRecord(policy="dynamic")


def build_conversation(
    number: int, *texts: str, at: datetime | None = None, cost: float | None = 0.25, **fields: Any
) -> StoredConversation:
    """Return a conversation of one turn whose texts alternate between user and assistant."""
    time = at or datetime.now(UTC) - timedelta(minutes=number)
    texts = texts or (f"Question {number}", f"Reply {number}")
    turn = Turn(
        id=new_id(),
        place=new_id(),
        state="complete",
        messages=tuple(
            plain_message("assistant" if index % 2 else "user", text)
            for index, text in enumerate(texts)
        ),
        started_at=time,
        ended_at=time,
        model="openai/gpt-test",
        provider="openai",
        usage=Usage(input=1200, output=34),
        cost=cost,
    )
    defaults = {"model": "openai/gpt-test", "title": texts[0], "system_record": DYNAMIC}
    return StoredConversation(
        id=new_id(), created_at=time, updated_at=time, turns=(turn,), **{**defaults, **fields}
    )


def add_conversations(database: Path, conversations: Iterable[StoredConversation]) -> None:
    async def add() -> None:
        store = open_store(f"sqlite:{database}?synchronous=normal", clock=now)
        for conversation in conversations:
            await store.add(conversation, preserve_times=True)
        await store.close()

    # Playwright runs an event loop in this thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, add()).result()
