"""A backup: a ZIP archive of conversation files and `manifest.json` with their digests.

It can be read without cllm. Each conversation is saved as it is at one moment.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal
from urllib.parse import quote

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation
from cllm.core.errors import UsageError
from cllm.core.ports import Clock, Store
from cllm.transfer.archive import UNREADABLE_ENTRY
from cllm.transfer.importers.cllm_files import MANIFEST, decode_file
from cllm.transfer.json_stream import MAX_OBJECT_BYTES, DamagedFileError
from cllm.transfer.report import ImportReport
from cllm.transfer.store_reader import list_summaries, load_all
from cllm.transfer.writer import ImportWriter
from cllm.wire.conversation_file.codec import encode_conversation

VERSION = 1
ADVICE = "use another backup"


class BackupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation: its file in the archive, and the digest of the file."""

    file: str
    owner: str
    id: str
    name: str | None
    messages: int
    size: int
    sha256: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["cllm-backup"] = "cllm-backup"
    version: int = VERSION
    created_at: datetime
    cllm: str
    conversations: tuple[BackupEntry, ...] = ()

    @property
    def message_count(self) -> int:
        return sum(entry.messages for entry in self.conversations)


async def write_backup(
    store: Store,
    file: BinaryIO,
    *,
    now: datetime,
    version: str,
    on_item: Callable[[], object] = lambda: None,
) -> tuple[BackupManifest, list[str]]:
    """Write all conversations of all owners; return the manifest and what could not be read."""
    entries: list[BackupEntry] = []
    problems: list[str] = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for owner in await store.list_owners():
            summaries, notices = await list_summaries(store, owner=owner)
            problems += (notice.message for notice in notices)
            async for _, loaded in load_all(store, summaries, owner=owner):
                on_item()
                if not isinstance(loaded, StoredConversation):
                    problems.append(str(loaded))
                    continue
                data = encode_conversation(loaded)
                entry = _describe(loaded, owner, data)
                archive.writestr(entry.file, data)
                entries.append(entry)
        manifest = BackupManifest(created_at=now, cllm=version, conversations=tuple(entries))
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        archive.writestr(MANIFEST, encoded + b"\n")
    return manifest, problems


def _describe(conversation: StoredConversation, owner: str, data: bytes) -> BackupEntry:
    folder = "conversations"
    if owner != LOCAL_OWNER:
        folder = f"owners/{quote(owner, safe='').replace('.', '%2E')}"
    return BackupEntry(
        file=f"{folder}/{conversation.id}.json",
        owner=owner,
        id=conversation.id,
        name=conversation.name,
        messages=conversation.message_count,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


class BackupFile:
    """An open backup; `path` is for messages. Raises UsageError if it is not a backup."""

    def __init__(self, file: BinaryIO | Path, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(file)
            size = self._zip.getinfo(MANIFEST).file_size
            data = self._read(MANIFEST, size)
            self.manifest = msgspec.json.decode(data, type=BackupManifest)
        except (KeyError, DamagedFileError, msgspec.MsgspecError, *UNREADABLE_ENTRY) as error:
            raise UsageError(f"{path} is not a readable backup of cllm; {ADVICE}.") from error
        if self.manifest.version > VERSION:
            raise UsageError(f"{path} was written by a newer version of cllm; upgrade cllm first.")

    def _read(self, name: str, size: int) -> bytes:
        if size > MAX_OBJECT_BYTES:
            raise DamagedFileError("it is too large")
        try:
            with self._zip.open(name) as stream:
                data = stream.read(size + 1)
        except KeyError:
            raise DamagedFileError("it is missing") from None
        except (zlib.error, *UNREADABLE_ENTRY):
            raise DamagedFileError("it cannot be read") from None
        return data

    def load(self, entry: BackupEntry) -> StoredConversation:
        """Return a conversation; DamagedFileError if it is not the one that was saved."""
        data = self._read(entry.file, entry.size)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise DamagedFileError("its digest differs")
        conversation = decode_file(data)
        if conversation.id != entry.id or conversation.message_count != entry.messages:
            raise DamagedFileError("it is not the conversation in the manifest")
        return conversation

    def find_problems(self, on_item: Callable[[], object] = lambda: None) -> Iterator[str]:
        """Yield one line for each damaged conversation."""
        for entry in self.manifest.conversations:
            on_item()
            try:
                self.load(entry)
            except DamagedFileError as error:
                yield f"{entry.id}: {error}."

    def close(self) -> None:
        self._zip.close()


async def restore_backup(
    backup: BackupFile,
    store: Store,
    *,
    clock: Clock,
    merge: bool = False,
    on_item: Callable[[], object] = lambda: None,
) -> ImportReport:
    """Add the conversations of a backup that do not exist yet, after a check of all digests.

    Raises UsageError if the backup is damaged, or if the store has other conversations and not
    `merge`. An interrupted restore can be repeated.
    """
    damaged = next(backup.find_problems(), None)
    if damaged is not None:
        raise UsageError(f"{backup.path} is damaged ({damaged.rstrip('.')}); {ADVICE}.")
    if not merge:
        await _check_target(backup, store)
    report = ImportReport()
    writers: dict[str, ImportWriter] = {}
    for entry in backup.manifest.conversations:
        on_item()
        writer = writers.setdefault(
            entry.owner, ImportWriter(store, report, clock=clock, owner=entry.owner)
        )
        await writer.add(backup.load(entry))
    return report


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
