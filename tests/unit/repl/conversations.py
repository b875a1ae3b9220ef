"""Conversations for the tests of the chat."""

from datetime import UTC, datetime
from typing import Any

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def turn_of(name: str, *, asked: str = "Hello", answer: str | None = "Hi.", **more: Any) -> Turn:
    said = [plain_message("user", asked)]
    said += [] if answer is None else [plain_message("assistant", answer)]
    return Turn(
        id=name,
        place=name,
        state="complete" if answer else "incomplete",
        messages=tuple(said),
        started_at=THEN,
        **more,
    )


def conversation_of(*turns: Turn, **more: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=THEN, updated_at=THEN, turns=turns, **more)
