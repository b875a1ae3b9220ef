"""A cache of the turns that this process saved last, so that the next turn need not read them.

An entry is valid until another connection writes to the file (`PRAGMA data_version`) or this store
writes something other than turns. Starting a turn removes the entry and finishing it adds one, so
that a lost turn leaves no stale entry.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.ports import Tail

MAX_BYTES = 8 * 2**20
MAX_SHARE = 8
"""One conversation may use 1/MAX_SHARE of the cache."""
_MESSAGE_OVERHEAD = 512
"""Bytes of memory per message, without its JSON."""
MAX_RUNNING = 10_000
MAX_ROWS = 16
"""Turns that never end keep no more rows than this."""
_Key = tuple[str, str]


class TurnRows(NamedTuple):
    """The number of a turn, the group of its messages, and their row numbers."""

    number: int
    group: int
    messages: Sequence[int]


class CachedTurns(msgspec.Struct, frozen=True, kw_only=True):
    turns: tuple[Turn, ...]
    variants: tuple[Turn, ...]
    first_sequence: int
    message_count: int
    size: int


class TurnCache:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._version = 0
        self._entries: OrderedDict[_Key, CachedTurns] = OrderedDict()
        self._running: OrderedDict[tuple[_Key, str], TurnRows] = OrderedDict()

    def check_version(self, db: sqlite3.Connection) -> None:
        """Clear the cache if another connection wrote. Every transaction starts with this."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.clear()
            self._version = version

    def pop(self, key: _Key) -> CachedTurns | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
        return entry

    def put(self, conversation: StoredConversation, turn: Turn, *, message_count: int) -> None:
        self.pop(key := (conversation.owner, conversation.id))
        turns = (*conversation.turns, turn)
        size = _estimate_size(turns) + _estimate_size(conversation.variants)
        if size > self._max_bytes // MAX_SHARE:
            return
        self._entries[key] = CachedTurns(
            turns=turns,
            variants=conversation.variants,
            first_sequence=conversation.first_sequence,
            message_count=message_count,
            size=size,
        )
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= self._entries.popitem(last=False)[1].size

    def put_running(self, key: _Key, turn_id: str, rows: TurnRows) -> None:
        """Cache the row numbers of a running turn, if they are few."""
        if len(rows.messages) > MAX_ROWS:
            return
        self._running[key, turn_id] = rows
        if len(self._running) > MAX_RUNNING:
            self._running.popitem(last=False)

    def pop_running(self, key: _Key, turn_id: str) -> TurnRows | None:
        return self._running.pop((key, turn_id), None)

    def clear(self) -> None:
        """Also called on close: a new connection has other version numbers."""
        self._entries.clear()
        self._running.clear()
        self._bytes = 0


def select_cached_tail(cached: CachedTurns, pins: Sequence[int], tail: Tail) -> CachedTurns | None:
    """Return the part of the entry that the store would load; None if the entry has less."""
    first = _find_window_start(cached, pins) if tail == "window" else _find_start(cached, tail)
    if first is None or not cached.first_sequence <= first <= cached.message_count:
        return None
    return _drop_before(cached, first)


def _find_start(cached: CachedTurns, tail: int | None) -> int:
    return 1 if tail is None else max(cached.message_count - tail + 1, 1)


def _find_window_start(cached: CachedTurns, pins: Sequence[int]) -> int | None:
    last = next((turn for turn in reversed(cached.turns) if turn.is_history), None)
    if last is None:
        return None
    cut = 1 if last.window is None else last.window.first_sequence
    return min((cut, *pins))


def _drop_before(cached: CachedTurns, first: int) -> CachedTurns:
    sequence, before = cached.first_sequence, 0
    while sequence + len(cached.turns[before].messages) <= first:
        sequence += len(cached.turns[before].messages)
        before += 1
    if before == 0:
        return cached
    turns = cached.turns[before:]
    places = {turn.place for turn in turns}
    return msgspec.structs.replace(
        cached,
        turns=turns,
        variants=tuple(turn for turn in cached.variants if turn.place in places),
        first_sequence=sequence,
    )


def _estimate_size(turns: Sequence[Turn]) -> int:
    sizes = [len(message.raw) for turn in turns for message in turn.messages]
    return sum(sizes) + _MESSAGE_OVERHEAD * len(sizes)
