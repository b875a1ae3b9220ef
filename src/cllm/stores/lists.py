"""Pages of conversations, search terms, tails and sums of usage.

`ScannedLists` computes the lists for stores without an index. The rest is pure.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import TypeVar

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.core.ports import ArchiveFilter, CallRecord, Hit, Hits, Page, Tail, UsageBy, UsageSum
from cllm.core.reply import Usage

T = TypeVar("T")

_SEPARATOR = "~"
SNIPPET_RADIUS = 60
MAX_TERM_LENGTH = 64
_JOINED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"(?P<joined>[{_JOINED}]+)|[^\W_{_JOINED}]+")
_PLAIN = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128))
_PLAIN_WORDS = _PLAIN + bytes(128)
UNKNOWN_MODEL = "unknown"


def build_page(
    summaries: Iterable[Summary],
    *,
    archive_filter: ArchiveFilter,
    limit: int,
    cursor: str | None,
    offset: int = 0,
    notices: tuple[Notice, ...] = (),
) -> Page:
    """The page after `cursor`, newest first; notices with the first page only."""
    check_page_size(limit, "conversations")
    wanted = [summary for summary in summaries if matches_filter(summary, archive_filter)]
    wanted.sort(key=lambda summary: summary.id)
    wanted.sort(key=lambda summary: summary.updated_at, reverse=True)
    if cursor is not None:
        updated_at, last_id = decode_cursor(cursor)
        wanted = [
            summary
            for summary in wanted
            if summary.updated_at < updated_at
            or (summary.updated_at == updated_at and summary.id > last_id)
        ]
    wanted = wanted[max(offset, 0) :]
    items = tuple(wanted[:limit])
    return Page(
        items=items,
        notices=notices if cursor is None else (),
        next_cursor=encode_cursor(items[-1]) if len(wanted) > limit else None,
    )


def matches_filter(summary: Summary | StoredConversation, archive_filter: ArchiveFilter) -> bool:
    if archive_filter == "all":
        return True
    return (summary.archived_at is not None) == (archive_filter == "archived")


def encode_cursor(last: Summary) -> str:
    return f"{last.updated_at.isoformat()}{_SEPARATOR}{last.id}"


def decode_cursor(cursor: str) -> tuple[datetime, str]:
    """The time and id where a page ended; clients can send anything."""
    moment, separator, last_id = cursor.partition(_SEPARATOR)
    refusal = UsageError(f"{cursor[:100]!r} is not where a page of conversations ended.")
    try:
        updated_at = datetime.fromisoformat(moment)
        if not separator or updated_at.tzinfo is None:
            raise refusal
        return updated_at.astimezone(UTC), last_id
    except (ValueError, OverflowError) as error:
        raise refusal from error


def check_page_size(limit: int, what: str) -> None:
    if limit < 1:
        raise UsageError(f"A page of {limit} {what} cannot be shown; ask for 1 or more.")


def select_tail(conversation: StoredConversation, tail: Tail) -> StoredConversation:
    if tail is None:
        return conversation
    kept = len(conversation.turns)
    count = count_window_messages(conversation) if tail == "window" else tail
    found = 0
    while kept > 0 and found < count:
        kept -= 1
        found += len(conversation.turns[kept].messages)
    left_out = sum(len(turn.messages) for turn in conversation.turns[:kept])
    return msgspec.structs.replace(
        conversation,
        turns=conversation.turns[kept:],
        first_sequence=conversation.first_sequence + left_out,
    )


def count_window_messages(conversation: StoredConversation) -> int:
    sent = [turn for turn in conversation.turns if turn.is_history]
    cut = sent[-1].window.first_sequence if sent and sent[-1].window is not None else 1
    return conversation.message_count + 1 - min((cut, *conversation.pins))


def build_summary(conversation: StoredConversation) -> Summary:
    return Summary(
        id=conversation.id,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        message_count=conversation.message_count,
        model=conversation.model,
        name=conversation.name,
        title=conversation.title,
        archived_at=conversation.archived_at,
        metadata=conversation.metadata,
    )


class SearchTerm(msgspec.Struct, frozen=True):
    """A whole term to search for, or the start of one."""

    text: str
    prefix: bool = False

    def is_in(self, terms: Iterable[str]) -> bool:
        if self.prefix:
            return any(term.startswith(self.text) for term in terms)
        return self.text in terms


def extract_terms(text: str) -> tuple[str, ...]:
    """The distinct terms of a text in their order."""
    if text.isascii():
        words = text.encode("ascii").translate(_PLAIN_WORDS).decode("ascii").split()
        return tuple(dict.fromkeys([word[:MAX_TERM_LENGTH] for word in words]))
    found: dict[str, None] = {}
    for run in _RUN.finditer(_fold_case(text)):
        if run["joined"] is None:
            found[run[0][:MAX_TERM_LENGTH]] = None
        else:
            found.update(dict.fromkeys(_pairs(run[0], with_last=True)))
    return tuple(found)


def parse_query(query: str) -> tuple[SearchTerm, ...]:
    """The terms of a query; UsageError if there is none."""
    found: dict[SearchTerm, None] = {}
    for run in _RUN.finditer(_fold_case(query)):
        if run["joined"] is None:
            found[SearchTerm(run[0][:MAX_TERM_LENGTH])] = None
        elif len(run[0]) == 1:
            found[SearchTerm(run[0], prefix=True)] = None
        else:
            found.update(dict.fromkeys(map(SearchTerm, _pairs(run[0], with_last=False))))
    if not found:
        raise UsageError("Say what to look for: the search has no words.")
    return tuple(found)


def _fold_case(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _pairs(run: str, *, with_last: bool) -> Iterator[str]:
    """Every two neighbours, and the last character, so that each one starts a term."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    if with_last:
        yield run[-1]


