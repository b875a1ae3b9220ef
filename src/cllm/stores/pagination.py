"""Pages and cursors of conversation lists, newest first."""

from collections.abc import Iterable
from datetime import UTC, datetime

from cllm.core.conversation import Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.core.ports import Page

_SEPARATOR = "~"


def build_page(
    summaries: Iterable[Summary],
    *,
    limit: int,
    cursor: str | None,
    offset: int = 0,
    notices: tuple[Notice, ...] = (),
) -> Page:
    check_page_size(limit, "conversations")
    matches = sorted(summaries, key=lambda summary: summary.id)
    matches.sort(key=lambda summary: summary.updated_at, reverse=True)
    if cursor is not None:
        updated_at, last_id = decode_cursor(cursor)
        matches = [
            summary
            for summary in matches
            if summary.updated_at < updated_at
            or (summary.updated_at == updated_at and summary.id > last_id)
        ]
    matches = matches[max(offset, 0) :]
    items = tuple(matches[:limit])
    return Page(
        items=items,
        notices=notices if cursor is None else (),
        next_cursor=encode_cursor(items[-1]) if len(matches) > limit else None,
    )


def encode_cursor(last: Summary) -> str:
    return format_cursor(last.updated_at, last.id)


def format_cursor(updated_at: datetime, last_id: str) -> str:
    return f"{updated_at.isoformat()}{_SEPARATOR}{last_id}"


def decode_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the time and id of a page's last item; UsageError for an invalid cursor."""
    text, separator, last_id = cursor.partition(_SEPARATOR)
    invalid = UsageError(f"{cursor[:100]!r} is not a cursor of a conversation list.")
    try:
        updated_at = datetime.fromisoformat(text)
        if not separator or updated_at.tzinfo is None:
            raise invalid
        return updated_at.astimezone(UTC), last_id
    except (ValueError, OverflowError) as error:
        raise invalid from error


def check_page_size(limit: int, items: str) -> None:
    if limit < 1:
        raise UsageError(f"A page of {limit} {items} is not possible; request 1 or more.")
