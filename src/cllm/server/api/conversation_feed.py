"""The feed of changed conversations: one stream of server-sent events per listener.

One task per process and owner polls the stores while the owner has listeners. It therefore sees the
changes of other workers, servers and shells. An event has no text of a message.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from cllm.core.conversation import Summary
from cllm.core.errors import ConversationNotFoundError, InvalidIdError, StoreError
from cllm.core.ports import ArchiveFilter, ConversationCounts, Page, WatchedStore
from cllm.server.api.conversation_lists import find_stores, publish_summary
from cllm.server.api.conversation_ref import StoreRef
from cllm.server.api.turn_events import STREAM_HEADERS
from cllm.server.http.errors import ApiError
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.task import EVENT_STREAM

POLL_SECONDS = 1.0
WHOLE_POLL_SECONDS = 300.0
"""Time after which a poll ignores versions: an editor can change a file and not its folder."""
OVERLAP = timedelta(seconds=10)
"""Two processes can commit in another order than their clocks have."""
PAGE_SIZE = 100
PAUSE_PER_COUNT = 20
"""Times the duration of a count: counting takes at most 5 % of the time of a store's reader."""
MAX_KNOWN = 10_000
"""The newest conversations whose deletion is noticed."""
MAX_UNREAD = 1000
"""Events. A listener that reads more slowly is disconnected, and reconnects."""
KEEP_ALIVE = b": keep-alive\n\n"
_COUNTED: tuple[ArchiveFilter, ...] = ("all", "archived")
OLDEST = datetime(1970, 1, 1, tzinfo=UTC)

