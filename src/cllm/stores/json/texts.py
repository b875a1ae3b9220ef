"""Lists and searches the conversation files of a large folder with an index.

If the cache folder cannot be used, the caller reads all files, with the same results.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cllm.core.conversation import Summary
from cllm.core.errors import (
    BrokenConversationError,
    ConversationNotFoundError,
)
from cllm.core.notice import Notice
from cllm.stores.json.file_index import IndexAccess, UnusableIndexError, find_index_path
from cllm.stores.json.folder import SEARCH_FOLDER, JsonFolder
from cllm.stores.json.text_index import IndexedContent, MatchingFile, TextIndex
from cllm.stores.lists import IsSelected, NewestMatches
from cllm.stores.progress import current_track
from cllm.stores.search import MAX_RANKED, SearchMatch, SearchTerm, find_matches, sort_newest

TASK = "Indexing conversations"
MAX_SEARCHED_FILES = 300
"""The newest matching files; reading more would take longer than the search."""


class JsonTexts:
    """Raises UnusableIndexError if the index cannot be used."""

    def __init__(self, folder: JsonFolder, *, cache: Path) -> None:
        self._folder = folder
        self._access = IndexAccess(find_index_path(cache, SEARCH_FOLDER, folder.path), TextIndex)

    def close(self) -> None:
        self._access.close()

    def list_summaries(self) -> tuple[list[Summary], tuple[Notice, ...]]:
        states = self._folder.file_states()

        def work(index: TextIndex) -> tuple[list[Summary], list[str]]:
            unavailable = index.refresh(states, self._read_summary, track=current_track(TASK))
            known = [one for one in index.list_summaries() if one.id not in unavailable]
            return known, sorted(unavailable.union(index.list_unreadable()))

        summaries, unreadable = self._access.use(work)
        # Read again, for the reason.
        more, notices = self._folder.summaries(unreadable)
        return summaries + more, notices

    def search(self, words: Sequence[SearchTerm], is_selected: IsSelected) -> NewestMatches:
        states = self._folder.file_states()

        def work(index: TextIndex) -> tuple[list[MatchingFile], list[str]]:
            track = current_track(TASK)
            unavailable = index.refresh(
                states, self._read_content, column="text_state", track=track
            )
            known = [one for one in index.find_words(words) if one.key not in unavailable]
            return known, sorted(unavailable.union(index.list_unreadable()))

        files, unreadable = self._access.use(work)
        notices: list[Notice] = []
        newest: list[SearchMatch] = []
        searched = 0
        for file in files:
            # A message is not newer than its conversation: no older file can have one of these.
            is_older = len(newest) > MAX_RANKED and _to_time(file) < newest[-1].created_at
            if searched == MAX_SEARCHED_FILES or is_older:
                break
            for conversation in self._folder.read_all(notices, (file.key,)):
                if is_selected(conversation):
                    searched += 1
                    newest += find_matches(conversation, words, file.sequences)
            if len(newest) > MAX_RANKED:
                newest = sort_newest(newest)[: MAX_RANKED + 1]
        # Only the reasons are needed.
        list(self._folder.read_all(notices, unreadable))
        return NewestMatches(
            matches=sort_newest(newest),
            notices=tuple(notices),
            more=searched == MAX_SEARCHED_FILES and len(files) > searched,
        )

    def forget(self, key: str) -> None:
        """Remove a deleted conversation, if the index exists."""
        if self._access.path.exists():
            with suppress(UnusableIndexError):
                self._access.use(lambda index: index.forget(key))

    def _read_summary(self, key: str) -> IndexedContent | None:
        try:
            return IndexedContent(self._folder.summary(key))
        except (BrokenConversationError, ConversationNotFoundError):
            return None

    def _read_content(self, key: str) -> IndexedContent | None:
        try:
            summary, conversation = self._folder.read_with_summary(key)
        except (BrokenConversationError, ConversationNotFoundError):
            return None
        return IndexedContent(summary, conversation)


def _to_time(file: MatchingFile) -> datetime:
    return datetime.fromtimestamp(file.updated_at / 1_000_000, tz=UTC)
