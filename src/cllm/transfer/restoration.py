"""Adds the conversations of a backup to a store, after a check of all digests.

The parts of a backup return to the kind of store that they come from, if the target has it.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from cllm.core.conversation import StoredConversation
from cllm.core.errors import BrokenConversationError, ConversationNotFoundError, UsageError
from cllm.core.ports import Clock, Store
from cllm.core.ports.snapshot import FileStore, SnapshotStore, StoredFile
from cllm.stores.edits import mark_interrupted
from cllm.transfer.backup import ADVICE, BackupEntry, BackupFile
from cllm.transfer.report import ImportReport
from cllm.transfer.store_reader import list_stores, list_summaries
from cllm.transfer.writer import DIFFERS, ImportWriter, is_same_content
from cllm.wire.conversation_file.codec import decode_conversation

ROWS_PER_TRANSACTION = 500
NO_DATABASE = (
    "rows of a server (usage without a conversation, stored responses, stream events) need a "
    "database; restore the backup with --store sqlite:PATH"
)


async def restore_backup(
    backup: BackupFile,
    store: Store,
    *,
    clock: Clock,
    merge: bool = False,
    on_item: Callable[[], object] = lambda: None,
) -> ImportReport:
    """Add what does not exist yet. An interrupted restore can be repeated.

    Raises UsageError if the backup is damaged, or if the store has other conversations and not
    `merge`.
    """
    damaged = next(backup.find_problems(), None)
    if damaged is not None:
        raise UsageError(f"{backup.path} is damaged ({damaged.rstrip('.')}); {ADVICE}.")
    stores = list_stores(store)
    if not merge:
        for one in stores:
            await _check_target(backup, one)
    report = ImportReport()
    writers: dict[tuple[int, str], ImportWriter] = {}
    for entry in backup.manifest.conversations:
        on_item()
        target = _choose_store(entry, stores)
        if entry.source == "files" and isinstance(target, FileStore):
            await _add_file(backup, entry, target, report)
            continue
        writer = writers.setdefault(
            (id(target), entry.owner),
            ImportWriter(target, report, clock=clock, owner=entry.owner),
        )
        await writer.add(backup.load(entry))
    await _add_rows(backup, stores, report)
    return report


def _choose_store(entry: BackupEntry, stores: Sequence[Store]) -> Store:
    """Return the store of the kind that the conversation comes from, or the first one."""
    if entry.needs_database:
        return next((one for one in stores if isinstance(one, SnapshotStore)), stores[0])
    if entry.source == "files":
        return next((one for one in stores if isinstance(one, FileStore)), stores[0])
    return stores[0]


async def _add_file(
    backup: BackupFile, entry: BackupEntry, store: FileStore, report: ImportReport
) -> None:
    """Write a conversation file byte for byte, unless it exists."""
    file, conversation = backup.read(entry), backup.load(entry)
    try:
        existing = await store.read_file(entry.id)
    except BrokenConversationError:
        report.skip(DIFFERS, id=conversation.ref, title=conversation.title)
        return
    except ConversationNotFoundError:
        await store.add_file(entry.id, file)
        report.imported += 1
        report.messages += conversation.message_count
        return
    if existing.data == file.data or _is_same(existing, conversation):
        report.unchanged += 1
    else:
        report.skip(DIFFERS, id=conversation.ref, title=conversation.title)


def _is_same(file: StoredFile, conversation: StoredConversation) -> bool:
    """Whether the stored file has this conversation, in another spelling."""
    try:
        stored = decode_conversation(
            file.data,
            conversation_id=conversation.id,
            path=file.path,
            modified_at=file.modified_at,
        )
    except BrokenConversationError:
        return False
    return is_same_content(mark_interrupted(stored.conversation), conversation)


async def _add_rows(backup: BackupFile, stores: Sequence[Store], report: ImportReport) -> None:
    database = next((one for one in stores if isinstance(one, SnapshotStore)), None)
    for entry in backup.manifest.server_rows:
        if database is None:
            report.notes[NO_DATABASE] = report.notes.get(NO_DATABASE, 0) + entry.rows
            continue
        rows = backup.read_rows(entry)
        while batch := list(islice(rows, ROWS_PER_TRANSACTION)):
            await database.add_server_rows(batch)


async def _check_target(backup: BackupFile, store: Store) -> None:
    saved = {(entry.owner, entry.id) for entry in backup.manifest.conversations}
    saved |= {(entry.owner, entry.name or entry.id) for entry in backup.manifest.conversations}
    for owner in await store.list_owners():
        summaries, _ = await list_summaries(store, owner=owner)
        other = next((each for each in summaries if (owner, each.id) not in saved), None)
        if other is not None:
            raise UsageError(
                f"The store has conversations that are not in the backup, such as '{other.ref}'; "
                "restore into an empty store, or add the backup to it with --merge."
            )
