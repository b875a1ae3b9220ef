"""Conversations and their turns: the same values behind every store.

Values are frozen: a conversation with one turn more is a new conversation. Nothing here reads
or writes a file, and nothing here decides what is sent.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from cllm.core.errors import InvalidIdError
from cllm.core.message import Message, plain_message
from cllm.core.notice import Notice
from cllm.core.reply import Usage

LOCAL_OWNER = "local"
CONTEXT_START = re.compile(r"(?:\A|\n\n)--- Context(?: Error)?:")
CONTEXT_MARK = re.compile(r"--- Context(?: Error)?:")
CONTEXT_END = "--- End Context ---"

TurnState = Literal["running", "complete", "incomplete", "failed"]
HISTORY_STATES = ("complete", "incomplete")
Policy = Literal["captured", "dynamic", "pinned"]


class SystemRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Under which policy a conversation goes, and where its system prompt came from.

    `prompt` is that of a pinned one, which is kept here and not among the messages.
    """

    policy: Policy
    source: str | None = None
    prompt: str | None = None


class ContextCommandRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One static context command that ran; `command` as it was written in the settings."""

    name: str
    command: str
    state: str
    exit_code: int | None = None


class ContextRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That the static context of a conversation was captured, when, and by which commands."""

    executed_at: datetime
    commands: tuple[ContextCommandRecord, ...] = ()


class WindowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What of the history a turn sent: from which sequence number on, and how much.

    `summary_through` is the last message that a summary stood for. `counted` is what the provider
    counted in the last prompt of the turn, which is longer than the first by what was said in
    between; about so many of these as `context` says were of what was for that turn only.
    """

    first_sequence: int
    sent_messages: int
    left_out_messages: int = 0
    summary_through: int | None = None
    counted: int | None = None
    context: int = 0


class StandingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that was given: it stands in place of the messages up to a sequence number.

    `tokens` is what it takes in a prompt; `usage` and `cost` are what it took to make. `before` is
    the one that it took the place of; to undo it is to go back to that.
    """

    text: str
    through: int
    tokens: int
    model: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    made_at: datetime | None = None
    before: "StandingSummary | None" = None

    def up_to(self, sequence: int) -> "StandingSummary | None":
        """The newest summary, of those that followed one another, that tells of nothing later."""
        found: StandingSummary | None = self
        while found is not None and found.through > sequence:
            found = found.before
        return found


class TurnFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn failed; `code` is the name of the error's type."""

    code: str
    message: str


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: what the user said and everything that answered it.

    Turns with the same `place` are variants of one another; one of them is on the default path.
    """

    id: str
    place: str
    state: TurnState
    messages: tuple[Message, ...]
    started_at: datetime
    ended_at: datetime | None = None
    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    notices: tuple[Notice, ...] = ()
    window: WindowRecord | None = None
    failure: TurnFailure | None = None

    @property
    def asked(self) -> tuple[Message, ...]:
        """What was said in the turn before anything answered it."""
        answers = (place for place, one in enumerate(self.messages) if one.role == "assistant")
        return self.messages[: next(answers, len(self.messages))]

    @property
    def is_history(self) -> bool:
        """Whether the turn may be sent as history: not while it runs, and not if it failed."""
        return self.state in HISTORY_STATES


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """Where a branch left its parent: after the message with this sequence number."""

    conversation: str
    sequence: int


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation: its stored system prompt, its default path of turns, and what is off it.

    `first_sequence` is the sequence number of the first message in `turns`: more than 1 when a
    store loaded only the tail that a window can use. The system prompt has no number. `pins` are
    the sequence numbers of messages that stay in every window, `summary` is what stands for the
    oldest ones where a window has it so.
    """

    id: str
    created_at: datetime
    updated_at: datetime
    model: str | None = None
    owner: str = LOCAL_OWNER
    name: str | None = None
    title: str | None = None
    system: Message | None = None
    system_record: SystemRecord | None = None
    context_record: ContextRecord | None = None
    turns: tuple[Turn, ...] = ()
    variants: tuple[Turn, ...] = ()
    first_sequence: int = 1
    pins: tuple[int, ...] = ()
    summary: StandingSummary | None = None
    parent: Branch | None = None
    archived_at: datetime | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def ref(self) -> str:
        """What people call it by: its name if it can be looked up by that, else its id."""
        return ref_of(self.name, self.id)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The default path as one list, the stored system prompt first."""
        head = () if self.system is None else (self.system,)
        return head + tuple(message for turn in self.turns for message in turn.messages)

    @property
    def message_count(self) -> int:
        """The messages on the default path, the system prompt not counted."""
        return self.first_sequence - 1 + sum([len(turn.messages) for turn in self.turns])

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has been said yet, so that it is captured as if it were new."""
        said = self.first_sequence > 1 or any(turn.is_history for turn in self.turns)
        return self.system is None and not said

    @property
    def kept_prompt(self) -> Message | None:
        """The system prompt that it keeps: the first of its messages, or one pinned beside them."""
        record = self.system_record
        if self.system is not None or record is None or record.prompt is None:
            return self.system
        return plain_message("system", record.prompt)

    def history(self, *, before: str | None = None) -> tuple[Turn, ...]:
        """The turns that may be sent: all, or those before the place that is answered anew."""
        turns = self.turns
        if before is not None:
            places = [turn.place for turn in turns]
            turns = turns[: places.index(before)] if before in places else turns
        return tuple([turn for turn in turns if turn.state in HISTORY_STATES])

    def has_system_message(self) -> bool:
        """Whether the conversation stores a system prompt."""
        return self.system is not None

    def has_context_in_system_message(self) -> bool:
        """Whether the stored system prompt holds a whole context block, by both of its markers."""
        if self.system is None:
            return False
        text = self.system.text
        return CONTEXT_MARK.search(text) is not None and CONTEXT_END in text

    def numbered_messages(self) -> Iterator[tuple[int, Turn, Message]]:
        """Every message of the default path with its sequence number and its turn."""
        number = self.first_sequence
        for turn in self.turns:
            for message in turn.messages:
                yield number, turn, message
                number += 1

    @property
    def total_tokens(self) -> int:
        """The tokens of all turns, variants included, as reported or estimated."""
        turns = self.turns + self.variants
        return sum(turn.usage.total for turn in turns if turn.usage is not None)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list: everything but what was said."""

    id: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    model: str | None = None
    name: str | None = None
    title: str | None = None
    archived_at: datetime | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def ref(self) -> str:
        """What people call it by: its name if it can be looked up by that, else its id."""
        return ref_of(self.name, self.id)


TITLE_LENGTH = 100


def ref_of(name: str | None, conversation_id: str) -> str:
    """The name, unless it is no valid id: such a name in somebody's file finds nothing."""
    return name if name and is_valid_id(name) else conversation_id


def title_from(text: str) -> str | None:
    """A title from the first user message: one line, at most 100 characters."""
    line = " ".join(text.split())
    if not line:
        return None
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 3] + "..."


VALID_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


def is_valid_id(ref: str) -> bool:
    return VALID_ID.fullmatch(ref) is not None


def check_id(ref: str) -> str:
    """The id itself, if it is one."""
    if not is_valid_id(ref):
        raise InvalidIdError(ref)
    return ref
