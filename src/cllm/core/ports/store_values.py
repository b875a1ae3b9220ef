"""The values in the signatures of a store."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from cllm.core.conversation import (
    Branch,
    ContextRecord,
    StandingSummary,
    StoredConversation,
    Summary,
    SystemRecord,
    Turn,
    TurnState,
)
from cllm.core.message import Message, Role
from cllm.core.notice import Notice
from cllm.core.reply import Usage

ArchiveFilter = Literal["active", "archived", "all"]
Tail = int | Literal["window"] | None
"""What is loaded: the fewest newest turns with at least this many messages, what the next window
can need (everything from the start of the last window, and pinned messages), or everything."""
UsageBy = Literal["day", "model", "day_model"]
Origin = Literal["shell", "chat", "client"]
"""The interface that started a conversation, from its source. Without a source it is `client` in a
database, and `shell` in a folder of files."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation saves once, with its first turn."""

    system: Message | None
    system_record: SystemRecord
    context_record: ContextRecord | None = None


class NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a new conversation; `opening` if it is known before the first turn starts."""

    id: str
    model: str | None = None
    name: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    opening: Opening | None = None
    parent: Branch | None = None
    family: str | None = None
    source: str | None = None
    is_side: bool = False
    path_start: bytes | None = None


class TurnStart(msgspec.Struct, frozen=True, kw_only=True):
    """A turn about to start.

    With `place` it becomes a variant of the turn with that `place`. `visible`: store the running
    turn now, so that it survives a crash; otherwise it is stored when it ends. `parameters` are
    stored in its window.
    """

    id: str
    messages: tuple[Message, ...]
    model: str | None = None
    place: str | None = None
    visible: bool = True
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to finish one turn; meanwhile no other turn starts in the conversation.

    `conversation` is without the turn. A lease whose `fence` is not the newest is
    lost: nothing can be written with it. `before` is the path digest before the turn, None if the
    store does not know it.
    """

    conversation: StoredConversation
    turn: Turn
    fence: int
    created: bool
    visible: bool
    expires_at: datetime | None = None
    before: bytes | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, with notices about conversations that cannot be read."""

    items: tuple[Summary, ...]
    notices: tuple[Notice, ...] = ()
    next_cursor: str | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows of a conversation in addition to its summary.

    `last_line` is the start of the last message on one line. `tokens`, `cost` (None if no price is
    known) and `unpriced` are those of all turns and variants. `state` is that of the newest turn.
    """

    last_line: str = ""
    tokens: int = 0
    cost: float | None = None
    unpriced: int = 0
    state: TurnState | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """New values for fields of a conversation; unset fields do not change."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    pins: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    summary: StandingSummary | msgspec.UnsetType | None = msgspec.UNSET


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that matches a search.

    `content` is its text, `snippet` a line of it around the match, `highlight` the snippet as HTML
    with the words in `<b>`. `relevance` is from 0 to 1.
    """

    conversation: str
    title: str | None
    sequence: int
    role: Role
    snippet: str
    created_at: datetime
    message_id: str = ""
    content: str = ""
    highlight: str = ""
    relevance: float = 0.0


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    """A page of search results; `total` is a lower bound if `more`.

    `notices` are about damaged messages and conversations.
    """

    items: tuple[Hit, ...]
    total: int
    more: bool = False
    notices: tuple[Notice, ...] = ()


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of the calls of one `key`: a day (`2026-11-15`), a model, or a day and a model.

    The key of the last is `2026-11-15 MODEL`.

    `cost` is the sum of the known costs, None if no call has one; `unpriced` is the number of calls
    without one.
    """

    key: str
    calls: int
    usage: Usage
    cost: float | None
    unpriced: int = 0


class ConversationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The conversations of an owner without side conversations; `total` includes archived ones."""

    total: int
    archived: int


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation whose turns have no messages; `counts` has their numbers by turn ID."""

    conversation: StoredConversation
    counts: dict[str, int]


class TurnPart(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a turn from index `start` on."""

    turn: str
    start: int = 0


class PathMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose path digest is `digests[position]`.

    `ordinal` is its index in its turn, `sequence` its number on the default path, None off it.
    `message_count` is that of the conversation.
    """

    conversation: str
    turn: str
    ordinal: int
    position: int
    sequence: int | None
    message_count: int
    state: TurnState


MAX_MATCHES = 50
"""The most messages that `find_paths` returns."""


class ImportedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a message of an older deployment that other messages do not have."""

    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    reasoning_events: Any = None
    total_cost: float | None = None
    created_at: datetime | None = None
