"""The turns that this process saved last, so that the next turn does not read them again.

An entry is valid until another connection writes to the file (`PRAGMA data_version`) or this store
writes something other than turns. A turn that starts takes the entry and one that ends puts it
back, so a lost turn leaves nothing stale.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.ports import Tail

MAX_BYTES = 8 * 2**20
MAX_SHARE = 8
"""A conversation may use this fraction; a longer one would replace many."""
_MESSAGE_OVERHEAD = 512
"""The memory of a message beside its bytes."""
MAX_RUNNING = 10_000
MAX_ROWS = 16
"""Turns that never end hold no more rows than this."""
_Key = tuple[str, str]
TurnRows = tuple[int, Sequence[int]]
"""The number of a turn, and those of its messages' rows."""


class CachedTurns(msgspec.Struct, frozen=True, kw_only=True):
    turns: tuple[Turn, ...]
    variants: tuple[Turn, ...]
    first_sequence: int
    message_count: int
    size: int


class TurnCache:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._most_bytes = max_bytes
        self._bytes = 0
        self._version = 0
        self._known: OrderedDict[_Key, CachedTurns] = OrderedDict()
        self._running: OrderedDict[tuple[_Key, str], TurnRows] = OrderedDict()

    def check_version(self, db: sqlite3.Connection) -> None:
        """Forget everything if another connection wrote. Every transaction starts with this."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.clear()
            self._version = version

    def pop(self, key: _Key) -> CachedTurns | None:
        found = self._known.pop(key, None)
        if found is not None:
            self._bytes -= found.size
        return found

    def put(self, conversation: StoredConversation, turn: Turn, *, message_count: int) -> None:
        self.pop(key := (conversation.owner, conversation.id))
        turns = (*conversation.turns, turn)
        size = _estimate_size(turns) + _estimate_size(conversation.variants)
        if size > self._most_bytes // MAX_SHARE:
            return
        self._known[key] = CachedTurns(
            turns=turns,
            variants=conversation.variants,
            first_sequence=conversation.first_sequence,
            message_count=message_count,
            size=size,
        )
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._bytes -= self._known.popitem(last=False)[1].size

    def put_running(self, key: _Key, turn_id: str, place: TurnRows) -> None:
        """Remember the rows of a running turn, if they are few."""
        if len(place[1]) > MAX_ROWS:
            return
        self._running[key, turn_id] = place
        if len(self._running) > MAX_RUNNING:
            self._running.popitem(last=False)

    def pop_running(self, key: _Key, turn_id: str) -> TurnRows | None:
        return self._running.pop((key, turn_id), None)

    def clear(self) -> None:
        """Forget everything. Also when the file is closed: a new connection counts anew."""
        self._known.clear()
        self._running.clear()
        self._bytes = 0


def select_cached_tail(known: CachedTurns, pins: Sequence[int], tail: Tail) -> CachedTurns | None:
    """What a store would load; None where the entry has less."""
    first = _find_window_start(known, pins) if tail == "window" else _find_start(known, tail)
    if first is None or not known.first_sequence <= first <= known.message_count:
        return None
    return _drop_before(known, first)


def _find_start(known: CachedTurns, tail: int | None) -> int:
    return 1 if tail is None else max(known.message_count - tail + 1, 1)


def _find_window_start(known: CachedTurns, pins: Sequence[int]) -> int | None:
    last = next((turn for turn in reversed(known.turns) if turn.is_history), None)
    if last is None:
        return None
    cut = 1 if last.window is None else last.window.first_sequence
    return min((cut, *pins))


def _drop_before(known: CachedTurns, first: int) -> CachedTurns:
    sequence, before = known.first_sequence, 0
    while sequence + len(known.turns[before].messages) <= first:
        sequence += len(known.turns[before].messages)
        before += 1
    if before == 0:
        return known
    turns = known.turns[before:]
    places = {turn.place for turn in turns}
    return msgspec.structs.replace(
        known,
        turns=turns,
        variants=tuple(turn for turn in known.variants if turn.place in places),
        first_sequence=sequence,
    )


def _estimate_size(turns: Sequence[Turn]) -> int:
    sizes = [len(message.raw) for turn in turns for message in turn.messages]
    return sum(sizes) + _MESSAGE_OVERHEAD * len(sizes)
