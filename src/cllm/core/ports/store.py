"""The port of a store and its values."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from cllm.core.conversation import (
    LOCAL_OWNER,
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


class Store(Protocol):
    """Stores conversations. An operation sees the conversations of one owner only.

    It has the path digest (`cllm.wire.path_digest`) of every message. The path of a turn consists
    of the earlier turns that later prompts contain, and the turn itself.

    `ref` is a conversation's id or name. A store that `ends_turns_whole` completes `finish_turn`
    and `drop_turn` although the caller is cancelled; for others the engine does.
    """

    async def begin_turn(
        self,
        ref: str,
        start: TurnStart,
        *,
        owner: str = LOCAL_OWNER,
        create: NewConversation | None = None,
        wait: float | None = 0,
        tail: Tail = None,
    ) -> Lease:
        """Start a turn; create the conversation `create` if there is none with that id or name.

        The lease contains at least what `load` returns for `tail`. While another turn runs this
        waits up to `wait` seconds (None: without limit), then raises ConversationBusyError.
        """
        ...

    async def renew_lease(self, lease: Lease) -> Lease:
        """Extend the lease of a running turn; StaleLeaseError if it is lost."""
        ...

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        """Save the turn and release the lease, atomically.

        A finished variant replaces the turn on the default path, unless it failed. The opening is
        saved only if the conversation has none. The lease is released even if the turn cannot be
        saved.
        """
        ...

    async def drop_turn(self, lease: Lease) -> None:
        """Release the lease and delete the turn, and the conversation if the turn created it."""
        ...

    async def create(
        self,
        new: NewConversation,
        *,
        owner: str = LOCAL_OWNER,
        opening: Opening | None = None,
    ) -> StoredConversation:
        """Create an empty conversation; ConversationExistsError if the id or name is taken."""
        ...

    async def add(
        self,
        conversation: StoredConversation,
        *,
        owner: str = LOCAL_OWNER,
        preserve_times: bool = False,
    ) -> str:
        """Add a conversation with all its turns and variants, atomically; return its ID.

        It is created now, unless `preserve_times`. A folder of files uses the name as ID. A running
        turn becomes an interrupted one. Raises ConversationExistsError if the id or name is taken,
        UsageError if two turns share an id.
        """
        ...

    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation: ...

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        """Return the conversation as in a list."""
        ...

    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        source: str | None = None,
        side: bool = False,
        model: str | None = None,
        since: datetime | None = None,
        origin: Origin | None = None,
        title: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
    ) -> Page:
        """Return summaries, newest first: after `cursor`, or without the `offset` newest.

        Only those of this `source`, whose model contains `model` and whose title contains `title`
        (in any case of ASCII letters), updated from `since` on, of this `origin`. `side`: also side
        conversations.
        """
        ...

    async def count_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        source: str | None = None,
        side: bool = False,
        model: str | None = None,
        since: datetime | None = None,
        origin: Origin | None = None,
        title: str | None = None,
    ) -> int:
        """Return the number of conversations in all pages."""
        ...

    async def read_overviews(
        self, ids: Sequence[str], *, owner: str = LOCAL_OWNER
    ) -> dict[str, Overview]:
        """Return overviews by conversation ID; an unknown or unreadable one is left out."""
        ...

    async def list_owners(self) -> tuple[str, ...]:
        """Return the owners of conversations, sorted."""
        ...

    async def search(
        self,
        query: str,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        model: str | None = None,
        since: datetime | None = None,
        origin: Origin | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> Hits:
        """Return messages on default paths that contain all words of the query, best first.

        `model`, `since` and `origin` select conversations, as in a list.
        """
        ...

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        """Return the usage of turns and calls that ended from `since` on and before `until`.

        A turn that a branch has copied is counted once.
        """
        ...

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        """Change title, metadata (as a whole), archive state, pins or summary.

        The archive state, pins and summary do not change `updated_at`. Raises
        SequenceNotFoundError if they refer to messages that do not exist, UsageError for a summary
        that neither follows the current one nor is an earlier one.
        """
        ...

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation | None:
        """Store the prompt of an old conversation, which has messages and no system record.

        Returns None for other conversations. `updated_at` does not change.
        """
        ...

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        """Delete the conversation with all turns and variants; its branches stay complete."""
        ...

    async def delete_from(
        self,
        ref: str,
        sequence: int,
        *,
        owner: str = LOCAL_OWNER,
        unchanged: StoredConversation | None = None,
    ) -> None:
        """Delete the message with that sequence number, all later ones, and their variants.

        `unchanged`: the conversation as it was loaded; ConversationBusyError if it has changed.
        """
        ...

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        path: Sequence[str] | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> StoredConversation:
        """Copy the messages up to `at`, or all, to a new conversation; `opening` is optional.

        `path`: the IDs of the turns to copy, in order, instead of the default path; `at` counts
        their messages. Raises TurnNotFoundError if one does not exist.
        """
        ...

    async def choose_variant(
        self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation:
        """Put that variant on the default path.

        Removes summaries of messages from this turn on.
        """
        ...

    async def find_paths(
        self,
        digests: Sequence[bytes],
        *,
        owner: str = LOCAL_OWNER,
        family: str | None = None,
        side: bool = False,
        any_ids: bool = False,
    ) -> tuple[PathMatch, ...]:
        """Return the messages with the first of the digests that any message has, newest first.

        Archived conversations are not searched. `family`: only conversations of this family;
        without it, those with the source ITEMS_SOURCE are not searched.
        `side`: only side conversations; otherwise only others. `any_ids`: the IDs of tool calls
        may differ. At most MAX_MATCHES are returned.
        """
        ...

    async def list_family(
        self, family: str, *, owner: str = LOCAL_OWNER, limit: int = 20
    ) -> tuple[Summary, ...]:
        """Return the newest conversations of a family, with side conversations, newest first.

        Archived conversations are not listed.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class OpeningStore(Protocol):
    """A store that can save the opening of a conversation before its first turn ends."""

    async def save_opening(self, lease: Lease, opening: Opening) -> Lease:
        """Save the opening, unless the conversation has one; return the lease with it."""
        ...


