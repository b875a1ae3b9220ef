"""The ports: what the engine needs of a store and of a provider, and the values they pass.

A port is a protocol, not a base class. `cllm.testing` has the contract suite that every store
passes.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime, timedelta
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
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, Usage

Clock = Callable[[], datetime]
NewId = Callable[[], str]
ArchiveFilter = Literal["active", "archived", "all"]
UNANSWERED_KEPT = timedelta(days=1)
"""How long it is known of a request that nobody answered which turn was begun for it."""
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
    """Part of what a search found; `total` is all it found, or that many at least if `more`."""

    items: tuple[Hit, ...]
    total: int
    more: bool = False


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """What a number of calls used: of a day (`2026-11-15`) or of a model, which is the `key`.

    `cost` adds up what is known; `unpriced` is how many calls nobody knows a price for.
    """

    key: str
    calls: int
    usage: Usage
    cost: float
    unpriced: int = 0


class Store(Protocol):
    """Keeps conversations. Every operation is about one owner's; another's do not exist.

    `ref` is a conversation's id or its name. Errors are those of `cllm.core.errors`.
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


class RequestKey(msgspec.Struct, frozen=True, kw_only=True):
    """A request that may be made once only: hashes of the client's key for it and of its body."""

    owner: str
    key: str
    body: str


class KeptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered to a request, for whoever sends the same one again."""

    status: int
    headers: dict[str, str]
    body: bytes


class RequestClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to answer a request, until then; whoever answers for longer renews it.

    `headers` and `body` are what is known of the answer so far. In a claim that was taken over they
    are what whoever had it before knew.
    """

    request: RequestKey
    until: datetime
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a turn's stream as it went out; numbers count from 1."""

    number: int
    data: bytes


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a call used of which nothing else is kept."""

    model: str
    usage: Usage
    cost: float | None
    ended_at: datetime


class ServerStore(Store, Protocol):
    """A store that also keeps what a server has to know beside conversations."""

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        """Take the right to answer a request for so long, or get what was answered to it.

        RequestInFlightError while somebody else has it, and RequestConflictError if the key
        stands for another body. A claim that ran out is taken over.
        """
        ...

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        """Keep the claim, with what is known of the answer, for so long from now on.

        With no seconds at all it is given back. RequestInFlightError if it was lost.
        """
        ...

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        """Keep the claim's answer for so long; RequestInFlightError if the claim was lost."""
        ...

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        """Delete the owner's answers, and what is known of others, whose head says this."""
        ...

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        """Keep some events of the stream of a turn that runs."""
        ...

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        """The events of a turn's stream after that number; TurnNotFoundError if there is none."""
        ...

    async def drop_old_events(self, before: datetime) -> None:
        """Delete the events of turns that ended before that.

        Also answers whose time is over, and what is known of requests that nobody answered within
        `UNANSWERED_KEPT`.
        """
        ...

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        """Have `usage` count calls that belong to no conversation, all or none of them."""
        ...


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a prompt is, by whoever would read it; `raw` is all that they said."""

    tokens: int
    notices: tuple[Notice, ...] = ()
    raw: bytes | None = None


@runtime_checkable
class TokenCounter(Protocol):
    """A provider that counts the tokens of a prompt without answering it."""

    async def count_tokens(self, prompt: Prompt) -> TokenCount | None:
        """The count; None if there is none to be had for this model."""
        ...


class Provider(Protocol):
    """Asks one service. Carries requests and answers; what they mean is the codecs' work."""

    name: str

    async def prepare(self) -> None:
        """Do what takes long and can fail before a turn begins, such as fetching a model."""
        ...

    def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        """Ask once, without retrying. The last event is ReplyFinished, or an error is raised."""
        ...

    async def close(self) -> None: ...
