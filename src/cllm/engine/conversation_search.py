"""Searches the messages and titles of all conversations of a store."""

import msgspec

from cllm.core.conversation import Summary
from cllm.core.notice import Notice
from cllm.core.ports import ArchiveFilter, Hit, Store

MAX_HITS = 1000
MAX_LISTED = 10**9


class FoundConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with matching messages, best first, or a matching title."""

    summary: Summary
    hits: tuple[Hit, ...] = ()
    is_in_title: bool = False


class FoundConversations(msgspec.Struct, frozen=True, kw_only=True):
    """`more`: more messages match than were compared."""

    items: tuple[FoundConversation, ...]
    more: bool = False
    notices: tuple[Notice, ...] = ()


async def search_conversations(
    store: Store, query: str, *, archive_filter: ArchiveFilter = "active"
) -> FoundConversations:
    """Return the conversations that contain the words of the query, newest first.

    Raises UsageError if the query has no words.
    """
    hits = await store.search(query, archive_filter=archive_filter, limit=MAX_HITS)
    page = await store.list_conversations(
        archive_filter=archive_filter, side=True, limit=MAX_LISTED
    )
    by_conversation: dict[str, list[Hit]] = {}
    for hit in hits.items:
        by_conversation.setdefault(hit.conversation, []).append(hit)
    text = query.casefold()
    items = (
        FoundConversation(
            summary=summary,
            hits=tuple(by_conversation.get(summary.id, ())),
            is_in_title=text in (summary.title or "").casefold(),
        )
        for summary in page.items
    )
    return FoundConversations(
        items=tuple(item for item in items if item.hits or item.is_in_title),
        more=hits.more,
        notices=page.notices,
    )


def describe_no_results(query: str, archive_filter: ArchiveFilter, *, more: bool) -> str:
    """Return a sentence about a search without results; `more`: older messages match too."""
    if more:
        return (
            f"The newest messages with '{query}' are in no {archive_filter} conversation; search "
            "for more words to find older ones."
        )
    return f"No conversation contains '{query}'."