EventType = Literal["created", "changed", "archived", "deleted", "running", "finished"]


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one conversation. `state`: `running` while a turn runs."""

    type: EventType
    id: str
    updated_at: datetime
    message_count: int
    title: str | None = None
    model: str | None = None
    source: str | None = None
    state: Literal["running", "idle"] = "idle"


class _Entry(msgspec.Struct, frozen=True):
    """A conversation as of the last poll."""

    summary: Summary
    is_running: bool

    def event(self, kind: EventType) -> FeedEvent:
        summary = self.summary
        return FeedEvent(
            type=kind,
            id=summary.id,
            updated_at=summary.updated_at,
            message_count=summary.message_count,
            title=summary.title,
            model=summary.model,
            source=summary.source,
            state="running" if self.is_running else "idle",
        )


Listener = asyncio.Queue[bytes]
"""Events; b"" is the end of the stream."""


async def get_feed(request: ApiRequest) -> Response:
    """GET /v1/conversations/events."""
    cursor = _read_cursor(request)
    feeds, owner = request.server.feeds, request.caller.owner
    feed = feeds.get(owner)
    if feed is None:
        feed = feeds[owner] = ConversationFeed(find_stores(None, request), request.server)
    return StreamingResponse(feed.stream(cursor), media_type=EVENT_STREAM, headers=STREAM_HEADERS)


def _read_cursor(request: ApiRequest) -> datetime | None:
    value = request.headers.get("last-event-id", "").strip()
    if not value:
        return None
    try:
        return max(datetime.fromisoformat(value).astimezone(UTC), OLDEST)
    except (ValueError, OverflowError):
        raise ApiError(
            "invalid_header",
            "Last-Event-ID must be the `id` of an event of this stream.",
            param="Last-Event-ID",
        ) from None


class ConversationFeed:
    """The conversations of one owner in some stores."""

    def __init__(self, refs: tuple[StoreRef, ...], state: ServerState) -> None:
        self._refs = refs
        self._state = state
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._snapshot = FeedSnapshot(refs)
        self._cursor = OLDEST

    async def stream(self, cursor: datetime | None) -> AsyncIterator[bytes]:
        """Yield the changes after the cursor, then new ones until the server stops."""
        listener: Listener = asyncio.Queue(MAX_UNREAD + 1)
        self._listeners.add(listener)
        try:
            if self._task is None:
                self._start()
            await self._ready.wait()
            newest = self._cursor
            yield b": connected\n\n"
            if cursor is not None:
                # With the old cursor, so that a second break in the middle misses nothing.
                async for entry in self._snapshot.read_since(cursor - OVERLAP):
                    yield encode_event(entry.event("changed"), cursor)
            for entry in self._snapshot.running():
                yield encode_event(entry.event("running"), cursor or newest)
            yield b"event: ready\nid: %b\ndata: {}\n\n" % _format_cursor(newest)
            while data := await self._next(listener):
                yield data
        finally:
            self._remove(listener)

    async def _next(self, listener: Listener) -> bytes:
        try:
            async with asyncio.timeout(self._state.settings.silence_seconds):
                return await listener.get()
        except TimeoutError:
            return KEEP_ALIVE

    def _start(self) -> None:
        self._snapshot = FeedSnapshot(self._refs)
        self._ready = asyncio.Event()
        self._task = asyncio.create_task(self._poll_forever())

    def _remove(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll_forever(self) -> None:
        while not self._state.turns.is_stopping:
            # A store that cannot be read now may be readable at the next poll.
            with suppress(StoreError):
                for event in await self._snapshot.poll():
                    self._cursor = max(self._cursor, event.updated_at)
                    self._send(encode_event(event, self._cursor))
                self._cursor = max(self._cursor, self._snapshot.newest)
                self._ready.set()
            await asyncio.sleep(POLL_SECONDS)
        self._ready.set()
        for listener in self._listeners:
            _close(listener)

    def _send(self, data: bytes) -> None:
        for listener in self._listeners:
            if listener.qsize() < MAX_UNREAD:
                listener.put_nowait(data)
            else:
                _close(listener)


def _close(listener: Listener) -> None:
    with suppress(asyncio.QueueFull):
        listener.put_nowait(b"")


class FeedSnapshot:
    """The newest conversations as of the last poll. `newest` is the time of the newest change."""

    def __init__(
        self, refs: tuple[StoreRef, ...], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns seconds."""
        self._refs = refs
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._counts: ConversationCounts | None = None
        self._versions: list[str | None] = []
        self._whole_poll_at = 0.0
        self._count_at = 0.0
        self._needs_count = False
        self.newest = OLDEST

    def running(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if entry.is_running]

    async def poll(self) -> list[FeedEvent]:
        """Return the changes since the last poll; none at the first."""
        versions = [await _read_version(ref) for ref in self._refs]
        now = self._clock()
        is_whole = self._counts is None or now >= self._whole_poll_at
        with_counts = is_whole or now >= self._count_at
        is_unchanged = None not in versions and versions == self._versions
        if is_unchanged and not is_whole and not (self._needs_count and with_counts):
            return []
        if self._counts is None:
            await self._load()
            events = []
        else:
            events = await self._compare(self._counts, is_whole=is_whole, with_counts=with_counts)
        self._versions = versions
        # A poll after the pause counts even if nothing else changes.
        self._needs_count = not with_counts
        if is_whole:
            self._whole_poll_at = now + WHOLE_POLL_SECONDS
        return events

    async def _load(self) -> None:
        running = await self._list_running()
        listed = await self._list_all()
        counts = await self._count()
        self._entries = {
            summary.id: _Entry(summary, summary.id in running) for summary in listed.values()
        }
        times = [summary.updated_at for summary in listed.values()]
        self.newest = max(times, default=OLDEST)
        self._counts = counts

    async def _compare(
        self, previous: ConversationCounts, *, is_whole: bool, with_counts: bool
    ) -> list[FeedEvent]:
        """Return the changes. A StoreError leaves everything as it was, for the next poll."""
        running = await self._list_running()
        entries = await self._read_changed(running)
        created = sum(public_id not in self._entries for public_id in entries)
        expected = msgspec.structs.replace(previous, total=previous.total + created)
        current = await self._count() if with_counts else expected
        finds_archived = is_whole or current.archived != expected.archived
        finds_deleted = is_whole or current.total < expected.total
        listed = await self._list_all() if finds_archived or finds_deleted else {}
        if finds_archived:
            # These keep their time.
            for public_id, summary in listed.items():
                entry = self._entries.get(public_id)
                if entry is not None and entry.summary.archived_at != summary.archived_at:
                    entries.setdefault(public_id, _Entry(summary, public_id in running))
        known = self._entries | entries
        events = [
            entry.event(kind)
            for entry in sorted(entries.values(), key=lambda entry: entry.summary.updated_at)
            if (kind := _compare_entry(self._entries.get(entry.summary.id), entry)) is not None
        ]
        newest = max([self.newest, *(event.updated_at for event in events)])
        if finds_deleted:
            missing = [known.pop(public_id) for public_id in list(known) if public_id not in listed]
            deleted, unreadable = await self._find_deleted(missing)
            known |= {entry.summary.id: entry for entry in unreadable}
            idle = (msgspec.structs.replace(entry, is_running=False) for entry in deleted)
            events += [entry.event("deleted") for entry in idle]
        self._entries = _select_newest(known)
        self._counts, self.newest = current, newest
        return events

    async def _read_changed(self, running: set[str]) -> dict[str, _Entry]:
        """Return the newest conversations, and those in which a turn started or ended."""
        entries = {
            entry.summary.id: msgspec.structs.replace(entry, is_running=entry.summary.id in running)
            async for entry in self.read_since(self.newest - OVERLAP)
        }
        was_running = {entry.summary.id for entry in self.running()}
        for public_id in (running ^ was_running) - entries.keys():
            # One that cannot be read must not stop the events of the others.
            with suppress(StoreError):
                summary = await self._find(public_id)
                if summary is not None and not summary.is_side:
                    entries[public_id] = _Entry(summary, public_id in running)
        return entries

    async def _find_deleted(self, missing: Sequence[_Entry]) -> tuple[list[_Entry], list[_Entry]]:
        """Return the deleted conversations, and those that cannot be read, such as a damaged file.

        A conversation that is not among the newest any more still exists.
        """
        deleted: list[_Entry] = []
        unreadable: list[_Entry] = []
        for entry in missing:
            try:
                if await self._find(entry.summary.id) is None:
                    deleted.append(entry)
            except StoreError:
                unreadable.append(entry)
        return deleted, unreadable

    async def read_since(self, since: datetime) -> AsyncIterator[_Entry]:
        """Yield the conversations that changed at or after a time, newest first in each store."""
        running = {entry.summary.id for entry in self.running()}
        for ref in self._refs:
            cursor: str | None = None
            while True:
                page = await _read_page(ref, PAGE_SIZE, cursor)
                recent = [item for item in page.items if item.updated_at >= since]
                for item in recent:
                    summary = publish_summary(item, ref.prefix)
                    yield _Entry(summary, summary.id in running)
                cursor = page.next_cursor
                if cursor is None or len(recent) < len(page.items):
                    break

    async def _list_all(self) -> dict[str, Summary]:
        """Return the newest conversations of each store by public ID."""
        pages = [(ref, await _read_page(ref, MAX_KNOWN)) for ref in self._refs]
        summaries = (
            publish_summary(item, ref.prefix) for ref, page in pages for item in page.items
        )
        return {summary.id: summary for summary in summaries}

    async def _count(self) -> ConversationCounts:
        """Return the sums of all stores, and set the time of the next count."""
        start = self._clock()
        counts = [await _count_store(ref) for ref in self._refs]
        end = self._clock()
        self._count_at = end + (end - start) * PAUSE_PER_COUNT
        return ConversationCounts(
            total=sum(one.total for one in counts), archived=sum(one.archived for one in counts)
        )

    async def _list_running(self) -> set[str]:
        running: set[str] = set()
        for ref in self._refs:
            if isinstance(ref.store, WatchedStore):
                ids = await ref.store.list_running(owner=ref.owner)
                running.update(f"{ref.prefix}{one}" for one in ids)
        return running

    async def _find(self, public_id: str) -> Summary | None:
        """Return the summary; None if the conversation does not exist."""
        ref = next(ref for ref in reversed(self._refs) if public_id.startswith(ref.prefix))
        try:
            found = await ref.store.summary(public_id.removeprefix(ref.prefix), owner=ref.owner)
        except (ConversationNotFoundError, InvalidIdError):
            return None
        return publish_summary(found, ref.prefix)


