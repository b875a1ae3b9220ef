"""The conversations that a list shows: the query of `/` and `/search`."""

from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from cllm.core.conversation import Summary
from cllm.core.ports import ArchiveFilter, Origin
from cllm.server.http.parameters import Count, read_query
from cllm.server.state import ApiRequest
from cllm.stores.filters import SearchFilter

ORIGINS = ("", "shell", "chat", "client")
DAYS = ("", "1", "7", "30", "365")
ARCHIVE_FILTERS = ("active", "archived", "all")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Search words and filters. An empty value, as a form sends it, selects everything."""

    q: str = ""
    archive_filter: ArchiveFilter = "active"
    origin: Literal["", "shell", "chat", "client"] = ""
    model: str = ""
    days: Literal["", "1", "7", "30", "365"] = ""
    cursor: str = ""
    offset: Count = 0

    @property
    def words(self) -> str:
        """The search words; the last one, which may be incomplete, finds words that start so."""
        words = self.q.strip()
        return f"{words}*" if self.q[-1:].isalnum() else words

    @property
    def has_conversation_filter(self) -> bool:
        return bool(self.origin or self.model or self.days)

    @property
    def folded_filters(self) -> int:
        """The number of filters in the folded part of the form."""
        return sum((self.archive_filter != "active", bool(self.model), bool(self.days)))

    def since(self, now: datetime) -> datetime | None:
        return now - timedelta(days=int(self.days)) if self.days else None

    def filters(self, now: datetime) -> dict[str, Any]:
        """Return the filters of model, time and origin; None selects everything."""
        return {
            "model": self.model or None,
            "since": self.since(now),
            "origin": self.origin or None,
        }

    def includes(self, summary: Summary, *, unnamed: Origin, now: datetime) -> bool:
        """Whether the filters, without the words, select a conversation.

        `unnamed` is the origin of a conversation without a source.
        """
        selected = SearchFilter(archive_filter=self.archive_filter, **self.filters(now))
        return selected.includes(summary, unnamed=unnamed)

    def url(self, **changes: Any) -> str:
        """Return the path and query of this selection, with other values."""
        values = msgspec.structs.asdict(msgspec.structs.replace(self, **changes))
        defaults = msgspec.structs.asdict(EVERYTHING)
        query = urlencode({key: value for key, value in values.items() if value != defaults[key]})
        path = "/search" if values["q"] else "/"
        return f"{path}?{query}" if query else path


EVERYTHING = Selection()


def read_selection(request: ApiRequest) -> Selection:
    """Return the selection in the query of the request."""
    return read_query(request, Selection)
