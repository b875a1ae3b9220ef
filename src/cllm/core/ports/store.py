"""The port of a store."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from cllm.core.conversation import (
    LOCAL_OWNER,
    StoredConversation,
    Summary,
    Turn,
)
from cllm.core.message import Message
from cllm.core.ports.store_values import (
    ArchiveFilter,
    Changes,
    ConversationCounts,
    Hits,
    ImportedFields,
    Lease,
    NewConversation,
    Opening,
    Origin,
    Outline,
    Overview,
    Page,
    PathMatch,
    Tail,
    TurnPart,
    TurnStart,
    UsageBy,
    UsageSum,
)


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


@runtime_checkable
class ImportingStore(Protocol):
    """A store that can contain conversations of an older deployment."""

    async def imported_fields(
        self, ref: str, *, owner: str = LOCAL_OWNER, after: int = 0
    ) -> dict[str, ImportedFields]:
        """Return the fields by message ID, of messages after a sequence number or off the path."""
        ...
