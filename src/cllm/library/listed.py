"""Messages in OpenAI's words that a program holds in a list, and may have written itself.

Says where their turns begin, and what is wrong with one that is none. Never changes the list.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from cllm.core.message import Message
from cllm.library.given import encode_given

Listed = Sequence[dict[str, Any]]
ListedRole = Literal["user", "assistant", "tool"]
ROLES: tuple[ListedRole, ...] = get_args(ListedRole)


def role_at(messages: Listed, position: int) -> ListedRole:
    """Who said that message; ValueError if it is none."""
    message = messages[position]
    role: ListedRole | None = message.get("role") if isinstance(message, dict) else None
    if role in ROLES:
        return role
    raise ValueError(
        f'messages[{position}] must be a dictionary such as {{"role": "user", "content": "Hello."}}'
        f" with one of the roles {', '.join(ROLES)}; the system prompt goes into system_prompt."
    )


def turn_starts(messages: Listed) -> list[int]:
    """Where the turns begin: at the first message, and at a user's after an answer."""
    starts: list[int] = []
    is_answered = False
    for position in range(len(messages)):
        role = role_at(messages, position)
        if not starts or (role == "user" and is_answered):
            starts.append(position)
            is_answered = False
        is_answered = is_answered or role == "assistant"
    return starts


def waits_for_answer(messages: Listed) -> bool:
    """Whether nobody answered the last turn yet."""
    for position in reversed(range(len(messages))):
        role = role_at(messages, position)
        if role != "tool":
            return role == "user"
    return bool(messages)


def encode_listed(messages: Listed) -> tuple[Message, ...]:
    """The messages as they are sent."""
    return tuple(_encoded(messages, position) for position in range(len(messages)))


def _encoded(messages: Listed, position: int) -> Message:
    role = role_at(messages, position)
    return Message(role=role, raw=encode_given(f"messages[{position}]", messages[position]))
