"""Imports a source into a store: files of other programs, or another store of cllm."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from cllm.core.conversation import LOCAL_OWNER, StoredConversation
from cllm.core.ports import Clock, Store
from cllm.stores.registry import SCHEME_ALIASES, SCHEMES, open_store
from cllm.transfer.detection import is_database, open_source
from cllm.transfer.message_tree import ImportedConversation
from cllm.transfer.report import ImportReport
from cllm.transfer.store_reader import list_summaries, load_all
from cllm.transfer.writer import ImportWriter

Item = ImportedConversation | StoredConversation


async def import_source(
    source: str,
    writer: ImportWriter,
    *,
    name: str | None,
    clock: Clock,
    on_item: Callable[[], object] = lambda: None,
) -> None:
    """Import everything; `on_item` is called for each conversation.

    `source` is a path or the URL of a store. A cancellation leaves no part of a conversation.
    """
    async for item in _read_source(source, writer.report, name=name, clock=clock):
        on_item()
        await writer.add(item)
        # Stores that never wait would not notice a cancellation.
        await asyncio.sleep(0)


async def _read_source(
    source: str, report: ImportReport, *, name: str | None, clock: Clock
) -> AsyncIterator[Item]:
    if is_store_url(source):
        async for item in _read_store(source, report, clock):
            yield item
        return
    path = Path(source)
    chosen, archive, read = open_source(path, name)
    try:
        if chosen == "cllm" and is_database(archive):
            async for item in _read_store(f"sqlite:{path}", report, clock):
                yield item
            return
        for item in read(archive, report):
            yield item
    finally:
        archive.close()


def is_store_url(source: str) -> bool:
    scheme, colon, _ = source.partition(":")
    return bool(colon) and (scheme in SCHEMES or scheme in SCHEME_ALIASES)


async def _read_store(url: str, report: ImportReport, clock: Clock) -> AsyncIterator[Item]:
    store: Store = open_store(url, clock=clock)
    try:
        summaries, notices = await list_summaries(store)
        for notice in notices:
            report.skip(notice.message.rstrip("."), damaged=True)
        for owner in await store.list_owners():
            if owner != LOCAL_OWNER:
                report.note(f"the conversations of the owner '{owner}' were left out")
        async for summary, loaded in load_all(store, summaries):
            if isinstance(loaded, StoredConversation):
                yield loaded
            else:
                report.skip(str(loaded).rstrip("."), damaged=True, id=summary.ref)
    finally:
        await store.close()
