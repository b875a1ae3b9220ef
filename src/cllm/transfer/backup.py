"""A backup: a ZIP archive of conversation files, and `manifest.json` with their digests.

It can be read without cllm. An entry that the manifest does not name is not part of the backup.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal, cast

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, is_valid_id
from cllm.core.errors import BrokenConversationError, UsageError
from cllm.core.ports.snapshot import ServerRow, StoredFile
from cllm.stores.edits import mark_interrupted
from cllm.transfer.archive import UNREADABLE_ENTRY
from cllm.transfer.importers.cllm_files import MANIFEST, NO_TIME
from cllm.transfer.json_stream import MAX_OBJECT_BYTES, DamagedFileError, iter_lines
from cllm.wire.conversation_file.codec import decode_conversation

VERSION = 2
ADVICE = "use another backup"
SERVER_ROWS = "server_rows.ndjson"
"""The name of the file of rows; an import, which reads files of conversations, leaves it out."""
EntrySource = Literal["files", "database"]


class BackupEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation: its file in the archive, and the digest of the file.

    `modified_at` is the time of a conversation file, which may have no other.
    """

    file: str
    owner: str
    id: str
    name: str | None
    messages: int
    size: int
    sha256: str
    source: EntrySource | None = None
    modified_at: datetime | None = None

    @property
    def needs_database(self) -> bool:
        return self.source == "database" or self.owner != LOCAL_OWNER


class RowsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a server that are not part of a conversation, one JSON object per line."""

    file: str
    rows: int
    size: int
    sha256: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["cllm-backup"] = "cllm-backup"
    version: int = VERSION
    created_at: datetime
    cllm: str
    conversations: tuple[BackupEntry, ...] = ()
    server_rows: tuple[RowsEntry, ...] = ()

    @property
    def message_count(self) -> int:
        return sum(entry.messages for entry in self.conversations)


_row_decoder = msgspec.json.Decoder(ServerRow)


class BackupFile:
    """An open backup; `path` is for messages. Raises UsageError if it is not a backup."""

    def __init__(self, file: BinaryIO | Path, path: Path) -> None:
        self.path = path
        if isinstance(file, Path) and file.exists() and not file.is_file():
            # Opening a pipe would block.
            raise UsageError(f"{path} is not a file; name the file of a backup.")
        if isinstance(file, Path) and not file.exists():
            raise UsageError(f"Cannot read {path} (no such file or directory); check the path.")
        try:
            self._zip = zipfile.ZipFile(file)
            size = self._zip.getinfo(MANIFEST).file_size
            self.manifest = msgspec.json.decode(self._read(MANIFEST, size), type=BackupManifest)
        except (KeyError, DamagedFileError, msgspec.MsgspecError, *UNREADABLE_ENTRY) as error:
            raise UsageError(f"{path} is not a readable backup of cllm; {ADVICE}.") from error
        if self.manifest.version > VERSION:
            raise UsageError(f"{path} was written by a newer version of cllm; upgrade cllm first.")
        names = [entry.file for entry in self.manifest.conversations]
        names += (entry.file for entry in self.manifest.server_rows)
        if len(set(names)) != len(names):
            raise UsageError(f"The manifest of {path} is damaged; {ADVICE}.")

    @property
    def needs_database(self) -> bool:
        """Whether a part comes from a database, or belongs to an owner that files do not have."""
        return bool(self.manifest.server_rows) or any(
            entry.needs_database for entry in self.manifest.conversations
        )

    def _read(self, name: str, size: int) -> bytes:
        if not 0 <= size <= MAX_OBJECT_BYTES:
            raise DamagedFileError("it is too large")
        try:
            with self._zip.open(name) as stream:
                return stream.read(size + 1)
        except KeyError:
            raise DamagedFileError("it is missing") from None
        except (zlib.error, *UNREADABLE_ENTRY):
            raise DamagedFileError("it cannot be read") from None

    def read(self, entry: BackupEntry) -> StoredFile:
        """Return the file of a conversation; DamagedFileError if it is not the saved one."""
        data = self._read(entry.file, entry.size)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise DamagedFileError("its digest differs")
        return StoredFile(data=data, modified_at=entry.modified_at or NO_TIME)

    def load(self, entry: BackupEntry) -> StoredConversation:
        """Return a conversation without running turns; DamagedFileError if it is damaged."""
        file = self.read(entry)
        if not is_valid_id(entry.id):
            raise DamagedFileError("its ID is not valid")
        try:
            decoded = decode_conversation(
                file.data, conversation_id=entry.id, path="", modified_at=file.modified_at
            )
        except BrokenConversationError as error:
            raise DamagedFileError(str(error.reason)) from None
        if decoded.conversation.message_count != entry.messages:
            raise DamagedFileError("it is not the conversation in the manifest")
        return mark_interrupted(decoded.conversation)

    def read_rows(self, entry: RowsEntry) -> Iterator[ServerRow]:
        """Yield the rows; DamagedFileError if they are not the saved ones."""
        digest = hashlib.sha256()
        size = count = 0
        try:
            with self._zip.open(entry.file) as stream:
                for line in iter_lines(cast("BinaryIO", stream)):
                    size, count = size + len(line) + 1, count + 1
                    if size > entry.size:
                        raise DamagedFileError("it is too large")
                    digest.update(line + b"\n")
                    yield _row_decoder.decode(line)
        except KeyError:
            raise DamagedFileError("it is missing") from None
        except (zlib.error, *UNREADABLE_ENTRY):
            raise DamagedFileError("it cannot be read") from None
        except msgspec.MsgspecError:
            raise DamagedFileError(f"row {count} is not valid") from None
        if (digest.hexdigest(), count) != (entry.sha256, entry.rows):
            raise DamagedFileError("its digest differs")

    def find_problems(self, on_item: Callable[[], object] = lambda: None) -> Iterator[str]:
        """Yield one line for each damaged conversation or file of rows."""
        for entry in self.manifest.conversations:
            on_item()
            try:
                self.load(entry)
            except DamagedFileError as error:
                yield f"{entry.id}: {error}."
        for rows in self.manifest.server_rows:
            try:
                for _ in self.read_rows(rows):
                    pass
            except DamagedFileError as error:
                yield f"{rows.file}: {error}."

    def close(self) -> None:
        self._zip.close()
