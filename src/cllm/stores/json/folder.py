"""The blocking I/O of the JSON file store.

Reading takes no lock and creates nothing. Writing needs the conversation's lock, reads the file
again and replaces it. A file that cannot be decoded is never overwritten. A symbolic link is read
but not written.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from cllm.core.conversation import (
    LOCAL_OWNER,
    StoredConversation,
    Summary,
    Turn,
    find_running,
    is_valid_id,
)
from cllm.core.errors import (
    BrokenConversationError,
    ConversationExistsError,
    ConversationNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from cllm.core.notice import Notice
from cllm.core.ports import Clock, Lease, NewConversation, Opening, TurnStart
from cllm.stores import edits
from cllm.stores.durable_files import (
    NotAFileError,
    file_error,
    make_folder,
    read_file,
    remove_file,
    write_file,
)
from cllm.stores.locks import Lock, is_locked, try_lock
from cllm.wire.conversation_file.codec import (
    ConversationFile,
    decode_conversation,
    decode_summary,
    encode_conversation,
)
from cllm.wire.conversation_file.turn_records import Remainder

SUFFIX = ".json"
LOCK_FOLDER = ".locks"
LOCK_SUFFIX = ".lock"
NO_TARGET = "the target of the symbolic link does not exist"
SEARCH_FOLDER = "search"
"""Of the cache folder, with the index of texts."""


class FileBefore(NamedTuple):
    """A file as a turn found it: its bytes, None if it is new, and what cllm does not decode."""

    data: bytes | None
    remainder: Remainder


class JsonFolder:
    """A `key` is a checked id, the stem of a file."""

    def __init__(self, folder: Path, *, clock: Clock) -> None:
        self.path = folder
        self._clock = clock

    def has(self, key: str) -> bool:
        return os.path.lexists(self.file_path(key))

    def has_files(self) -> bool:
        return bool(self._list_files())

    def try_lock(self, key: str) -> Lock | None:
        path = self._lock_path(key)
        try:
            try:
                return try_lock(path)
            except FileNotFoundError:
                make_folder(path.parent)
                return try_lock(path)
        except OSError as error:
            raise file_error(error, path, action="lock") from error

    def read(self, key: str) -> ConversationFile:
        return self._read(key)[1]

    def _read(self, key: str) -> tuple[bytes, ConversationFile]:
        data, modified_at = self.read_bytes(key)
        stored = decode_conversation(
            data, conversation_id=key, path=str(self.file_path(key)), modified_at=modified_at
        )
        return data, stored

    def read_settled(self, key: str) -> StoredConversation:
        """Read a conversation; a running turn without a lock is one of a dead process."""
        conversation = self.read(key).conversation
        if not find_running(conversation) or is_locked(self._lock_path(key)):
            return conversation
        # The turn may have ended between the two calls.
        return edits.mark_interrupted(self.read(key).conversation)

    def read_all(
        self, notices: list[Notice], keys: Sequence[str] | None = None
    ) -> Iterator[StoredConversation]:
        """These conversations, or all; each unreadable one adds a notice."""
        for key in self._list_keys() if keys is None else keys:
            try:
                yield self.read(key).conversation
            except ConversationNotFoundError:
                continue
            except (BrokenConversationError, StoreUnavailableError) as error:
                notices.append(self._skipped_notice(key, error))

    def file_states(self) -> dict[str, str]:
        """Return a text for each key that changes with the file: also in the same moment."""
        states = ((key, _read_state(file)) for key, file in self._list_files())
        return {key: state for key, state in states if state is not None}

    def summary(self, key: str) -> Summary:
        data, modified_at = self.read_bytes(key)
        return decode_summary(
            data, conversation_id=key, path=str(self.file_path(key)), modified_at=modified_at
        )

    def read_with_summary(self, key: str) -> tuple[Summary, StoredConversation]:
        data, modified_at = self.read_bytes(key)
        path = str(self.file_path(key))
        summary = decode_summary(data, conversation_id=key, path=path, modified_at=modified_at)
        stored = decode_conversation(data, conversation_id=key, path=path, modified_at=modified_at)
        return summary, stored.conversation

    def has_entries(self, count: int) -> bool:
        """Whether the folder has at least this many entries."""
        try:
            with os.scandir(self.path) as entries:
                return next(islice(entries, count - 1, None), None) is not None
        except OSError:
            return False

    def read_version(self) -> str:
        try:
            return str(self.path.stat().st_mtime_ns)
        except OSError:
            return ""

    def list_running(self) -> tuple[str, ...]:
        """Return the keys of locked files with a running turn; an edit takes the lock too."""
        try:
            with os.scandir(self.path / LOCK_FOLDER) as entries:
                names = [entry.name for entry in entries]
        except OSError:
            return ()
        keys = (name.removesuffix(LOCK_SUFFIX) for name in names)
        return tuple(
            key
            for key in keys
            if is_valid_id(key) and is_locked(self._lock_path(key)) and self._is_running(key)
        )

    def _is_running(self, key: str) -> bool:
        try:
            return bool(find_running(self.read(key).conversation))
        except StoreError:
            return False

    def summaries(
        self, keys: Sequence[str] | None = None
    ) -> tuple[list[Summary], tuple[Notice, ...]]:
        """Return the summaries of these files, or of all; each unreadable file adds a notice."""
        summaries: list[Summary] = []
        notices: list[Notice] = []
        for key in self._list_keys() if keys is None else keys:
            try:
                summaries.append(self.summary(key))
            except ConversationNotFoundError:
                continue
            except (BrokenConversationError, StoreUnavailableError) as error:
                notices.append(self._skipped_notice(key, error))
        return summaries, tuple(notices)

    def _skipped_notice(self, key: str, error: StoreError) -> Notice:
        return Notice(
            code="conversation_skipped", path=str(self.file_path(key)), message=str(error)
        )

    def begin(
        self, lock: Lock, key: str, start: TurnStart, create: NewConversation | None
    ) -> tuple[Lease, FileBefore]:
        with lock:
            now = self._clock()
            created = create is not None and not self.has(key)
            data: bytes | None = None
            if create is not None and created:
                new = edits.build_conversation(create, key=key, owner=LOCAL_OWNER, now=now)
                stored = ConversationFile(conversation=new, remainder=Remainder())
            else:
                check_is_no_link(self.file_path(key))
                data, stored = self._read(key)
            conversation = edits.mark_interrupted(stored.conversation)
            turn = edits.start_turn(conversation, start, now=now)
            if start.visible:
                self._write(edits.with_running_turn(conversation, turn), stored.remainder)
            elif conversation != stored.conversation:
                self._write(conversation, stored.remainder)
            lease = Lease(
                conversation=conversation,
                turn=turn,
                fence=lock.number,
                created=created,
                visible=start.visible,
            )
            return lease, FileBefore(data, stored.remainder)

    def save_opening(self, lock: Lock, lease: Lease, opening: Opening) -> None:
        with lock:
            stored = self.read(lease.conversation.id)
            self._write(edits.with_opening(stored.conversation, opening), stored.remainder)

    def finish(
        self, lock: Lock, lease: Lease, remainder: Remainder, turn: Turn, opening: Opening | None
    ) -> None:
        with lock:
            try:
                stored = self.read(lease.conversation.id)
            except ConversationNotFoundError:
                # New, or deleted manually during the turn: the reply must not be lost.
                stored = ConversationFile(conversation=lease.conversation, remainder=remainder)
            finished = edits.with_finished_turn(
                stored.conversation, turn, opening=opening, now=self._clock()
            )
            self._write(finished, stored.remainder)

    def drop(self, lock: Lock, lease: Lease, before: FileBefore) -> None:
        """Remove the turn. A file that nothing else changed is as it was, byte for byte."""
        key = lease.conversation.id
        with lock:
            if lease.visible and self.has(key):
                data, stored = self._read(key)
                started = edits.with_running_turn(lease.conversation, lease.turn)
                if before.data and data == encode_conversation(started, before.remainder):
                    write_file(self.path, key + SUFFIX, before.data)
                    return
                remaining = edits.without_turn(stored.conversation, lease.turn.id)
                has_own_system = remaining.system != lease.conversation.system
                if not lease.created or remaining.turns or has_own_system:
                    marked = edits.mark_interrupted(remaining)
                    self._write(marked, stored.remainder)
                    return
                remove_file(self.path, key + SUFFIX)
            if lease.created and not self.has(key):
                lock.remove()

    def create(self, lock: Lock, conversation: StoredConversation) -> None:
        with lock:
            if self.has(conversation.id):
                raise ConversationExistsError(conversation.id)
            self._write(conversation, Remainder())

    def create_file(self, lock: Lock, key: str, data: bytes, modified_at: datetime) -> None:
        """Write a new file byte for byte, with its time: a file may have no other."""
        with lock:
            if self.has(key):
                raise ConversationExistsError(key)
            write_file(self.path, key + SUFFIX, data)
            with suppress(OSError, OverflowError):
                os.utime(self.file_path(key), (modified_at.timestamp(),) * 2)

    def edit(
        self, lock: Lock, key: str, change: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation:
        with lock:
            stored = self.read(key)
            changed = change(edits.mark_interrupted(stored.conversation))
            if changed != stored.conversation:
                self._write(changed, stored.remainder)
            return changed

    def delete(self, lock: Lock, key: str) -> None:
        with lock:
            self.read(key)
            remove_file(self.path, key + SUFFIX)
            lock.remove()

    def _lock_path(self, key: str) -> Path:
        return self.path / LOCK_FOLDER / f"{key}{LOCK_SUFFIX}"

    def file_path(self, key: str) -> Path:
        return self.path / (key + SUFFIX)

    def _list_keys(self) -> list[str]:
        return sorted(key for key, _ in self._list_files())

    def _list_files(self) -> list[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(self.path) as entries:
                files = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise file_error(error, self.path, action="read") from error
        named = [(file.name.removesuffix(SUFFIX), file) for file in files]
        return [(key, file) for key, file in named if is_valid_id(key) and key != file.name]

    def read_bytes(self, key: str) -> tuple[bytes, datetime]:
        path = self.file_path(key)
        try:
            data, modified_at = read_file(path)
        except FileNotFoundError:
            if path.is_symlink():
                raise BrokenConversationError(str(path), reason=NO_TARGET) from None
            raise ConversationNotFoundError(key) from None
        except NotAFileError as error:
            raise BrokenConversationError(str(path), reason=str(error)) from None
        except OSError as error:
            raise file_error(error, path, action="read") from error
        return data, _to_datetime(modified_at)

    def _write(self, conversation: StoredConversation, remainder: Remainder) -> None:
        check_is_no_link(self.file_path(conversation.id))
        data = encode_conversation(conversation, remainder)
        write_file(self.path, conversation.id + SUFFIX, data)


def check_is_no_link(path: Path) -> None:
    if path.is_symlink():
        raise StoreUnavailableError(
            f"{path} is a symbolic link, which cllm reads but never writes; replace it with the "
            "file itself.",
            path=str(path),
        )


def _read_state(file: os.DirEntry[str]) -> str | None:
    """Return the state of a file: None if it is deleted, "" if it cannot be read.

    A loop of links cannot be read, for example.
    """
    try:
        status = file.stat()
    except FileNotFoundError:
        return "" if file.is_symlink() else None
    except OSError:
        return ""
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{status.st_ino} {status.st_size} {times}"


def _to_datetime(seconds: float) -> datetime:
    """Return the datetime of a file's modification time, limited to datetime.max."""
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)
