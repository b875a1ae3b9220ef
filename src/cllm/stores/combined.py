"""Two stores as one: the conversations of both, and new ones in the first.

An operation on a conversation goes to the store that has it, first to `own`. A store that is
unavailable counts as empty, with a warning: it does not hide the other one.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary, Turn
from cllm.core.errors import (
    CllmError,
    ConversationExistsError,
    ConversationNotFoundError,
    InvalidIdError,
    MissingExtraError,
    SettingsError,
    StoreError,
    StoreUnavailableError,
)
from cllm.core.notice import Notice
from cllm.core.ports import (
    Changes,
    Hits,
    Lease,
    NewConversation,
    Opening,
    OpeningStore,
    Overview,
    Page,
    PathMatch,
    Store,
    TurnStart,
    UsageSum,
)
from cllm.stores.merged_lists import (
    merge_hits,
    merge_matches,
    merge_pages,
    merge_usage,
    sort_summaries,
)

T = TypeVar("T")
UNAVAILABLE = "store_unavailable"


class CombinedStore:
    """The conversations of `own` and of another store, which is opened at its first use.

    `locations` are the two stores as people read them. `warn` gets a notice, once, for each problem
    of an operation that returns no notices. A branch is stored with its original.
    """

    def __init__(
        self,
        own: Store,
        open_other: Callable[[], Store],
        *,
        locations: tuple[str, str],
        warn: Callable[[Notice], None] = lambda _: None,
    ) -> None:
        self.own = own
        self._open_other = open_other
        self._locations = locations
        self._warn = warn
        self._opened: Store | None = None
        self._leases: dict[str, Store] = {}
        self._reported: set[Notice] = set()

    def list_stores(self) -> tuple[Store, Store]:
        return self.own, self._other()

    async def begin_turn(
        self,
        ref: str,
        start: TurnStart,
        *,
        create: NewConversation | None = None,
        **options: Any,
    ) -> Lease:
        async def begin(store: Store) -> Lease:
            if store is not self.own:
                # A read waits less for a locked file than a write.
                await store.summary(ref, owner=options.get("owner", LOCAL_OWNER))
            lease = await store.begin_turn(ref, start, **options)
            self._leases[lease.turn.id] = store
            return lease

        try:
            return await self._run(begin)
        except ConversationNotFoundError:
            if create is None:
                raise
        return await self.own.begin_turn(ref, start, create=create, **options)

    async def renew_lease(self, lease: Lease) -> Lease:
        return await self._lease_store(lease).renew_lease(lease)

    async def save_opening(self, lease: Lease, opening: Opening) -> Lease:
        store = self._lease_store(lease)
        if not isinstance(store, OpeningStore):
            return lease
        return await store.save_opening(lease, opening)

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        await self._lease_store(lease).finish_turn(lease, turn, opening=opening)
        self._leases.pop(lease.turn.id, None)

    async def drop_turn(self, lease: Lease) -> None:
        await self._lease_store(lease).drop_turn(lease)
        self._leases.pop(lease.turn.id, None)

    def _lease_store(self, lease: Lease) -> Store:
        return self._leases.get(lease.turn.id, self.own)

    async def create(
        self,
        new: NewConversation,
        *,
        owner: str = LOCAL_OWNER,
        opening: Opening | None = None,
    ) -> StoredConversation:
        await self._check_free(new, owner)
        return await self.own.create(new, owner=owner, opening=opening)

    async def add(
        self,
        conversation: StoredConversation,
        *,
        owner: str = LOCAL_OWNER,
        preserve_times: bool = False,
    ) -> str:
        await self._check_free(conversation, owner)
        return await self.own.add(conversation, owner=owner, preserve_times=preserve_times)

    async def branch(
        self, ref: str, new: NewConversation, *, owner: str = LOCAL_OWNER, **options: Any
    ) -> StoredConversation:
        await self._check_free(new, owner)
        return await self._run(lambda store: store.branch(ref, new, owner=owner, **options))

    async def _check_free(self, new: NewConversation | StoredConversation, owner: str) -> None:
        for ref in filter(None, (new.name, new.id)):
            if await self._exists(ref, owner):
                raise ConversationExistsError(ref)

    async def _exists(self, ref: str, owner: str) -> bool:
        try:
            await self.summary(ref, owner=owner)
        except ConversationNotFoundError:
            return False
        return True

    async def load(self, ref: str, **options: Any) -> StoredConversation:
        return await self._run(lambda store: store.load(ref, **options))

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        return await self._run(lambda store: store.summary(ref, owner=owner))

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        return await self._run(lambda store: store.update(ref, changes, owner=owner))

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation | None:
        return await self._run(lambda store: store.capture(ref, opening, owner=owner))

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        await self._run(lambda store: store.delete(ref, owner=owner))

    async def delete_from(
        self,
        ref: str,
        sequence: int,
        *,
        owner: str = LOCAL_OWNER,
        unchanged: StoredConversation | None = None,
    ) -> None:
        await self._run(
            lambda store: store.delete_from(ref, sequence, owner=owner, unchanged=unchanged)
        )

    async def list_owners(self) -> tuple[str, ...]:
        owners = await self._read_both(lambda store: store.list_owners())
        return tuple(sorted({owner for one in owners for owner in one}))

    async def choose_variant(
        self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation:
        return await self._run(lambda store: store.choose_variant(ref, turn_id, owner=owner))

    async def list_conversations(
        self, *, limit: int = 100, offset: int = 0, owner: str = LOCAL_OWNER, **options: Any
    ) -> Page:
        count = min(limit + max(offset, 0), sys.maxsize)

        async def read(store: Store) -> Page:
            page = await store.list_conversations(limit=count, owner=owner, **options)
            return page if store is self.own else await self._hide_shadowed_names(page, owner)

        pages, notices = await self._run_on_both(read)
        page = merge_pages(pages, limit=limit, offset=offset)
        return msgspec.structs.replace(page, notices=(*page.notices, *notices))

    async def _hide_shadowed_names(self, page: Page, owner: str) -> Page:
        """Remove names that mean a conversation of `own`; the ID remains."""
        items = [
            msgspec.structs.replace(item, name=None)
            if item.name is not None and await self._is_own(item.name, owner)
            else item
            for item in page.items
        ]
        return msgspec.structs.replace(page, items=tuple(items))

    async def _is_own(self, ref: str, owner: str) -> bool:
        try:
            await self.own.summary(ref, owner=owner)
        except (ConversationNotFoundError, InvalidIdError, StoreUnavailableError):
            return False
        except StoreError:
            return True
        return True

    async def count_conversations(self, **options: Any) -> int:
        counts = await self._read_both(lambda store: store.count_conversations(**options))
        return sum(counts)

    async def read_overviews(
        self, ids: Sequence[str], *, owner: str = LOCAL_OWNER
    ) -> dict[str, Overview]:
        own, *other = await self._read_both(lambda store: store.read_overviews(ids, owner=owner))
        return {**(other[0] if other else {}), **own}

    async def search(self, query: str, *, limit: int = 20, offset: int = 0, **options: Any) -> Hits:
        count = min(limit + max(offset, 0), sys.maxsize)
        results, notices = await self._run_on_both(
            lambda store: store.search(query, limit=count, **options)
        )
        hits = merge_hits(results, limit=limit, offset=offset)
        return msgspec.structs.replace(hits, notices=(*hits.notices, *notices))

    async def usage(self, **options: Any) -> tuple[UsageSum, ...]:
        sums = await self._read_both(lambda store: store.usage(**options))
        return merge_usage(one for result in sums for one in result)

    async def find_paths(self, digests: Sequence[bytes], **options: Any) -> tuple[PathMatch, ...]:
        return merge_matches(
            await self._read_both(lambda store: store.find_paths(digests, **options))
        )

    async def list_family(
        self, family: str, *, limit: int = 20, **options: Any
    ) -> tuple[Summary, ...]:
        families = await self._read_both(
            lambda store: store.list_family(family, limit=limit, **options)
        )
        return tuple(sort_summaries(one for result in families for one in result)[:limit])

    async def close(self) -> None:
        try:
            await self.own.close()
        finally:
            if self._opened is not None:
                await self._opened.close()

    def _other(self) -> Store:
        if self._opened is None:
            self._opened = self._open_other()
        return self._opened

    async def _run(self, operation: Callable[[Store], Awaitable[T]]) -> T:
        """Run the operation on the store that has the conversation."""
        try:
            return await operation(self.own)
        except (ConversationNotFoundError, StoreUnavailableError) as error:
            if not (isinstance(error, ConversationNotFoundError) or _is_unavailable(error)):
                raise
            failure = error
        try:
            result = await operation(self._other())
        except (ConversationNotFoundError, InvalidIdError):
            # Only a folder of files knows the prefix `files:`.
            raise failure from None
        except CllmError as error:
            if not _is_unavailable(error):
                raise
            self._report(self._build_notice(error, self._locations[1]))
            raise failure from None
        if isinstance(failure, StoreUnavailableError):
            self._report(self._build_notice(failure, self._locations[0]))
        return result

    async def _run_on_both(
        self, operation: Callable[[Store], Awaitable[T]]
    ) -> tuple[list[T], tuple[Notice, ...]]:
        """Return the results, and a notice for a store that is unavailable; raise if both are."""
        results: list[T] = []
        failures: list[tuple[CllmError, str]] = []
        for is_own, location in zip((True, False), self._locations, strict=True):
            try:
                results.append(await operation(self.own if is_own else self._other()))
            except CllmError as error:
                if not _is_unavailable(error):
                    raise
                failures.append((error, location))
        if not results:
            raise failures[0][0]
        return results, tuple(self._build_notice(*failure) for failure in failures)

    async def _read_both(self, operation: Callable[[Store], Awaitable[T]]) -> list[T]:
        results, notices = await self._run_on_both(operation)
        for notice in notices:
            self._report(notice)
        return results

    def _build_notice(self, error: CllmError, location: str) -> Notice:
        message = f"The conversations in {location} are left out: {error}"
        return Notice(code=UNAVAILABLE, path=location, message=message)

    def _report(self, notice: Notice) -> None:
        if notice not in self._reported:
            self._reported.add(notice)
            self._warn(notice)


def _is_unavailable(error: CllmError) -> bool:
    """Whether the whole store is: a subclass of StoreUnavailableError is about one conversation."""
    return type(error) in (StoreUnavailableError, MissingExtraError, SettingsError)
