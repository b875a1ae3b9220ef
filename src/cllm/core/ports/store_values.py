"""What goes into a store and comes out of it beside conversations. Values only."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from cllm.core.conversation import (
    ContextRecord,
    Conversation,
    StandingSummary,
    Summary,
    SystemRecord,
    Turn,
)
from cllm.core.message import Message, Role
from cllm.core.notice import Notice
from cllm.core.reply import Usage

ArchiveFilter = Literal["active", "archived", "all"]
Tail = int | Literal["window"] | None
"""How much of a conversation is loaded: the fewest newest turns with so many messages, what its
next window can use (from the last cut on, and what is pinned), or all of it."""
UsageBy = Literal["day", "model"]


class NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation is created with; its system prompt comes with the opening."""

    id: str
    model: str | None = None
    name: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation captures once, with its first turn: prompt, policy, static context."""

    system: Message | None
    system_record: SystemRecord
    context_record: ContextRecord | None = None


class TurnStart(msgspec.Struct, frozen=True, kw_only=True):
    """A turn about to begin.

    `place` is given to make a variant of the turn in that place. With `visible` the store keeps
    the running turn from this moment, so that a crash leaves a trace of it; without, nothing is
    kept until the turn is finished.
    """

    id: str
    messages: tuple[Message, ...]
    model: str | None = None
    place: str | None = None
    visible: bool = True


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to finish one turn. While it lasts no other turn begins in the conversation.

    `conversation` is what was stored when the turn began, without the turn itself. A lease whose
    `fence` is no longer the newest has been lost, and nothing can be written with it.
    """

    conversation: Conversation
    turn: Turn
    fence: int
    created: bool
    visible: bool
    expires_at: datetime | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, what was wrong with entries that are not on it, and where to go on."""

    items: tuple[Summary, ...]
    notices: tuple[Notice, ...] = ()
    next_cursor: str | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """A change to what a conversation says about itself; what is unset stays as it is."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    pins: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    summary: StandingSummary | msgspec.UnsetType | None = msgspec.UNSET


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A message in which something was found, and the words around it."""

    conversation: str
    title: str | None
    sequence: int
    role: Role
    snippet: str
    created_at: datetime


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    """Part of what a search found; `total` is all it found, or that many at least if `more`.

    `notices` are about what was found and cannot be shown, or not as it was said.
    """

    items: tuple[Hit, ...]
    total: int
    more: bool = False
    notices: tuple[Notice, ...] = ()


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """What a number of calls used: of a day (`2026-11-15`) or of a model, which is the `key`.

    `cost` adds up what is known; `unpriced` is how many calls nobody knows a price for.
    """

    key: str
    calls: int
    usage: Usage
    cost: float
    unpriced: int = 0


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation at one moment, whose turns and variants come without their messages.

    `counts` is how many messages each of them had, by its id.
    """

    conversation: Conversation
    counts: dict[str, int]


class TurnPart(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a turn from that one on, which is counted from 0."""

    turn: str
    start: int = 0