def _compare_entry(old: _Entry | None, new: _Entry) -> EventType | None:
    if old == new:
        return None
    if old is None:
        return "created"
    if new.is_running != old.is_running:
        return "running" if new.is_running else "finished"
    is_archived = new.summary.archived_at is not None and old.summary.archived_at is None
    return "archived" if is_archived else "changed"


async def _read_version(ref: StoreRef) -> str | None:
    if not isinstance(ref.store, WatchedStore):
        return None
    return await ref.store.read_version(owner=ref.owner)


async def _count_store(ref: StoreRef) -> ConversationCounts:
    if isinstance(ref.store, WatchedStore):
        return await ref.store.count_all(owner=ref.owner)
    total, archived = [
        await ref.store.count_conversations(owner=ref.owner, archive_filter=archive_filter)
        for archive_filter in _COUNTED
    ]
    return ConversationCounts(total=total, archived=archived)


def _select_newest(entries: dict[str, _Entry]) -> dict[str, _Entry]:
    if len(entries) <= 2 * MAX_KNOWN:
        return entries
    newest = sorted(entries.values(), key=lambda entry: entry.summary.updated_at)[-MAX_KNOWN:]
    return {entry.summary.id: entry for entry in newest}


async def _read_page(ref: StoreRef, limit: int, cursor: str | None = None) -> Page:
    return await ref.store.list_conversations(
        owner=ref.owner, archive_filter="all", limit=limit, cursor=cursor
    )


def encode_event(event: FeedEvent, cursor: datetime) -> bytes:
    return b"id: %b\ndata: %b\n\n" % (_format_cursor(cursor), msgspec.json.encode(event))


def _format_cursor(cursor: datetime) -> bytes:
    return cursor.isoformat().encode()
