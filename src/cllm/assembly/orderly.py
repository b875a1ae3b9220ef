"""The histories that need no look: what nearly every conversation is, seen in one pass.

Texts in turn, calls that are answered at once. It knows no provider, because every one takes these;
it never says that a history is wrong, only that it has to be looked at.
"""

from collections.abc import Sequence

from cllm.assembly.validity import HasParts
from cllm.core.message import Text, ToolCall, ToolResult


def is_orderly(messages: Sequence[HasParts], *, one_answer: bool) -> bool:
    """Whether every provider takes the history as it is.

    With `one_answer` all results of a turn have to be in one message.
    """
    turn = "user"
    waiting: set[str] = set()
    for message in messages:
        if waiting:
            if not _answers(message, waiting) or (waiting and one_answer):
                return False
            turn = "assistant"
        elif message.role != turn or not _speaks(message, waiting):
            return False
        else:
            turn = "assistant" if turn == "user" else "user"
    return turn == "assistant" and not waiting


def _answers(message: HasParts, waiting: set[str]) -> bool:
    """Whether a message is results of open calls and nothing else; they are open no longer."""
    if message.role not in ("tool", "user"):
        return False
    for part in message.parts:
        if not isinstance(part, ToolResult) or part.call_id not in waiting:
            return False
        for inner in part.content:
            if isinstance(inner, Text) and not inner.text.strip():
                return False
        waiting.discard(part.call_id)
    return bool(message.parts)


def _speaks(message: HasParts, waiting: set[str]) -> bool:
    """Whether a message is texts and, of the assistant, calls under ids of their own."""
    for part in message.parts:
        if isinstance(part, Text):
            if not part.text or part.text.isspace():
                return False
        elif isinstance(part, ToolCall) and message.role == "assistant" and part.id not in waiting:
            waiting.add(part.id)
        else:
            return False
    return bool(message.parts)
