"""Moves conversations between stores: added, read back, compared, and only then deleted.

Never deletes a conversation of the target, which can be one of the stores that are moved.
"""

from collections.abc import Callable, Sequence

import msgspec

from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import ConversationNotFoundError, InvalidIdError, UsageError
from cllm.core.ports import Clock, NewConversation, Store
from cllm.transfer.report import ImportReport
from cllm.transfer.store_reader import list_stores, list_summaries, load_all
from cllm.transfer.writer import ImportWriter, is_same_content


class MoveResult(msgspec.Struct, kw_only=True):
    count: int = 0
    problems: list[str] = msgspec.field(default_factory=list)


async def move_conversations(
    source: Store,
    target: Store,
    refs: Sequence[str],
    *,
    clock: Clock,
    new_id: Callable[[], str],
    is_copy: bool = False,
    on_item: Callable[[], object] = lambda: None,
) -> MoveResult:
    """Move these conversations, or all if none is named. A repeated move completes the first."""
    result = MoveResult()
    source = await _exclude_target(source, target, new_id())
    summaries = await _select(source, refs, result)
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
                await _delete(source, loaded, result)
    return result


async def _exclude_target(source: Store, target: Store, probe_id: str) -> Store:
    """Return the source without the target, or raise UsageError if they are the same store.

    Two URLs can name one store, so the stores are compared by a conversation in the target.
    A store that is unavailable, such as a locked file, is an error: it could be the target.
    """
    stores = list_stores(source)
    probe = await target.create(NewConversation(id=probe_id, is_side=True))
    try:
        others = [store for store in stores if not await _has_conversation(store, probe.id)]
    finally:
        await target.delete(probe.id)
    if not others:
        raise UsageError("The conversations are in this store already; name another one with --to.")
    return source if len(others) == len(stores) else others[0]


async def _has_conversation(store: Store, ref: str) -> bool:
    try:
        await store.summary(ref)
    except (ConversationNotFoundError, InvalidIdError):
        return False
    return True


async def _select(store: Store, refs: Sequence[str], result: MoveResult) -> list[Summary]:
    if refs:
        return [await store.summary(ref) for ref in refs]
    summaries, notices = await list_summaries(store)
    result.problems += (notice.message for notice in notices)
    return summaries


async def _delete(store: Store, copied: StoredConversation, result: MoveResult) -> None:
    """Delete the original, unless it has changed since it was copied."""
    if await store.load(copied.id) == copied:
        await store.delete(copied.id)
    else:
        result.count -= 1
        result.problems.append(f"{copied.ref}: it changed during the move; move it again.")
