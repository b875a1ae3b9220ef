"""The port of a store, and the values that go into it and come out of it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from cllm.core.conversation import (
    LOCAL_OWNER,
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


class Store(Protocol):
    """Keeps conversations. Every operation is about one owner's; another's do not exist.

    `ref` is a conversation's id or its name. Errors are those of `cllm.core.errors`. A store may
    say that it `ends_turns_whole`: `finish_turn` and `drop_turn` are done in any case once they
    were begun, and who is cancelled meanwhile hears of it afterwards. Of any other the engine sees
    to that.
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
        """Begin a turn, creating the conversation if `create` is given and there is none.

        `create` is for `ref`: its id or its name. The lease has the conversation as `load` gives
        it for `tail`, or more of it.
        While another turn runs this waits for `wait` seconds (None: for ever), then raises
        ConversationBusyError.
        """
        ...

    async def renew_lease(self, lease: Lease) -> Lease:
        """Keep a running turn's lease from expiring; StaleLeaseError if it has been lost."""
        ...

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        """Keep the turn as it ended and give the lease back, in one step that a crash cannot part.

        A finished variant takes its place on the default path, unless it failed. The opening
        is kept only if the conversation has none yet. The lease is given back even when the turn
        cannot be kept.
        """
        ...

    async def drop_turn(self, lease: Lease) -> None:
        """Give the lease back as if the turn, and a conversation it made, had never been."""
        ...

    async def create(
        self,
        new: NewConversation,
        *,
        owner: str = LOCAL_OWNER,
        opening: Opening | None = None,
    ) -> Conversation:
        """Create an empty conversation; ConversationExistsError if the id or name is taken."""
        ...

    async def add(self, conversation: Conversation, *, owner: str = LOCAL_OWNER) -> None:
        """Add a conversation with all its turns and variants, in one step that a crash cannot part.

        It is created at this moment, and a turn that says that it runs was interrupted. Raises
        ConversationExistsError if the id or name is taken, and UsageError if two turns share an id.
        """
        ...

    async def load(self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None) -> Conversation:
        """The conversation, or as much of it as `tail` says."""
        ...

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        """The conversation as a list shows it."""
        ...

    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
    ) -> Page:
        """A page of summaries, newest first: after `cursor`, or without the `offset` newest."""
        ...

    async def count_conversations(
        self, *, owner: str = LOCAL_OWNER, archive_filter: ArchiveFilter = "active"
    ) -> int:
        """How many conversations a list would show in all."""
        ...

    async def search(
        self,
        query: str,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 20,
        offset: int = 0,
    ) -> Hits:
        """Messages on default paths that have all words of the query, the best first."""
        ...

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        """What turns that ended from `since` on and before `until` used, by their day or model."""
        ...

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        """Change title, metadata (replaced as a whole), archive state, pins or summary.

        Pins and summaries are about messages that are there, else SequenceNotFoundError; as they
        say nothing, the times stay as they are with them. A summary follows the one that stands,
        by its `before`, or is one that came before that, else UsageError.
        """
        ...

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> Conversation | None:
        """Give an old conversation, which has a history and no record of its prompt, this one.

        None, and nothing is changed, if it is not such a one. Its context record and its times
        stay as they are: nothing was said.
        """
        ...

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        """Delete for good, with all turns and variants. Its branches stay whole."""
        ...

    async def delete_from(self, ref: str, sequence: int, *, owner: str = LOCAL_OWNER) -> None:
        """Delete the message with that sequence number and all later ones, and their variants."""
        ...

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> Conversation:
        """A new conversation with the messages up to `at`, or all; under `opening` if given."""
        ...

    async def choose_variant(
        self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER
    ) -> Conversation:
        """Put that variant on the default path in place of the one that is there.

        Of the summaries, the newest stands that tells of nothing from that place on.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class OutlinedStore(Protocol):
    """A store that can be asked for what was said in parts, in whatever order they are wanted.

    What was said in a turn is never changed, so that the parts of an outline are those of its
    moment whenever they are read, as long as nobody deletes them.
    """

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:
        """The conversation without what was said in it."""
        ...

    async def messages_from(
        self, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str = LOCAL_OWNER
    ) -> tuple[tuple[Message, ...], ...]:
        """The messages of the parts, one after the other, until they have `most` bytes or more.

        The last part that is given can be cut off. A turn that is not there has no messages.
        """
        ...