@runtime_checkable
class OutlinedStore(Protocol):
    """A store that can read messages in parts.

    The messages of a turn never change, so the parts of an outline can be read later, unless they
    are deleted.
    """

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline: ...

    async def messages_from(
        self, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str = LOCAL_OWNER
    ) -> tuple[tuple[Message, ...], ...]:
        """Return the messages of the parts in order, until they have `most` bytes or more.

        The last part can be incomplete. A turn that does not exist has no messages.
        """
        ...


@runtime_checkable
class WatchedStore(Protocol):
    """A store that a feed of changes can poll without reading its list each time."""

    async def read_version(self, *, owner: str = LOCAL_OWNER) -> str | None:
        """Return a text that is different after a change; None if the store has none."""
        ...

    async def list_running(self, *, owner: str = LOCAL_OWNER) -> tuple[str, ...]:
        """Return the IDs of conversations in which a turn runs."""
        ...

    async def count_all(self, *, owner: str = LOCAL_OWNER) -> ConversationCounts:
        """Return the numbers of all and of archived conversations, read at the same moment."""
        ...


class ImportedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a message of an older deployment that other messages do not have."""

    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    reasoning_events: Any = None
    total_cost: float | None = None
    created_at: datetime | None = None


@runtime_checkable
class ImportingStore(Protocol):
    """A store that can contain conversations of an older deployment."""

    async def imported_fields(
        self, ref: str, *, owner: str = LOCAL_OWNER, after: int = 0
    ) -> dict[str, ImportedFields]:
        """Return the fields by message ID, of messages after a sequence number or off the path."""
        ...
