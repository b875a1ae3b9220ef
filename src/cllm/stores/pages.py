"""Lists of conversations, entries in them, and the newest turns of one. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from cllm.core.conversation import Conversation, Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.core.ports import ArchiveFilter, Page, Tail

_SEPARATOR = "~"


def page_of(
    summaries: Iterable[Summary],
    *,
    archive_filter: ArchiveFilter,
    limit: int,
    cursor: str | None,
    offset: int = 0,
    notices: tuple[Notice, ...] = (),
) -> Page:
    """The page after `cursor`: newest first, then by id. Notices come with the first page only."""
    check_page(limit, "conversations")
    wanted = [summary for summary in summaries if passes(summary, archive_filter)]
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


def passes(summary: Summary | Conversation, archive_filter: ArchiveFilter) -> bool:
    """Whether a list with this filter shows the conversation."""
    if archive_filter == "all":
        return True
    return (summary.archived_at is not None) == (archive_filter == "archived")


def encode_cursor(last: Summary) -> str:
    return f"{last.updated_at.isoformat()}{_SEPARATOR}{last.id}"


def decode_cursor(cursor: str) -> tuple[datetime, str]:
    """Where a page ended; anybody can have written it."""
    moment, separator, last_id = cursor.partition(_SEPARATOR)
    refusal = UsageError(f"{cursor[:100]!r} is not where a page of conversations ended.")
    try:
        updated_at = datetime.fromisoformat(moment)
        if not separator or updated_at.tzinfo is None:
            raise refusal
        return updated_at.astimezone(UTC), last_id
    except (ValueError, OverflowError) as error:
        raise refusal from error


def check_page(limit: int, what: str) -> None:
    """UsageError if nothing could stand on a page of that length."""
    if limit < 1:
        raise UsageError(f"A page of {limit} {what} cannot be shown; ask for 1 or more.")


def tail_of(conversation: Conversation, tail: Tail) -> Conversation:
    """As much of the conversation as `tail` says, in whole turns."""
    if tail is None:
        return conversation
    kept = len(conversation.turns)
    count = window_length(conversation) if tail == "window" else tail
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


def window_length(conversation: Conversation) -> int:
    """How many of the newest messages the next window can use."""
    sent = [turn for turn in conversation.turns if turn.is_history]
    cut = sent[-1].window.first_sequence if sent and sent[-1].window is not None else 1
    return conversation.message_count + 1 - min((cut, *conversation.pins))


def summary_of(conversation: Conversation) -> Summary:
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
