"""Parts of a loaded conversation: its tail, and its summary for lists."""

import msgspec

from cllm.core.conversation import StoredConversation, Summary
from cllm.core.ports import Tail


def select_tail(conversation: StoredConversation, tail: Tail) -> StoredConversation:
    """Return the newest whole turns with at least `tail` messages."""
    if tail is None:
        return conversation
    first = len(conversation.turns)
    count = count_window_messages(conversation) if tail == "window" else tail
    selected = 0
    while first > 0 and selected < count:
        first -= 1
        selected += len(conversation.turns[first].messages)
    skipped = sum(len(turn.messages) for turn in conversation.turns[:first])
    return msgspec.structs.replace(
        conversation,
        turns=conversation.turns[first:],
        first_sequence=conversation.first_sequence + skipped,
    )


def count_window_messages(conversation: StoredConversation) -> int:
    """Count the messages from the last cut on, or from an earlier pin on."""
    history = (turn for turn in reversed(conversation.turns) if turn.is_history)
    newest = next(history, None)
    window = None if newest is None else newest.window
    cut = 1 if window is None else window.first_sequence
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
        source=conversation.source,
        is_side=conversation.is_side,
        parent=conversation.parent,
        archived_at=conversation.archived_at,
        metadata=conversation.metadata,
    )
