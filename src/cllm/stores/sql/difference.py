"""The difference between a stored conversation and an edited one, as rows. Pure.

The store reads what the edit needs, applies it, and executes the difference in one transaction.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from cllm.core.conversation import Conversation, Turn
from cllm.core.message import Message

UNREAD = Message(role="user", raw=b"{}")
"""Stands for a message that an edit does not read; only their number counts."""

replace = msgspec.structs.replace


class StoredTurn(NamedTuple):
    number: int
    position: int | None


class Move(NamedTuple):
    """A turn's new position, after `before` messages of the path; None: off the path."""

    number: int
    position: int | None
    before: int | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, by turn numbers. `cut`: how many messages a turn keeps."""

    deleted: tuple[int, ...]
    changed: tuple[tuple[int, Turn], ...]
    cut: tuple[tuple[int, int], ...]
    moved: tuple[Move, ...]


def without_messages(turn: Turn, count: int) -> Turn:
    return replace(turn, messages=(UNREAD,) * count)


def difference(
    old: Conversation, new: Conversation, stored: Mapping[str, StoredTurn]
) -> Difference:
    """What changes the turns of `old` into those of `new`; `old` can be loaded in part.

    An edit adds no turn, and takes messages off a turn's end only.
    """
    were = {turn.id: turn for turn in old.turns + old.variants}
    are = {turn.id: turn for turn in new.turns + new.variants}
    positions = {turn.place: stored[turn.id].position for turn in old.turns}
    before = dict(_moves(old, positions, stored))
    after = dict(_moves(new, positions, stored))
    kept = [(stored[key].number, were[key], turn) for key, turn in are.items()]
    return Difference(
        deleted=tuple(stored[key].number for key in were if key not in are),
        changed=tuple((number, turn) for number, was, turn in kept if _row(was) != _row(turn)),
        cut=tuple(
            (number, len(turn.messages))
            for number, was, turn in kept
            if len(turn.messages) < len(was.messages)
        ),
        moved=tuple(after[key] for key in are if before[key] != after[key]),
    )


def _row(turn: Turn) -> Turn:
    return replace(turn, messages=())


def _moves(
    conversation: Conversation,
    positions: Mapping[str, int | None],
    stored: Mapping[str, StoredTurn],
) -> Iterator[tuple[str, Move]]:
    before = conversation.first_sequence - 1
    for turn in conversation.turns:
        yield turn.id, Move(stored[turn.id].number, positions[turn.place], before)
        before += len(turn.messages)
    for turn in conversation.variants:
        yield turn.id, Move(stored[turn.id].number, None, None)
