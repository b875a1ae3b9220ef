"""What a conversation says about itself, as it is changed from outside a turn; every store uses it.

Title, metadata and archive state, and the notes for windows: pins and the standing summary. No I/O,
no clock: the time comes in as `now`.
"""

from datetime import datetime

import msgspec

from cllm.core.conversation import Conversation, StandingSummary
from cllm.core.errors import SequenceNotFoundError, UsageError
from cllm.core.ports import Changes
from cllm.stores.edits import check_sequence

replace = msgspec.structs.replace


def with_changes(conversation: Conversation, changes: Changes, *, now: datetime) -> Conversation:
    """The conversation with another title, metadata, archive state, pins or summary."""
    title = conversation.title if changes.title is msgspec.UNSET else changes.title
    given = changes.metadata
    metadata = conversation.metadata if isinstance(given, msgspec.UnsetType) else dict(given)
    archived_at = conversation.archived_at
    if changes.archived is True:
        archived_at = archived_at or now
    elif changes.archived is False:
        archived_at = None
    noted = _with_window_notes(conversation, changes)
    if _notes_only(changes):
        return noted
    return replace(noted, title=title, metadata=metadata, archived_at=archived_at, updated_at=now)


def _with_window_notes(conversation: Conversation, changes: Changes) -> Conversation:
    pins, summary = conversation.pins, conversation.summary
    if not isinstance(changes.pins, msgspec.UnsetType):
        pins = tuple(sorted(set(changes.pins)))
        count = conversation.message_count
        for pin in (pin for pin in pins if not 1 <= pin <= count):
            raise SequenceNotFoundError(conversation.id, pin)
    if not isinstance(changes.summary, msgspec.UnsetType):
        summary = changes.summary
        if summary is not None:
            check_sequence(conversation, summary.through)
            _check_follows(conversation.summary, summary)
    return replace(conversation, pins=pins, summary=summary)


def _check_follows(standing: StandingSummary | None, given: StandingSummary) -> None:
    """A summary takes the place of the one it was made with, or is one that came before it."""
    if standing is None or _alone(given.before) == _alone(standing):
        return
    found: StandingSummary | None = standing
    while found is not None and _alone(found) != _alone(given):
        found = found.before
    if found is None:
        raise UsageError("Another summary was made meanwhile, and stands; this one was not kept.")


def _alone(summary: StandingSummary | None) -> StandingSummary | None:
    """A summary without those before it, of which the oldest are given up in time."""
    return None if summary is None else replace(summary, before=None)


def _notes_only(changes: Changes) -> bool:
    """Whether the change is about windows alone, with which nothing was said."""
    unset = msgspec.UNSET
    spoken = (changes.title, changes.metadata, changes.archived)
    noted = changes.pins is not unset or changes.summary is not unset
    return noted and all(said is unset for said in spoken)
