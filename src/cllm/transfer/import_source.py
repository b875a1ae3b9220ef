"""Imports a source into a store: files of other programs, or another store of cllm.

    report = ImportReport()
    writer = ImportWriter(store, report, clock=clock, owner=owner, dry_run=False)
    await import_source(path, writer, name=None, clock=clock, on_item=on_item,
                        can_read_neighbours=False)

- `source`: a Path is a file, an archive or a folder. A text can also be the URL of a store. A
  server passes the Path of its own copy of an upload, never a text of a client.
- `writer`: has the store, the owner of the conversations, and the report, which is up to date
  after every conversation, also if the import is cancelled.
- `name`: the name of the format (`cllm.transfer.detection.FORMATS`); None: by the content.
- `on_item`: is called in the event loop before each conversation, without arguments; an exception
  that it raises ends the import.
- `can_read_neighbours`: whether files outside of the source that it refers to are read: the
  attachments of `llm` on the disk, the index of Codex next to its sessions. False for uploads.

It prints nothing and changes only the store. It raises UsageError, one sentence, for a source that
cannot be read at all; all else is in the report. Files are read in a thread. A cancellation takes
effect between two conversations: the current one is completed, and a repeated import continues.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from cllm.core.conversation import LOCAL_OWNER, StoredConversation
from cllm.core.ports import Clock, Store
from cllm.stores.registry import SCHEME_ALIASES, SCHEMES, open_store
from cllm.transfer.detection import is_database, open_source
from cllm.transfer.message_tree import ImportedConversation
from cllm.transfer.report import ImportReport
from cllm.transfer.store_reader import list_summaries, load_all
from cllm.transfer.writer import ImportWriter

Item = ImportedConversation | StoredConversation
Result = TypeVar("Result")


async def import_source(
    source: str | Path,
    writer: ImportWriter,
    *,
    name: str | None,
    clock: Clock,
    on_item: Callable[[], object] = lambda: None,
    can_read_neighbours: bool = True,
) -> None:
    """Import everything; the module describes the arguments."""
    items = _read_source(
        source, writer.report, name=name, clock=clock, can_read_neighbours=can_read_neighbours
    )
    try:
        async for item in items:
            on_item()
            await _complete(writer.add(item))
            # Stores that never wait would not notice a cancellation.
            await asyncio.sleep(0)
    finally:
        await items.aclose()


async def _complete(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a step to its end although the caller is cancelled, then raise the cancellation."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
    return task.result()


async def _read_source(
    source: str | Path,
    report: ImportReport,
    *,
    name: str | None,
    clock: Clock,
    can_read_neighbours: bool,
) -> AsyncGenerator[Item, None]:
    if isinstance(source, str) and is_store_url(source):
        async for item in _read_store(source, report, clock):
            yield item
        return
    path = Path(source)
    chosen, archive, read = await _complete(asyncio.to_thread(open_source, path, name))
    archive.can_read_neighbours = can_read_neighbours
    items: Iterator[Item] = iter(())
    try:
        if chosen == "cllm" and is_database(archive):
            async for item in _read_store(f"sqlite:{path}", report, clock):
                yield item
            return
        items = read(archive, report)
        while (found := await _complete(asyncio.to_thread(_read_next, items))) is not None:
            yield found
    finally:
        if isinstance(items, Generator):
            items.close()
        archive.close()


def _read_next(items: Iterator[Item]) -> Item | None:
    return next(items, None)


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
