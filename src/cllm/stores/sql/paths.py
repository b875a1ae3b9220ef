"""Parameters and rows of a search by path digests, for both engines."""

from collections.abc import Sequence
from typing import get_args

from cllm.core.conversation import TurnState
from cllm.core.ports import PathMatch
from cllm.stores.sql.rows import Row
from cllm.wire.path_digest import IDS_SIZE, meaning_of

_STATES = frozenset(get_args(TurnState))


def search_digests(digests: Sequence[bytes], *, any_ids: bool) -> list[bytes]:
    """Return the digests to search; with `any_ids` each ends with the highest IDs."""
    if not any_ids:
        return list(digests)
    return [meaning_of(digest) + b"\xff" * IDS_SIZE for digest in digests]


def decode_matches(rows: Sequence[Row]) -> tuple[PathMatch, ...]:
    """Return the matches, newest conversation first, without those in damaged rows.

    A row has the fields of a match in order, with the first sequence number of the turn instead of
    that of the message, then the time of the conversation.
    """
    readable = [row for row in rows if _is_match(row)]
    readable.sort(key=lambda row: row[-1], reverse=True)
    return tuple(
        PathMatch(
            conversation=conversation,
            turn=turn,
            ordinal=ordinal,
            position=position,
            sequence=None if first is None else first + ordinal,
            message_count=message_count,
            state=state,
        )
        for conversation, turn, ordinal, position, first, message_count, state, _ in readable
    )


def _is_match(row: Row) -> bool:
    *names, ordinal, position, first, message_count, state, _ = row
    numbers = (ordinal, position, message_count, 0 if first is None else first)
    has_types = {str}.issuperset(map(type, names)) and {int}.issuperset(map(type, numbers))
    return has_types and state in _STATES
