"""Finds out which messages of a request its stored conversation already has.

Compares the messages; sends and saves nothing.
"""

from collections.abc import Sequence

from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.core.ports import Store
from cllm.server.turns.headers import ContinueConversation, HistoryMode
from cllm.wire.convert import is_plain_user
from cllm.wire.path_digest import have_same_meaning


def has_whole_history(mode: HistoryMode, messages: Sequence[Message]) -> bool:
    """Whether the messages are a whole history; otherwise they are new ones."""
    if not messages:
        return False
    if mode != "auto":
        return mode == "full"
    has_reply = any(message.role == "assistant" for message in messages)
    return has_reply and is_plain_user(messages[0])


async def drop_repeated(
    store: Store,
    mode: ContinueConversation,
    owner: str,
    messages: tuple[Message, ...],
    history: HistoryMode,
) -> tuple[Message, ...]:
    """Return the messages without those that repeat the end of the stored conversation."""
    least = _count_repeatable(messages, history)
    if least is None:
        return messages
    try:
        # Some of them can be those of failed turns.
        newest = await store.load(mode.ref, owner=owner, tail=2 * len(messages))
    except ConversationNotFoundError:
        if mode.is_name:
            return messages
        raise
    stored = [one for turn in newest.history() for one in turn.messages]
    for count in range(min(len(messages) - 1, len(stored)), least - 1, -1):
        if all(map(have_same_meaning, stored[-count:], messages[:count])):
            is_longer = len(stored) > count or newest.first_sequence > 1
            return messages[count:] if is_longer or least == 1 else messages
    return messages


def _count_repeatable(messages: Sequence[Message], history: HistoryMode) -> int | None:
    """Return how many first messages, at least, can repeat the end of a conversation.

    A reply or a tool result; or a turn from its user message to its first reply, if there is no
    other user message: tool helpers of SDKs send the messages of their turn each time.
    """
    if len(messages) < 2 or history == "full":  # noqa: PLR2004
        return None
    if not is_plain_user(messages[0]):
        return 1
    replies = (index for index, message in enumerate(messages) if message.role == "assistant")
    first = next(replies, len(messages))
    is_turn = first < len(messages) - 1 and not any(map(is_plain_user, messages[first:]))
    return first + 1 if is_turn and history == "auto" else None
