"""Moves conversations between stores: added, read back, compared, and only then deleted.

Never deletes a conversation of the target, which can be one of the stores that are moved.
"""

from collections.abc import Callable, Sequence

import msgspec

from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import ConversationNotFoundError, InvalidIdError, UsageError
from cllm.core.ports import Clock, Store
from cllm.core.ports.snapshot import ComparableStore
from cllm.transfer.report import ImportReport
from cllm.transfer.store_reader import list_stores, list_summaries, load_all
from cllm.transfer.writer import ImportWriter, is_same_content

SAME_STORE = "The conversations are in this store already; name another one with --to."


class MoveResult(msgspec.Struct, kw_only=True):
    count: int = 0
    problems: list[str] = msgspec.field(default_factory=list)


async def move_conversations(
    source: Store,
    target: Store,
    refs: Sequence[str],
    *,
    clock: Clock,
    is_copy: bool = False,
    is_new: bool = False,
    on_item: Callable[[], object] = lambda: None,
) -> MoveResult:
    """Move these conversations, or all if none is named. A repeated move completes the first.

    `is_new`: the target does not exist; it is created with the first conversation.
    """
    result = MoveResult()
    source = await _exclude_target(source, target)
    summaries = await _select(source, None if is_new else target, refs, result)
    report = ImportReport()
    writer = ImportWriter(target, report, clock=clock)
    async for summary, loaded in load_all(source, summaries):
        on_item()
        if not isinstance(loaded, StoredConversation):
            result.problems.append(str(loaded))
            continue
        await writer.add(loaded)
        if report.skipped:
            result.problems.append(f"{summary.ref}: {report.skipped.pop().reason}.")
        elif not is_same_content(await target.load(loaded.ref), loaded):
            result.problems.append(f"{summary.ref}: the copy differs; nothing was deleted.")
        else:
            result.count += 1
            if not is_copy:
                await _delete(source, target, loaded, result)
    return result


async def _exclude_target(source: Store, target: Store) -> Store:
    """Return the source without the target, or raise UsageError if they are the same store.

    A database that cannot be reached is an error: it could be the target.
    """
    stores = list_stores(source)
    others = [store for store in stores if not await _is_same_store(store, target)]
    if not others:
        raise UsageError(SAME_STORE)
    return source if len(others) == len(stores) else others[0]


async def _is_same_store(store: Store, target: Store) -> bool:
    if store is target:
        return True
    return isinstance(store, ComparableStore) and await store.is_same_store(target)


async def _select(
    source: Store, target: Store | None, refs: Sequence[str], result: MoveResult
) -> list[Summary]:
    if not refs:
        summaries, notices = await list_summaries(source)
        result.problems += (notice.message for notice in notices)
        return summaries
    found = [(ref, await _find_summary(source, target, ref)) for ref in refs]
    result.problems += (
        f"{ref}: it is in the other store already." for ref, summary in found if summary is None
    )
    return [summary for _, summary in found if summary is not None]


async def _find_summary(source: Store, target: Store | None, ref: str) -> Summary | None:
    """Return the summary; None if only the target has the conversation, as after a move."""
    try:
        return await source.summary(ref)
    except (ConversationNotFoundError, InvalidIdError):
        if target is None or not await _has_conversation(target, ref):
            raise
        return None


async def _has_conversation(store: Store, ref: str) -> bool:
    try:
        await store.summary(ref)
    except (ConversationNotFoundError, InvalidIdError):
        return False
    return True


async def _delete(
    source: Store, target: Store, copied: StoredConversation, result: MoveResult
) -> None:
    """Delete the original, unless it has changed since it was copied.

    Raises UsageError if the copy is gone then, and restores it: a folder that is mounted twice is
    one store, although its paths do not show it.
    """
    if await source.load(copied.id) != copied:
        result.count -= 1
        result.problems.append(f"{copied.ref}: it changed during the move; move it again.")
        return
    await source.delete(copied.id)
    if not await _has_conversation(target, copied.ref):
        await target.add(copied, preserve_times=True)
        raise UsageError(SAME_STORE)
