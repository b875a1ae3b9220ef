"""The ports of backups, checks and moves: a database at one moment, and the files of a folder.

Only `cllm backup`, `restore`, `verify` and `conversations move` import this module.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import StoreError
from cllm.core.ports.server_store import CallRecord
from cllm.core.ports.store import Store


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The index of a stored message in its turn, and its path digest."""

    ordinal: int
    digest: bytes | None


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a stored turn; `position` and `first_sequence` are None off the path."""

    id: str
    number: int
    position: int | None
    first_sequence: int | None
    messages: tuple[MessageRow, ...]


class CallRow(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A call that belongs to no conversation; the `occurrence` counts equal calls from 1."""

    owner: str
    call: CallRecord
    occurrence: int = 1


class ResponseRow(msgspec.Struct, frozen=True, kw_only=True, tag="response"):
    """A response that is stored for repeated requests; `key` and `body` are hashes."""

    owner: str
    key: str
    body: str
    expires_at: datetime
    status: int
    headers: str | None
    response: bytes | None


class EventRow(msgspec.Struct, frozen=True, kw_only=True, tag="event"):
    """An event of the stream of a turn."""

    owner: str
    conversation: str
    turn: str
    number: int
    data: bytes


class ImportedRow(msgspec.Struct, frozen=True, kw_only=True, tag="imported"):
    """The fields of a message of an older deployment, as JSON."""

    owner: str
    conversation: str
    turn: str
    ordinal: int
    fields: str


ServerRow = CallRow | ResponseRow | EventRow | ImportedRow
"""A row of a database that is not part of a conversation."""


class Snapshot(Protocol):
    """A database at one moment. Reads only; does not settle turns of dead processes."""

    async def list_keys(self) -> tuple[tuple[str, str], ...]:
        """Return the owner and ID of each conversation, oldest first."""
        ...

    async def load(self, ref: str, *, owner: str) -> StoredConversation: ...

    async def summary(self, ref: str, *, owner: str) -> Summary: ...

    async def list_turn_rows(self, ref: str, *, owner: str) -> tuple[TurnRow, ...]:
        """Return the turns of a conversation in the order of their numbers."""
        ...

    async def find_faults(self) -> tuple[str, ...]:
        """Check the database itself: return one line for each damage and each lost row."""
        ...

    def read_server_rows(self) -> AsyncIterator[ServerRow | StoreError]:
        """Yield all rows, or the errors of damaged ones."""
        ...


@runtime_checkable
class SnapshotStore(Protocol):
    """A database that can be read as it is at one moment."""

    def open_snapshot(self) -> AbstractAsyncContextManager[Snapshot]: ...

    async def add_server_rows(self, rows: Sequence[ServerRow]) -> None:
        """Add the rows that do not exist, in one transaction. Adding them again changes nothing.

        Events and fields of turns that do not exist are left out.
        """
        ...


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation file, byte for byte; `path` is for messages."""

    data: bytes
    modified_at: datetime
    path: str = ""


@runtime_checkable
class FileStore(Protocol):
    """A folder of conversation files; a `key` is the ID of a conversation."""

    async def list_files(self) -> dict[str, str]:
        """Return a text for each key that changes with the file."""
        ...

    async def read_file(self, key: str) -> StoredFile:
        """Read a file; ConversationNotFoundError if it does not exist."""
        ...

    async def add_file(self, key: str, file: StoredFile) -> None:
        """Write a new file with its time; ConversationExistsError if it exists."""
        ...


@runtime_checkable
class ComparableStore(Protocol):
    """A store that can have several addresses, such as the paths or URLs of one database."""

    async def is_same_store(self, other: Store) -> bool:
        """Whether both are one store. Writes nothing; neither store needs to exist."""
        ...