def find_hits(conversation: StoredConversation, words: Sequence[SearchTerm]) -> Iterator[Hit]:
    for sequence, turn, message in conversation.numbered_messages():
        if not turn.is_history:
            continue
        text = message.text
        terms = frozenset(extract_terms(text))
        if all(word.is_in(terms) for word in words):
            yield Hit(
                conversation=conversation.id,
                title=conversation.title,
                sequence=sequence,
                role=message.role,
                snippet=build_snippet(text, words),
                created_at=turn.started_at,
            )


def build_snippet(text: str, words: Sequence[SearchTerm]) -> str:
    line = " ".join(text.split())
    folded = line.casefold()
    place = min((at for word in words if (at := folded.find(word.text)) >= 0), default=0)
    start, stop = max(place - SNIPPET_RADIUS, 0), place + SNIPPET_RADIUS
    return f"{'…' if start else ''}{line[start:stop]}{'…' if stop < len(line) else ''}"


def build_hits(hits: Iterable[Hit], *, limit: int, offset: int) -> Hits:
    check_page_size(limit, "messages")
    first = max(offset, 0)
    found = sorted(hits, key=lambda hit: (hit.created_at, hit.sequence), reverse=True)
    return Hits(items=tuple(found[first : first + limit]), total=len(found))


def list_calls(conversation: StoredConversation) -> Iterator[CallRecord]:
    """The turns with usage, variants and failed ones included."""
    for turn in conversation.turns + conversation.variants:
        if turn.usage is not None and turn.ended_at is not None:
            model = turn.model or conversation.model or UNKNOWN_MODEL
            yield CallRecord(model=model, usage=turn.usage, cost=turn.cost, ended_at=turn.ended_at)


def sum_usage(
    calls: Iterable[CallRecord],
    *,
    since: datetime | None,
    until: datetime | None,
    by: UsageBy,
) -> tuple[UsageSum, ...]:
    sums: dict[str, UsageSum] = {}
    for call in calls:
        ended = call.ended_at.astimezone(UTC)
        if (since is not None and ended < since) or (until is not None and ended >= until):
            continue
        key = f"{ended:%Y-%m-%d}" if by == "day" else call.model
        empty = UsageSum(key=key, calls=0, usage=Usage(), cost=0.0)
        sums[key] = _add_call(sums.get(key, empty), call)
    return tuple(sums[key] for key in sorted(sums))


def _add_call(total: UsageSum, call: CallRecord) -> UsageSum:
    return msgspec.structs.replace(
        total,
        calls=total.calls + 1,
        usage=total.usage + call.usage,
        cost=total.cost + (call.cost or 0.0),
        unpriced=total.unpriced + (call.cost is None),
    )


class ScannedLists(ABC):
    """Lists, searches and sums of a store without an index: they read every conversation."""

    @abstractmethod
    async def _summaries(self, owner: str) -> tuple[Iterable[Summary], tuple[Notice, ...]]:
        """All conversations, and a notice for each that cannot be read."""

    @abstractmethod
    async def _scan(
        self, owner: str, work: Callable[[Iterable[StoredConversation]], T]
    ) -> tuple[T, tuple[Notice, ...]]:
        """Apply `work` to all conversations; a notice for each that cannot be read."""

    def _calls(self, owner: str) -> Iterable[CallRecord]:  # noqa: ARG002 - most have none
        """Calls that belong to no conversation."""
        return ()

    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
    ) -> Page:
        summaries, notices = await self._summaries(owner)
        return build_page(
            summaries,
            archive_filter=archive_filter,
            limit=limit,
            cursor=cursor,
            offset=offset,
            notices=notices,
        )

    async def count_conversations(
        self, *, owner: str = LOCAL_OWNER, archive_filter: ArchiveFilter = "active"
    ) -> int:
        summaries, _ = await self._summaries(owner)
        return sum(matches_filter(summary, archive_filter) for summary in summaries)

    async def search(
        self,
        query: str,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 20,
        offset: int = 0,
    ) -> Hits:
        words = parse_query(query)

        def find(conversations: Iterable[StoredConversation]) -> Hits:
            wanted = (found for found in conversations if matches_filter(found, archive_filter))
            hits = (hit for found in wanted for hit in find_hits(found, words))
            return build_hits(hits, limit=limit, offset=offset)

        hits, notices = await self._scan(owner, find)
        return msgspec.structs.replace(hits, notices=notices)

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        def add(conversations: Iterable[StoredConversation]) -> tuple[UsageSum, ...]:
            calls = (call for found in conversations for call in list_calls(found))
            return sum_usage(chain(calls, self._calls(owner)), since=since, until=until, by=by)

        return (await self._scan(owner, add))[0]
