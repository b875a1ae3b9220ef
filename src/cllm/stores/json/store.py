"""Conversations as JSON files in a folder, `<id>.json` each. People and tools may edit them.

Waits for locks and tracks leases; `JsonFolder` does the blocking work. A method that does not wait
for a lock never suspends and needs no event loop.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from cllm.core.conversation import (
    FILES_PREFIX,
    LOCAL_OWNER,
    StoredConversation,
    Summary,
    Turn,
    check_id,
)
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    StaleLeaseError,
    UsageError,
)
from cllm.core.notice import Notice
from cllm.core.ports import (
    Clock,
    Lease,
    NewConversation,
    Opening,
    Origin,
    PathMatch,
    Store,
    Tail,
    TurnStart,
)
from cllm.stores import edits
from cllm.stores.editing_store import Change, EditingStore, ReadScope
from cllm.stores.json.folder import SEARCH_FOLDER, FileBefore, JsonFolder
from cllm.stores.leases import poll_sync
from cllm.stores.lists import IsSelected, NewestMatches, ScannedLists
from cllm.stores.locks import Lock
from cllm.stores.views import select_tail

if TYPE_CHECKING:
    from cllm.core.ports.snapshot import StoredFile
    from cllm.stores.json.paths import JsonPaths
    from cllm.stores.json.texts import JsonTexts
    from cllm.stores.search import SearchTerm

P = ParamSpec("P")
T = TypeVar("T")
MIN_INDEXED_FILES = 200
"""Reading fewer files takes less time than an index, and creates nothing in the cache folder."""


class Offload(Protocol):
    def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


async def run_inline(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


class _LeaseEntry(msgspec.Struct, frozen=True):
    lock: Lock
    turn_id: str
    before: FileBefore


class JsonFileStore(ScannedLists, EditingStore):
    """A folder of conversation files, all of the owner `local`. A ref can start with `files:`.

    `patience`: the seconds that an edit waits for a running turn. `cache`: the user's cache folder
    of cllm, for the indexes of the files; None: path digests are in memory, and a search reads all
    files.
    """

    _unnamed_origin: ClassVar[Origin] = "shell"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        clock: Clock,
        cache: Path | None = None,
        offload: Offload = run_inline,
        patience: float = 5.0,
    ) -> None:
        self._folder = JsonFolder(Path(folder), clock=clock)
        self._cache = cache
        self._clock = clock
        self._offload = offload
        self._patience = patience
        self._leases: dict[str, _LeaseEntry] = {}
        self._opened_paths: JsonPaths | None = None
        self._opened_texts: JsonTexts | None = None

    async def begin_turn(
        self,
        ref: str,
        start: TurnStart,
        *,
        owner: str = LOCAL_OWNER,
        create: NewConversation | None = None,
        wait: float | None = 0,
        tail: Tail = None,  # noqa: ARG002 - the whole file is read anyway
    ) -> Lease:
        key = self._check_exists(ref, owner) if create is None else _check_owner(ref, owner)
        lock = await self._lock(key, wait)
        try:
            lease, before = await self._offload(self._folder.begin, lock, key, start, create)
        except BaseException:
            lock.release()
            raise
        self._leases[key] = _LeaseEntry(lock, start.id, before)
        return lease

    async def renew_lease(self, lease: Lease) -> Lease:
        self._check_lease(lease)
        return lease

    async def save_opening(self, lease: Lease, opening: Opening) -> Lease:
        entry = self._check_lease(lease)
        if lease.visible:
            await self._offload(self._folder.save_opening, entry.lock, lease, opening)
        return edits.lease_with_opening(lease, opening)

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        entry = self._check_lease(lease)
        if turn.id != entry.turn_id:
            raise edits.wrong_turn_error(entry.turn_id, turn.id)
        del self._leases[lease.conversation.id]
        try:
            await self._offload(
                self._folder.finish, entry.lock, lease, entry.before.remainder, turn, opening
            )
        finally:
            entry.lock.release()

    async def drop_turn(self, lease: Lease) -> None:
        entry = self._check_lease(lease)
        del self._leases[lease.conversation.id]
        try:
            await self._offload(self._folder.drop, entry.lock, lease, entry.before)
        finally:
            entry.lock.release()

    async def create(
        self,
        new: NewConversation,
        *,
        owner: str = LOCAL_OWNER,
        opening: Opening | None = None,
    ) -> StoredConversation:
        conversation = edits.with_opening(self._new(new, owner), opening)
        await self._run_locked(conversation.id, self._folder.create, conversation)
        return conversation

    async def add(
        self,
        conversation: StoredConversation,
        *,
        owner: str = LOCAL_OWNER,
        preserve_times: bool = False,
    ) -> str:
        now = None if preserve_times else self._clock()
        key = self._free_key(conversation.name or conversation.id, owner)
        named = msgspec.structs.replace(conversation, id=key, name=None)
        added = edits.prepare_conversation(named, owner=owner, now=now)
        await self._run_locked(key, self._folder.create, added)
        return key

    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation:
        stored = await self._offload(self._folder.read_settled, _check_owner(ref, owner))
        return select_tail(stored, tail)

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        return await self._offload(self._folder.summary, _check_owner(ref, owner))

    async def _summaries(self, owner: str) -> tuple[Iterable[Summary], tuple[Notice, ...]]:
        return await self._offload(self._list_summaries) if owner == LOCAL_OWNER else ((), ())

    def _list_summaries(self) -> tuple[list[Summary], tuple[Notice, ...]]:
        return self._with_texts(lambda texts: texts.list_summaries(), self._folder.summaries)

    async def _find_newest(
        self, words: Sequence["SearchTerm"], owner: str, is_selected: IsSelected
    ) -> NewestMatches:
        if owner != LOCAL_OWNER:
            return NewestMatches(matches=[])
        scan = super()._find_newest

        def find() -> NewestMatches | None:
            return self._with_texts(lambda texts: texts.search(words, is_selected), lambda: None)

        found = await self._offload(find)
        return await scan(words, owner, is_selected) if found is None else found

    def _with_texts(self, work: Callable[["JsonTexts"], T], instead: Callable[[], T]) -> T:
        """Use the index if the folder is large; read all files if it cannot be used."""
        if self._cache is None or not self._folder.has_entries(MIN_INDEXED_FILES):
            return instead()
        from cllm.stores.json.file_index import UnusableIndexError  # noqa: PLC0415

        try:
            return work(self._open_texts())
        except UnusableIndexError:
            return instead()

    def _open_texts(self) -> "JsonTexts":
        if self._opened_texts is None:
            from cllm.stores.json.texts import JsonTexts  # noqa: PLC0415 - imports sqlite3

            assert self._cache is not None  # noqa: S101
            self._opened_texts = JsonTexts(self._folder, cache=self._cache)
        return self._opened_texts

    async def _scan(
        self, owner: str, work: Callable[[Iterable[StoredConversation]], T]
    ) -> tuple[T, tuple[Notice, ...]]:
        def scan() -> tuple[T, tuple[Notice, ...]]:
            notices: list[Notice] = []
            result = work(self._folder.read_all(notices) if owner == LOCAL_OWNER else ())
            return result, tuple(notices)

        return await self._offload(scan)

    async def read_version(self, *, owner: str = LOCAL_OWNER) -> str | None:  # noqa: ARG002
        """Return the time of the folder: each write of cllm replaces a file in it."""
        return self._folder.read_version()

    async def list_running(self, *, owner: str = LOCAL_OWNER) -> tuple[str, ...]:
        if owner != LOCAL_OWNER:
            return ()
        return await self._offload(self._folder.list_running)

    async def list_owners(self) -> tuple[str, ...]:
        return (LOCAL_OWNER,) if self._folder.has_files() else ()

    async def is_same_store(self, other: Store) -> bool:
        from cllm.files import is_same_file  # noqa: PLC0415 - only a move

        if not isinstance(other, JsonFileStore):
            return False
        folder = other._folder  # noqa: SLF001 - of this class
        return await self._offload(is_same_file, self._folder.path, folder.path)

    async def list_files(self) -> dict[str, str]:
        return await self._offload(self._folder.file_states)

    async def read_file(self, key: str) -> "StoredFile":
        from cllm.core.ports.snapshot import StoredFile  # noqa: PLC0415 - only backups and checks

        data, modified_at = await self._offload(self._folder.read_bytes, check_id(key))
        path = str(self._folder.file_path(key))
        return StoredFile(data=data, modified_at=modified_at, path=path)

    async def add_file(self, key: str, file: "StoredFile") -> None:
        await self._run_locked(
            check_id(key), self._folder.create_file, key, file.data, file.modified_at
        )

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        key = self._check_exists(ref, owner)
        await self._run_locked(key, self._folder.delete, key)
        if self._cache is not None and (self._cache / SEARCH_FOLDER).is_dir():
            await self._offload(self._open_texts().forget, key)

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        path: Sequence[str] | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> StoredConversation:
        stored = await self._offload(self._folder.read_settled, _check_owner(ref, owner))
        fresh = self._new(new, owner)
        branch = edits.build_branch(stored, fresh, at=at, path=path, opening=opening)
        await self._run_locked(branch.id, self._folder.create, branch)
        return branch

    async def find_paths(
        self,
        digests: Sequence[bytes],
        *,
        owner: str = LOCAL_OWNER,
        family: str | None = None,
        side: bool = False,
        any_ids: bool = False,
    ) -> tuple[PathMatch, ...]:
        if owner != LOCAL_OWNER:
            return ()
        find = self._open_paths().find
        return await self._offload(find, digests, family=family, side=side, any_ids=any_ids)

    async def list_family(
        self, family: str, *, owner: str = LOCAL_OWNER, limit: int = 20
    ) -> tuple[Summary, ...]:
        if owner != LOCAL_OWNER:
            return ()
        return await self._offload(self._open_paths().list_family, family, limit=limit)

    def _open_paths(self) -> "JsonPaths":
        if self._opened_paths is None:
            # A turn of the command line does not need it.
            from cllm.stores.json.paths import JsonPaths  # noqa: PLC0415

            self._opened_paths = JsonPaths(self._folder, cache=self._cache)
        return self._opened_paths

    async def close(self) -> None:
        """Release every lock. Unfinished turns are lost, as in a crash."""
        for entry in self._leases.values():
            entry.lock.release()
        self._leases.clear()
        if self._opened_paths is not None:
            self._opened_paths.close()
        if self._opened_texts is not None:
            self._opened_texts.close()

    def _check_exists(self, ref: str, owner: str) -> str:
        """Return the id of an existing conversation: a missing one must not get a lock file."""
        key = _check_owner(ref, owner)
        if not self._folder.has(key):
            raise ConversationNotFoundError(ref)
        return key

    def _new(self, new: NewConversation, owner: str) -> StoredConversation:
        key = self._free_key(new.name or new.id, owner)
        return edits.build_conversation(new, key=key, owner=LOCAL_OWNER, now=self._clock())

    def _free_key(self, ref: str, owner: str) -> str:
        if owner != LOCAL_OWNER:
            raise UsageError(
                f"A folder of JSON files stores only conversations of the owner '{LOCAL_OWNER}', "
                f"not of '{owner}'; use a database for several owners."
            )
        key = check_id(ref.removeprefix(FILES_PREFIX))
        if self._folder.has(key):
            raise ConversationExistsError(key)
        return key

    def _check_lease(self, lease: Lease) -> _LeaseEntry:
        entry = self._leases.get(lease.conversation.id)
        if entry is None or (entry.turn_id, entry.lock.number) != (lease.turn.id, lease.fence):
            raise StaleLeaseError(lease.conversation.id)
        return entry

    async def _lock(self, key: str, wait: float | None) -> Lock:
        lock = await poll_sync(lambda: self._folder.try_lock(key), wait=wait)
        if lock is None:
            raise ConversationBusyError(key)
        return lock

    async def _run_locked(
        self,
        key: str,
        work: Callable[Concatenate[Lock, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        lock = await self._lock(key, self._patience)
        try:
            return await self._offload(work, lock, *args, **kwargs)
        finally:
            lock.release()

    async def _edit(
        self,
        ref: str,
        owner: str,
        change: Change,
        *,
        reads: ReadScope,  # noqa: ARG002 - the whole file is read
    ) -> StoredConversation:
        key = self._check_exists(ref, owner)
        return await self._run_locked(key, self._folder.edit, key, change)


def _check_owner(ref: str, owner: str) -> str:
    key = check_id(ref.removeprefix(FILES_PREFIX))
    if owner != LOCAL_OWNER:
        raise ConversationNotFoundError(ref)
    return key
