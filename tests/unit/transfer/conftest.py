from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.core.ports import Store
from cllm.stores.memory import MemoryStore
from cllm.transfer.import_source import import_source
from cllm.transfer.report import ImportReport
from cllm.transfer.writer import ImportWriter

Import = Callable[..., Coroutine[Any, Any, ImportReport]]


@pytest.fixture
def store() -> Store:
    return MemoryStore(clock=now)


@pytest.fixture
def import_file(store: Store) -> Import:
    async def run(path: Path, name: str | None = None, **options: Any) -> ImportReport:
        report = ImportReport()
        writer = ImportWriter(store, report, clock=now, **options)
        await import_source(str(path), writer, name=name, clock=now)
        return report

    return run


async def list_all(store: Store) -> dict[str, StoredConversation]:
    """Return all conversations by title."""
    page = await store.list_conversations(archive_filter="all", side=True, limit=1000)
    loaded = [await store.load(summary.id) for summary in page.items]
    return {conversation.title or "": conversation for conversation in loaded}


def texts(conversation: StoredConversation) -> list[str]:
    return [message.text for turn in conversation.turns for message in turn.messages]
