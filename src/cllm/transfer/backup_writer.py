"""Writes a backup of a store as it is at one moment.

A database is read in one transaction. The files of a folder are read again until none has changed
since it was read.
"""

import hashlib
import zipfile
from collections.abc import Callable
from datetime import datetime
from typing import IO, BinaryIO
from urllib.parse import quote

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation
from cllm.core.errors import (
    CllmError,
    ConversationNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from cllm.core.ports import Store
from cllm.core.ports.snapshot import FileStore, ServerRow, Snapshot, SnapshotStore, StoredFile
from cllm.transfer.backup import (
    SERVER_ROWS,
    BackupEntry,
    BackupManifest,
    EntrySource,
    RowsEntry,
)
from cllm.transfer.importers.cllm_files import MANIFEST
from cllm.transfer.json_stream import MAX_LINE_BYTES, MAX_OBJECT_BYTES
from cllm.transfer.store_reader import list_stores, list_summaries, load_all
from cllm.wire.conversation_file.codec import decode_conversation, encode_conversation

MAX_ROUNDS = 20
TOO_LARGE = f"it has more than {MAX_OBJECT_BYTES} bytes, and a backup cannot contain it"
UNSTABLE = (
    "The conversation files changed during the whole backup, so they are not saved as they are at "
    "one moment; run the backup again."
)


class BackupResult(msgspec.Struct, frozen=True, kw_only=True):
    """`counts`: the conversations of each store; `problems`: what could not be read."""

    manifest: BackupManifest
    counts: tuple[int, ...]
    problems: tuple[str, ...]


async def write_backup(
    store: Store,
    file: BinaryIO,
    *,
    now: datetime,
    version: str,
    on_item: Callable[[], object] = lambda: None,
) -> BackupResult:
    """Write all conversations of all owners."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        writer = _BackupWriter(archive, on_item)
        stores = list_stores(store)
        counts: list[int] = []
        for one in stores:
            before = len(writer.entries)
            try:
                await writer.add_store(one)
            except StoreUnavailableError as error:
                # The other store of a combined one is saved.
                if len(stores) == 1:
                    raise
                writer.problems.append(str(error))
            counts.append(len(writer.entries) - before)
        manifest = BackupManifest(
            created_at=now,
            cllm=version,
            conversations=tuple(writer.entries),
            server_rows=tuple(writer.rows),
        )
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        archive.writestr(MANIFEST, encoded + b"\n")
    return BackupResult(manifest=manifest, counts=tuple(counts), problems=tuple(writer.problems))


class _BackupWriter:
    def __init__(self, archive: zipfile.ZipFile, on_item: Callable[[], object]) -> None:
        self._archive = archive
        self._on_item = on_item
        self._names: set[str] = set()
        self.entries: list[BackupEntry] = []
        self.rows: list[RowsEntry] = []
        self.problems: list[str] = []

    async def add_store(self, store: Store) -> None:
        if isinstance(store, FileStore):
            await self._add_files(store)
        elif isinstance(store, SnapshotStore):
            async with store.open_snapshot() as snapshot:
                await self._add_snapshot(snapshot)
        else:
            await self._add_conversations(store)

    async def _add_files(self, store: FileStore) -> None:
        """Save the files byte for byte, with keys that cllm does not know."""
        states: dict[str, str] = {}
        saved: dict[str, BackupEntry | str | None] = {}
        for _ in range(MAX_ROUNDS):
            current = await store.list_files()
            changed = sorted(key for key in current if current[key] != states.get(key))
            states = current
            if not changed:
                break
            for key in changed:
                self._on_item()
                saved[key] = await self._add_file(store, key)
        else:
            self.problems.append(UNSTABLE)
        results = [saved[key] for key in sorted(states)]
        self.entries += (entry for entry in results if isinstance(entry, BackupEntry))
        self.problems += (problem for problem in results if isinstance(problem, str))

    async def _add_file(self, store: FileStore, key: str) -> BackupEntry | str | None:
        """Save a file, or return the problem; None if it was deleted meanwhile."""
        try:
            file = await store.read_file(key)
            conversation = decode_conversation(
                file.data, conversation_id=key, path=file.path, modified_at=file.modified_at
            ).conversation
        except ConversationNotFoundError:
            return None
        except StoreError as error:
            return str(error)
        return self._save(conversation, LOCAL_OWNER, file.data, source="files", file=file)

    async def _add_snapshot(self, snapshot: Snapshot) -> None:
        for owner, key in await snapshot.list_keys():
            self._on_item()
            try:
                conversation = await snapshot.load(key, owner=owner)
            except StoreError as error:
                if type(error) is StoreUnavailableError:
                    raise
                self.problems.append(f"{key}: {error}")
                continue
            self._encode(conversation, owner, source="database")
        await self._add_rows(snapshot)

    async def _add_conversations(self, store: Store) -> None:
        for owner in await store.list_owners():
            summaries, notices = await list_summaries(store, owner=owner)
            self.problems += (notice.message for notice in notices)
            async for _, loaded in load_all(store, summaries, owner=owner):
                self._on_item()
                if isinstance(loaded, StoredConversation):
                    self._encode(loaded, owner, source=None)
                else:
                    self.problems.append(str(loaded))

    def _encode(
        self, conversation: StoredConversation, owner: str, *, source: EntrySource | None
    ) -> None:
        try:
            data = encode_conversation(conversation)
        except CllmError as error:
            self.problems.append(f"{conversation.ref}: {error}")
            return
        saved = self._save(conversation, owner, data, source=source)
        if isinstance(saved, str):
            self.problems.append(saved)
        else:
            self.entries.append(saved)

    def _save(
        self,
        conversation: StoredConversation,
        owner: str,
        data: bytes,
        *,
        source: EntrySource | None,
        file: StoredFile | None = None,
    ) -> BackupEntry | str:
        if len(data) > MAX_OBJECT_BYTES:
            return f"{conversation.ref}: {TOO_LARGE}."
        folder = "conversations"
        if owner != LOCAL_OWNER:
            folder = f"owners/{quote(owner, safe='').replace('.', '%2E')}"
        entry = BackupEntry(
            file=self._choose_name(f"{folder}/{conversation.id}", ".json"),
            owner=owner,
            id=conversation.id,
            name=conversation.name,
            messages=conversation.message_count,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            source=source,
            modified_at=None if file is None else file.modified_at,
        )
        self._archive.writestr(entry.file, data)
        return entry

    def _choose_name(self, stem: str, suffix: str) -> str:
        """Return a new name: two stores can have the same ID, and a file can be read again."""
        name, number = f"{stem}{suffix}", 1
        while name in self._names:
            number += 1
            name = f"{stem}.{number}{suffix}"
        self._names.add(name)
        return name

    async def _add_rows(self, snapshot: Snapshot) -> None:
        stream: IO[bytes] | None = None
        digest = hashlib.sha256()
        size = count = 0
        name = self._choose_name(SERVER_ROWS, "")
        try:
            async for row in snapshot.read_server_rows():
                line = self._encode_row(row)
                if line is None:
                    continue
                if stream is None:
                    stream = self._archive.open(name, "w", force_zip64=True)
                stream.write(line)
                digest.update(line)
                size, count = size + len(line), count + 1
        finally:
            if stream is not None:
                stream.close()
        if count:
            sha256 = digest.hexdigest()
            self.rows.append(RowsEntry(file=name, rows=count, size=size, sha256=sha256))

    def _encode_row(self, row: ServerRow | StoreError) -> bytes | None:
        if isinstance(row, StoreError):
            self.problems.append(str(row))
            return None
        line = msgspec.json.encode(row) + b"\n"
        if len(line) > MAX_LINE_BYTES:
            self.problems.append(f"A row of the server {TOO_LARGE}.")
            return None
        return line
