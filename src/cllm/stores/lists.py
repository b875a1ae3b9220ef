"""Lists, searches and usage sums of stores without an index."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, ClassVar, TypeVar

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary
from cllm.core.errors import StoreError
from cllm.core.notice import Notice
from cllm.core.ports import (
    CallRecord,
    ConversationCounts,
    Hits,
    Origin,
    Overview,
    Page,
    Tail,
    UsageBy,
    UsageSum,
)
from cllm.stores.filters import ListFilter, SearchFilter
from cllm.stores.overviews import build_overview
from cllm.stores.pagination import build_page
from cllm.stores.search import (
    MAX_RANKED,
    SearchMatch,
    SearchTerm,
    build_ranked_hits,
    find_matches,
    parse_query,
    sort_newest,
)
from cllm.stores.usage import list_calls, sum_usage

T = TypeVar("T")
IsSelected = Callable[[StoredConversation], bool]


class NewestMatches(msgspec.Struct, frozen=True, kw_only=True):
    """The newest matches, one more than MAX_RANKED if there are more.

    `more`: older conversations were not searched.
    """

    matches: list[SearchMatch]
    notices: tuple[Notice, ...] = ()
    more: bool = False


class ScannedLists(ABC):
    """Reads every conversation for each list, search and sum."""

    _unnamed_origin: ClassVar[Origin] = "client"
    """The origin of conversations without a source."""

    @abstractmethod
    async def _summaries(self, owner: str) -> tuple[Iterable[Summary], tuple[Notice, ...]]:
        """Return all conversations, and a notice for each unreadable one."""

    @abstractmethod
    async def _scan(
        self, owner: str, work: Callable[[Iterable[StoredConversation]], T]
    ) -> tuple[T, tuple[Notice, ...]]:
        """Apply `work` to all conversations; a notice for each unreadable one."""

    @abstractmethod
    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation: ...

    def _calls(self, owner: str) -> Iterable[CallRecord]:  # noqa: ARG002 - most have none
        """Calls that belong to no conversation."""
        return ()

    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
        **filters: Any,
    ) -> Page:
        summaries, notices = await self._summaries(owner)
        return build_page(
            self._select(summaries, ListFilter(**filters)),
            limit=limit,
            cursor=cursor,
            offset=offset,
            notices=notices,
        )

    async def count_conversations(self, *, owner: str = LOCAL_OWNER, **filters: Any) -> int:
        summaries, _ = await self._summaries(owner)
        return sum(1 for _ in self._select(summaries, ListFilter(**filters)))

    async def count_all(self, *, owner: str = LOCAL_OWNER) -> ConversationCounts:
        summaries, _ = await self._summaries(owner)
        archived = [one.archived_at is not None for one in summaries if not one.is_side]
        return ConversationCounts(total=len(archived), archived=sum(archived))

    async def read_overviews(
        self, ids: Sequence[str], *, owner: str = LOCAL_OWNER
    ) -> dict[str, Overview]:
        overviews = {}
        for one in ids:
            with suppress(StoreError):
                overviews[one] = build_overview(await self.load(one, owner=owner))
        return overviews

    async def search(
        self,
        query: str,
        *,
        owner: str = LOCAL_OWNER,
        limit: int = 20,
        offset: int = 0,
        **filters: Any,
    ) -> Hits:
        words = parse_query(query)
        is_selected = partial(SearchFilter(**filters).includes, unnamed=self._unnamed_origin)
        newest = await self._find_newest(words, owner, is_selected)
        hits = build_ranked_hits(newest.matches, words, limit=limit, offset=offset)
        more = hits.more or newest.more
        return msgspec.structs.replace(hits, more=more, notices=newest.notices)

    async def _find_newest(
        self, words: Sequence[SearchTerm], owner: str, is_selected: IsSelected
    ) -> NewestMatches:
        def find(conversations: Iterable[StoredConversation]) -> list[SearchMatch]:
            matching = filter(is_selected, conversations)
            matches = (match for each in matching for match in find_matches(each, words))
            return sort_newest(matches)[: MAX_RANKED + 1]

        matches, notices = await self._scan(owner, find)
        return NewestMatches(matches=matches, notices=notices)

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        def add(conversations: Iterable[StoredConversation]) -> tuple[UsageSum, ...]:
            calls = (call for conversation in conversations for call in list_calls(conversation))
            return sum_usage(chain(calls, self._calls(owner)), since=since, until=until, by=by)

        return (await self._scan(owner, add))[0]

    def _select(self, summaries: Iterable[Summary], selected: ListFilter) -> Iterator[Summary]:
        is_selected = partial(selected.includes, unnamed=self._unnamed_origin)
        return filter(is_selected, summaries)
