"""Which turns of a branch can share the stored messages of its source. Runs no SQL.

A stored message has the digest of its path. A branch with another path cannot share the messages
after the point where the paths differ.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from cllm.core.conversation import StoredConversation, Turn


def find_shared_turns(source: StoredConversation, branch: StoredConversation) -> frozenset[str]:
    """Return the IDs of the turns whose path is the same in both, truncated turns included.

    The messages of a running turn change, so they are not shared.
    """
    common = _count_common(_list_history(source.turns), _list_history(branch.turns))
    lengths, source_lengths = dict(_count_before(branch)), dict(_count_before(source))
    return frozenset(
        turn.id
        for turn in branch.turns + branch.variants
        if turn.state != "running"
        and turn.place in source_lengths
        and lengths[turn.place] == source_lengths[turn.place] <= common
    )


def count_messages(conversation: StoredConversation) -> dict[str, int]:
    """Return the number of messages of each turn, by its ID."""
    turns = conversation.turns + conversation.variants
    return {turn.id: len(turn.messages) for turn in turns}


def _list_history(turns: Sequence[Turn]) -> list[str]:
    """Return the IDs of the turns that are part of the path of later ones."""
    return [turn.id for turn in turns if turn.is_history and turn.messages]


def _count_common(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _count_before(conversation: StoredConversation) -> Iterator[tuple[str, int]]:
    """Yield each slot of the default path with the number of turns with a history before it."""
    count = 0
    for turn in conversation.turns:
        yield turn.place, count
        count += bool(turn.is_history and turn.messages)
