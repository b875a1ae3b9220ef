"""Less than a whole conversation: its newest turns, or its entry in a list. Pure."""

import msgspec

from cllm.core.conversation import Conversation, Summary
from cllm.core.ports import Tail


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
