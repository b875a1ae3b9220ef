"""Finds conversation files by path digests and families, with an index of the folder.

The index is a file in the cache folder. If that cannot be used, it is in memory, with the same
results. A conversation file is read before it is returned, so that a manual edit wins.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TypeVar

from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import (
    BrokenConversationError,
    ConversationNotFoundError,
    StoreUnavailableError,
)
from cllm.core.ports import PathMatch
from cllm.stores.json.file_index import IndexAccess, UnusableIndexError, find_index_path
from cllm.stores.json.folder import JsonFolder
from cllm.stores.json.path_index import PathIndex
from cllm.stores.path_matches import is_searched, select_newest
from cllm.stores.views import build_summary
from cllm.wire.path_digest import digest_turns

T = TypeVar("T")
INDEX_FOLDER = "paths"


class JsonPaths:
    """`cache`: the cache folder; None: the index is in memory."""

    def __init__(self, folder: JsonFolder, *, cache: Path | None) -> None:
        self._folder = folder
        self._access: IndexAccess[PathIndex] | None = None
        if cache is not None:
            path = find_index_path(cache, INDEX_FOLDER, folder.path)
            self._access = IndexAccess(path, PathIndex)
        self._in_memory: PathIndex | None = None
        self._guard = Lock()

    def close(self) -> None:
        if self._access is not None:
            self._access.close()
        with self._guard:
            index, self._in_memory = self._in_memory, None
            if index is not None:
                index.close()

    def find(
        self, digests: Sequence[bytes], *, family: str | None, side: bool, any_ids: bool
    ) -> tuple[PathMatch, ...]:
        def find(index: PathIndex) -> tuple[PathMatch, ...]:
            for position, digest in enumerate(digests):
                keys = index.find_digest(digest, family=family, side=side, any_ids=any_ids)
                searched = (
                    (conversation, digest_turns(conversation))
                    for conversation in self._read_each(keys)
                    if is_searched(conversation, family, side=side)
                )
                matches = select_newest(searched, digest, position, any_ids=any_ids)
                if matches:
                    return matches
            return ()

        return self._search(find, ())

    def list_family(self, family: str, *, limit: int) -> tuple[Summary, ...]:
        def find(index: PathIndex) -> tuple[Summary, ...]:
            members = (
                build_summary(conversation)
                for conversation in self._read_each(index.find_family(family))
                if conversation.archived_at is None and conversation.family_key == family
            )
            return tuple(islice(members, limit))

        return self._search(find, ())

    def _search(self, find: Callable[[PathIndex], T], nothing: T) -> T:
        """Search with the current index; `nothing` if the folder has no files."""
        states = self._folder.file_states()
        if not states:
            return nothing

        def search(index: PathIndex) -> T:
            index.refresh(states, self._read)
            return find(index)

        if self._access is not None:
            with suppress(UnusableIndexError):
                return self._access.use(search)
        with self._guard:
            if self._in_memory is None:
                self._in_memory = PathIndex(None)
            return search(self._in_memory)

    def _read_each(self, keys: Iterable[str]) -> Iterator[StoredConversation]:
        """Skip unreadable files, as lists do; these report them."""
        for key in keys:
            with suppress(StoreUnavailableError):
                conversation = self._read(key)
                if conversation is not None:
                    yield conversation

    def _read(self, key: str) -> StoredConversation | None:
        try:
            return self._folder.read_settled(key)
        except (BrokenConversationError, ConversationNotFoundError):
            return None
