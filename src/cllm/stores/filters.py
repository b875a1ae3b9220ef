"""Filters of conversation lists and searches: the keyword arguments of a store as values."""

from datetime import datetime

import msgspec

from cllm.core.conversation import CHAT_SOURCE, SHELL_SOURCE, StoredConversation, Summary
from cllm.core.ports import ArchiveFilter, Origin


class SearchFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The conversations that a search reads; None selects everything."""

    archive_filter: ArchiveFilter = "active"
    model: str | None = None
    since: datetime | None = None
    origin: Origin | None = None

    def includes(self, conversation: Summary | StoredConversation, *, unnamed: Origin) -> bool:
        """Whether a conversation is selected; `unnamed` is the origin of one without a source."""
        is_archived = conversation.archived_at is not None
        return (
            (self.archive_filter == "all" or is_archived == (self.archive_filter == "archived"))
            and _contains(conversation.model, self.model)
            and (self.since is None or conversation.updated_at >= self.since)
            and self.origin in (None, find_origin(conversation.source, unnamed))
        )


class ListFilter(SearchFilter, frozen=True, kw_only=True):
    """The conversations of a list; `side` adds side conversations."""

    source: str | None = None
    side: bool = False
    title: str | None = None

    def includes(self, conversation: Summary | StoredConversation, *, unnamed: Origin) -> bool:
        return (
            self.source in (None, conversation.source)
            and (self.side or not conversation.is_side)
            and _contains(conversation.title, self.title)
            and super().includes(conversation, unnamed=unnamed)
        )


def find_origin(source: str | None, unnamed: Origin) -> Origin:
    """Return the interface that started a conversation; `unnamed` if it has no source."""
    if source == SHELL_SOURCE:
        return "shell"
    if source == CHAT_SOURCE:
        return "chat"
    return unnamed if source is None else "client"


def _contains(text: str | None, part: str | None) -> bool:
    return part is None or lower_ascii(part) in lower_ascii(text or "")


def lower_ascii(text: str) -> str:
    """Return the text with ASCII letters in lower case, as SQLite does."""
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")
