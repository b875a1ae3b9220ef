"""Conversations for the tests of the chat."""

from datetime import UTC, datetime
from typing import Any

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def turn_of(
    name: str, *, question: str = "Hello", answer: str | None = "Hi.", **fields: Any
) -> Turn:
    messages = [plain_message("user", question)]
    messages += [] if answer is None else [plain_message("assistant", answer)]
    return Turn(
        id=name,
        place=name,
        state="complete" if answer else "incomplete",
        messages=tuple(messages),
        started_at=THEN,
        **fields,
    )


def conversation_of(*turns: Turn, **fields: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=THEN, updated_at=THEN, turns=turns, **fields)
