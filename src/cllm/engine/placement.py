"""Values: where the turn of a client that sends its whole history is stored."""

from collections.abc import Iterator, Sequence

import msgspec

from cllm.core.conversation import Branch, make_title
from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.ports import NewConversation
from cllm.engine.request import ClientHistory

CONTEXT_END = "</environment_context>"
"""The end of the first user message of Codex, which the user has not written."""


class BranchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The last shared message of a branch; `path` as in `Store.branch`."""

    conversation: str
    at: int
    path: tuple[str, ...] | None = None


class CutReply(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as the client has it: with only the beginning of its reply."""

    place: str
    messages: tuple[Message, ...]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where the turn starts, and the messages that are new there.

    - `recognised`: how many messages of the request are stored already.
    - `create`: the conversation that does not exist yet, `branch` the point where it starts.
    - `place`: the slot of the turn of which this is a variant.
    - `chosen_variant`: the turn to put on the default path first; `cut_reply`: the one to add.
    - `message_count`: what the conversation has now; None if that does not matter.
    - `branch_if_busy`: where a branch starts if another turn runs in the conversation.
    """

    ref: str
    messages: tuple[Message, ...]
    recognised: int = 0
    create: NewConversation | None = None
    branch: BranchPoint | None = None
    place: str | None = None
    chosen_variant: str | None = None
    cut_reply: CutReply | None = None
    message_count: int | None = None
    branch_if_busy: BranchPoint | None = None

    @property
    def diverged_from(self) -> str | None:
        """The conversation of which the turn starts a branch."""
        if self.branch is not None:
            return self.branch.conversation
        parent = None if self.create is None else self.create.parent
        return parent.conversation if parent is not None and parent.kind == "branch" else None

    def list_notices(self) -> Iterator[Notice]:
        if self.recognised:
            total = self.recognised + len(self.messages)
            yield Notice(
                code="history_recognised",
                path="messages",
                message=f"{self.recognised} of {total} messages are stored already; "
                f"new: {len(self.messages)}.",
            )
        if self.diverged_from is not None:
            yield Notice(
                code="history_diverged",
                path="messages",
                message=f"The turn is saved in branch {self.ref} of conversation "
                f"{self.diverged_from}, after {self.recognised} common messages.",
            )


def new_placement(
    messages: Sequence[Message],
    history: ClientHistory,
    conversation_id: str,
    *,
    parent: Branch | None = None,
    family: str | None = None,
    path_start: bytes | None = None,
    recognised: int = 0,
) -> Placement:
    """Return a new conversation for the messages of a request."""
    create = NewConversation(
        id=conversation_id,
        title=_choose_title(messages),
        family=history.family if family is None else family,
        source=history.source,
        is_side=history.side is not None,
        parent=parent,
        path_start=path_start,
    )
    return Placement(
        ref=conversation_id, messages=tuple(messages), create=create, recognised=recognised
    )


def _choose_title(messages: Sequence[Message]) -> str | None:
    """Return the title if context precedes the user's text; otherwise the store makes it."""
    if len(messages) < 2 or CONTEXT_END.encode() not in messages[0].raw:  # noqa: PLR2004
        return None
    is_context = messages[0].text.rstrip().endswith(CONTEXT_END)
    return make_title(messages[1].text) if is_context and messages[1].role == "user" else None
