"""Parts of a loaded conversation: its tail, and its summary for lists."""

import msgspec

from cllm.core.conversation import StoredConversation, Summary
from cllm.core.ports import Tail


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
