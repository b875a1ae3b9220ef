"""Pages of a list of conversations, newest first, and the cursors between them."""

from collections.abc import Iterable
from datetime import UTC, datetime

from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.core.ports import ArchiveFilter, Page

_SEPARATOR = "~"


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
