"""Searching what was said, message by message: for stores that have no index. Pure.

A message is found if it has every word of the query, whatever their case; newest first.
"""

from collections.abc import Iterable, Iterator

from cllm.core.conversation import Conversation
from cllm.core.errors import UsageError
from cllm.core.ports import Hit, Hits

AROUND = 60


def words_of(query: str) -> tuple[str, ...]:
    """The words to look for; UsageError if there are none."""
    words = tuple(query.casefold().split())
    if not words:
        raise UsageError("Say what to look for: the search has no words.")
    return words


def hits_in(conversation: Conversation, words: tuple[str, ...]) -> Iterator[Hit]:
    """The messages of the default path with all of these words."""
    for sequence, turn, message in conversation.numbered_messages():
        if not turn.is_history:
            continue
        text = message.text
        folded = text.casefold()
        if all(word in folded for word in words):
            yield Hit(
                conversation=conversation.id,
                title=conversation.title,
                sequence=sequence,
                role=message.role,
                snippet=snippet_of(text, words),
                created_at=turn.started_at,
            )


def snippet_of(text: str, words: tuple[str, ...]) -> str:
    """One line around the first of the words that stands in the text."""
    line = " ".join(text.split())
    folded = line.casefold()
    place = min((at for word in words if (at := folded.find(word)) >= 0), default=0)
    start, stop = max(place - AROUND, 0), place + AROUND
    return f"{'…' if start else ''}{line[start:stop]}{'…' if stop < len(line) else ''}"


def page_of_hits(hits: Iterable[Hit], *, limit: int, offset: int) -> Hits:
    found = sorted(hits, key=lambda hit: (hit.created_at, hit.sequence), reverse=True)
    return Hits(items=tuple(found[offset : offset + limit]), total=len(found))
