"""The turns that this process kept last, so that the next turn need not read them again.

What is remembered of a conversation holds as long as nobody else has written to the file, which
SQLite itself says (`data_version`), and nothing of ours but turns has either. A turn that begins
takes what there is, and one that ends brings it back: whatever else becomes of a turn leaves
nothing behind. Never holds more bytes than it is allowed.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from cllm.core.conversation import Conversation, Turn
from cllm.core.ports import Tail

MOST_BYTES = 8 * 2**20
LARGEST_SHARE = 8
"""A conversation may have this part of it; a longer one would take the place of many."""
_BESIDE = 512
"""What a message takes in memory beside its bytes."""
MOST_RUNNING = 10_000
MOST_ROWS = 16
"""Turns of which nobody ever says how they ended take no more than this."""
_Key = tuple[str, str]
Place = tuple[int, Sequence[int]]
"""The number of a turn, and those of its messages' rows."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a conversation's path, from the message with this sequence number on."""

    turns: tuple[Turn, ...]
    variants: tuple[Turn, ...]
    first_sequence: int
    message_count: int
    size: int


class RecentTurns:
    """Conversations by owner and id, the one that was answered last at the end."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._version = 0
        self._known: OrderedDict[_Key, Remembered] = OrderedDict()
        self._running: OrderedDict[tuple[_Key, str], Place] = OrderedDict()

    def look(self, db: sqlite3.Connection) -> None:
        """Forget everything if somebody else wrote to the file. Every transaction begins so."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.forget()
            self._version = version

    def take(self, key: _Key) -> Remembered | None:
        """What is known of the conversation, which is not known from now on."""
        found = self._known.pop(key, None)
        if found is not None:
            self._bytes -= found.size
        return found

    def bring(self, conversation: Conversation, turn: Turn) -> None:
        """Remember the conversation with a turn that was added at its end."""
        self.take(key := (conversation.owner, conversation.id))
        turns = (*conversation.turns, turn)
        count = conversation.message_count + len(turn.messages)
        size = _size(turns) + _size(conversation.variants)
        if size > self._most_bytes // LARGEST_SHARE:
            return
        self._known[key] = Remembered(
            turns=turns,
            variants=conversation.variants,
            first_sequence=conversation.first_sequence,
            message_count=count,
            size=size,
        )
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._bytes -= self._known.popitem(last=False)[1].size

    def note(self, key: _Key, turn_id: str, place: Place) -> None:
        """Remember where a turn that runs now was written, if that is soon said."""
        if len(place[1]) > MOST_ROWS:
            return
        self._running[key, turn_id] = place
        if len(self._running) > MOST_RUNNING:
            self._running.popitem(last=False)

    def take_place(self, key: _Key, turn_id: str) -> Place | None:
        """Where it was written, which is not known from now on."""
        return self._running.pop((key, turn_id), None)

    def forget(self) -> None:
        """Know nothing any more: something else than a turn was written, or a turn was not.

        So it is when the file is closed, as a connection counts what others write from anew.
        """
        self._known.clear()
        self._running.clear()
        self._bytes = 0


def tail_of(known: Remembered, pins: Sequence[int], tail: Tail) -> Remembered | None:
    """What a store loads of it; None where more is needed than is known, or hardly anything."""
    first = _window_start(known, pins) if tail == "window" else _start(known, tail)
    if first is None or not known.first_sequence <= first <= known.message_count:
        return None
    return _from(known, first)


def _start(known: Remembered, tail: int | None) -> int:
    """The first of the newest messages, as many as are wanted, or of all."""
    return 1 if tail is None else max(known.message_count - tail + 1, 1)


def _window_start(known: Remembered, pins: Sequence[int]) -> int | None:
    """The first message that the next window can use, if the last one is known."""
    last = next((turn for turn in reversed(known.turns) if turn.is_history), None)
    if last is None:
        return None
    cut = 1 if last.window is None else last.window.first_sequence
    return min((cut, *pins))


def _from(known: Remembered, first: int) -> Remembered:
    """What is known from the turn on that this message is in."""
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


def _size(turns: Sequence[Turn]) -> int:
    sizes = [len(message.raw) for turn in turns for message in turn.messages]
    return sum(sizes) + _BESIDE * len(sizes)
