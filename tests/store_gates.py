"""Store operations that wait until a test lets them continue."""

import asyncio
from typing import Any

import pytest


def block_method(monkeypatch: pytest.MonkeyPatch, store: Any, name: str) -> asyncio.Event:
    """Let calls of a store's method wait for the returned event."""
    gate, call = asyncio.Event(), getattr(store, name)

    async def wait(*args: Any, **options: Any) -> Any:
        await gate.wait()
        return await call(*args, **options)

    monkeypatch.setattr(store, name, wait)
    return gate


async def wait_for_background(tasks: set[asyncio.Task[None]]) -> None:
    """Wait until the tasks, which remove themselves, and those that they add have ended."""
    while tasks:
        await asyncio.wait(set(tasks))
