"""A message as a window sees it: who says it, how long it is, and what ties it to others."""

import msgspec

from cllm.assembly.validity import HasParts
from cllm.core.message import Role, ToolCall, ToolResult


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the log. `says`: whether there is more in it than tool results.

    The ids are those of the calls that it makes and of the calls that it answers.
    """

    role: Role
    tokens: int
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    says: bool = True

    @property
    def is_plain_user(self) -> bool:
        """Whether it can begin a turn: the user's own words, and no answer to a call."""
        return self.role == "user" and not self.results


def item_of(message: HasParts, tokens: int) -> Item:
    """What a window has to know of a message that has so many tokens."""
    calls = tuple(part.id for part in message.parts if isinstance(part, ToolCall))
    results = tuple(part.call_id for part in message.parts if isinstance(part, ToolResult))
    return Item(
        role=message.role,
        tokens=tokens,
        calls=calls,
        results=results,
        says=len(results) < len(message.parts),
    )
